"""Evidence that something has *not* happened: window, canary, and a positive end state.

A stalled stream proves an order only if the device had every chance to break it. So the wait is both long
(3 ms) and eventful: 12 round trips of a canary on a stream that is not stalled must complete meanwhile. A
bare window misses defects on a loaded machine, a bare canary on an idle one; both together miss neither. The
third part is the caller's: after opening the gate, the value must be the one that the order implies.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch_fl_spec import abi as header

from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Stream
from torch_fl_conformance.moves import call_command, copy_args
from torch_fl_conformance.row import Row

WINDOW_SECONDS = 0.003
ROUND_TRIPS = 12
CANARY_NS = 1_000_000_000  # for one round trip
GATED = "gated"
"""Label of a row in which an order was checked behind a closed gate."""


def still_pending(
    abi: Abi, row: Row, happened: Callable[[], object], what: str, *, device: str = "d0", **facts: object
) -> None:
    """Fail the row if `happened()` turns true while the gate is closed; label it "gated".

    happened: asks the driver (a query, a counter, a host buffer's bytes). what: the forbidden event in words,
    "the copy ran before the fill it follows". device: where the canary makes its round trips; where streams
    are not independent, or the canary does not get through (FL-STREAM-009 judges that), it is the host's own
    round trips to the driver, and the row says so. The caller then opens the gate and checks the end state.
    """
    row.label(GATED)
    canary = _canary(abi, row, device)
    began = time.monotonic()
    trips = 0
    while trips < ROUND_TRIPS or time.monotonic() - began < WINDOW_SECONDS:
        row.check(not happened(), what, after_round_trips=trips, **facts)
        canary()
        trips += 1
    row.check(not happened(), what, after_round_trips=trips, **facts)


def gates_work(abi: Abi, device: str = "d0") -> bool:
    """Whether streams can be stalled: not on an INLINE device, where the submit would wait for the gate."""
    return bool(abi.device_info(device)["execution_model"] == "ASYNC")


def eventually(happened: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether `happened()` turns true within `seconds`; the positive half of an order check."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def _canary(abi: Abi, row: Row, device: str) -> Callable[[], None]:
    def by_host() -> None:
        abi.driver.execute({"do": "count", "name": "canary"})
        time.sleep(0.0003)

    info = abi.device_info(device)
    # Where alloc may wait, a canary's block would wait for the gate.
    if not info["independent_streams"] or (info["alloc_may_wait"] and device not in abi.canaries):
        row.note("canary: host round trips")
        return by_host
    # One for the whole row: a plugin need not have a stream for each look.
    if device not in abi.canaries:
        abi.canaries[device] = _TripsOnDevice(abi, device)
    trip: _TripsOnDevice = abi.canaries[device]

    def by_device() -> None:
        if not trip():
            row.note("canary: host round trips, since a stalled stream stops the others")
            by_host()

    return by_device


class _TripsOnDevice:
    """Eight bytes to the device and back, in a stream of their own; False once they got stuck."""

    def __init__(self, abi: Abi, device: str) -> None:
        self.abi = abi
        self.stalled = False
        self.stream: Stream = abi.stream(device)
        self.block = abi.alloc(device, 64)
        self.buffer = abi.host_buffer(64)
        there, back = copy_args(self.block, self.buffer), copy_args(self.buffer, self.block)
        self.trip = [
            call_command("memory.copy", self.stream, there),
            call_command("memory.copy", self.stream, back),
            call_command("stream.sync", self.stream, CANARY_NS),
        ]

    def __call__(self) -> bool:
        if self.stalled:
            return False
        answers = self.abi.driver.execute_all(self.trip)
        for answer in answers[:2]:
            self.abi.succeeded("memory.copy", answer)
        if answers[-1]["status"] == header.FL_TIMEOUT:
            self.stalled = True
        return not self.stalled
