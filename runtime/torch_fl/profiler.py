"""Where the time of a program on fl devices goes: `with torch_fl.profile() as p: ...`, then `print(p)`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch_fl import _bridge

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: By whom calls were served; the order is that of ServedBy in bridge/core/profile.h. host: nobody, the operator made a
#: tensor or waited. memory: copies and fills of the vendor. native: a kernel. relayout: a kernel, after operands had
#: been copied into a layout that it takes. generic: other operators on the device. cpu: the host.
Tier = Literal["host", "memory", "native", "relayout", "generic", "cpu"]
TIERS: tuple[Tier, ...] = ("host", "memory", "native", "relayout", "generic", "cpu")

#: The tiers that compute something.
_COMPUTES = ("native", "relayout", "generic", "cpu")

#: Stands for the operator of what happens while none is underway, as in torch.fl.synchronize().
OUTSIDE = "(outside operators)"


@dataclass(frozen=True)
class OperatorProfile:
    """Calls of one operator on one device that one tier served.

    operator: as torch names it, with overload: "aten::add.Tensor". device: "fl:0"; of a copy between two, one of them.
    host_s: seconds of the host from begin to end of the calls, all threads together, without operators within them that
    are listed themselves; what a call on the cpu tier copies is part of it. wait_s: of these, blocked in `waits` waits
    for a stream or an event. completion_s: of host_s, in waits that profile(synchronize=True) adds. Bytes: copied
    between host and device. shape_hits, shape_misses: how often sizes and dtypes of the outputs were known from an
    earlier call, and had to be asked for; operators with a fast lane do neither.
    """

    operator: str
    device: str
    tier: Tier
    calls: int
    host_s: float
    wait_s: float
    waits: int
    completion_s: float
    bytes_to_device: int
    bytes_to_host: int
    shape_hits: int
    shape_misses: int

    @property
    def shape_hit_rate(self) -> float | None:
        """Hits over look-ups; None where nothing was looked up."""
        lookups = self.shape_hits + self.shape_misses
        return self.shape_hits / lookups if lookups else None


@dataclass(frozen=True)
class Measurement:
    """What a profile has measured.

    seconds: from its begin to its end. synchronize: as profile() was told. operators: by host_s, the longest first.
    format: of to_json(); another number would be another meaning.
    """

    seconds: float
    synchronize: bool
    operators: tuple[OperatorProfile, ...]
    format: Literal["torch_fl.profile/1"] = "torch_fl.profile/1"

    @property
    def host_s(self) -> float:
        """Seconds in operators on fl devices; of several threads, more than `seconds` may be."""
        return sum(each.host_s for each in self.operators)

    @property
    def on_cpu(self) -> tuple[OperatorProfile, ...]:
        """What the cpu tier served, the longest first."""
        return tuple(each for each in self.operators if each.tier == "cpu")

    @property
    def cpu_time_share(self) -> float:
        """Of host_s, the cpu tier's part, its waits for earlier work of the device included."""
        return sum(each.host_s for each in self.on_cpu) / (self.host_s or 1.0)

    @property
    def cpu_call_share(self) -> float:
        """Of the calls that computed something, the cpu tier's part."""
        computing = sum(each.calls for each in self.operators if each.tier in _COMPUTES)
        return sum(each.calls for each in self.on_cpu) / (computing or 1)


class Profile:
    """What `profile()` gives; prints as a table. While the block runs, it shows what has ended so far."""

    def __init__(self, measurement: Measurement | None = None, *, synchronize: bool = False) -> None:
        """measurement: of a profile that has ended; None: one that begins now."""
        self._measurement = measurement
        if measurement is None:
            self._synchronize = synchronize
            self._before = _sums()
            self._begin = time.perf_counter()

    @property
    def measurement(self) -> Measurement:
        """All of it, as frozen records."""
        if self._measurement is not None:
            return self._measurement
        seconds = time.perf_counter() - self._begin
        return Measurement(seconds, self._synchronize, _difference(self._before, _sums()))

    @property
    def operators(self) -> tuple[OperatorProfile, ...]:
        """The rows of the table, the longest first."""
        return self.measurement.operators

    @property
    def seconds(self) -> float:
        """From begin to end of the block."""
        return self.measurement.seconds

    def _end(self) -> None:
        self._measurement = self.measurement

    # ---- Output ------------------------------------------------------------------------------------------------------

    def table(self, limit: int | None = None) -> Table:
        """For rich: one row per operator, device and tier, the longest first; the first `limit` of them."""
        from torch_fl import profiler_text

        return profiler_text.table(self.measurement, limit)

    def advice(self) -> str | None:
        """Where the cpu tier takes more than a tenth of the time or of the calls: whose fault it is, and what to do."""
        from torch_fl import profiler_text

        return profiler_text.advice(self.measurement)

    def to_json(self) -> str:
        """`format`, and the fields of Measurement and OperatorProfile by their names."""
        from pydantic import TypeAdapter

        return TypeAdapter(Measurement).dump_json(self.measurement, indent=2).decode()

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """What to_json() gave; raises ValueError with what is wrong about anything else."""
        from pydantic import TypeAdapter

        return cls(TypeAdapter(Measurement).validate_json(text))

    def plot(self, path: str | Path, limit: int = 20) -> Path:
        """Write a picture of the `limit` longest rows; the path's ending says which format, as .png or .svg."""
        from torch_fl import profiler_plot

        return profiler_plot.write(self.measurement, Path(path), limit)

    def __str__(self) -> str:
        from torch_fl import profiler_text

        return profiler_text.text(self.measurement)

    def __rich__(self) -> RenderableType:
        from torch_fl import profiler_text

        return profiler_text.group(self.measurement)


@contextlib.contextmanager
def profile(*, synchronize: bool = False) -> Iterator[Profile]:
    """Measure what every thread of the process does on fl devices while the block runs, whatever ends it.

    Times are the host's: an asynchronous device goes on with its work after the operator has returned. synchronize:
    wait for the device at the end of each operator, so that the operator's time includes the device's; in all threads,
    and for profiles that run at the same time, too. Profiles may nest and overlap: each counts for itself the calls
    that end while it runs. Views, and operators that torch composes of others, are not listed; their parts are.
    """
    _bridge.start_profile(synchronize)
    try:
        running = Profile(synchronize=synchronize)
        try:
            yield running
        finally:
            running._end()
    finally:
        _bridge.stop_profile(synchronize)


_Key = tuple[int, str, int]


def _sums() -> dict[_Key, list[int]]:
    return {(device, operator, tier): values for device, operator, tier, values in _bridge.profiled()}


def _difference(before: Mapping[_Key, list[int]], after: Mapping[_Key, list[int]]) -> tuple[OperatorProfile, ...]:
    rows = []
    for key, values in after.items():
        earlier = before.get(key, [0] * len(values))
        since = [value - old for value, old in zip(values, earlier, strict=True)]
        if any(since):
            rows.append(_row(key, since))
    return tuple(sorted(rows, key=lambda row: (-row.host_s, row.device, row.operator, row.tier)))


def _row(key: _Key, sums: list[int]) -> OperatorProfile:
    device, operator, tier = key
    calls, host_ns, wait_ns, waits, completion_ns, to_device, to_host, hits, misses = sums
    return OperatorProfile(
        operator=operator or OUTSIDE,
        device=f"fl:{device}",
        tier=TIERS[tier],
        calls=calls,
        host_s=host_ns / 1e9,
        wait_s=wait_ns / 1e9,
        waits=waits,
        completion_s=completion_ns / 1e9,
        bytes_to_device=to_device,
        bytes_to_host=to_host,
        shape_hits=hits,
        shape_misses=misses,
    )
