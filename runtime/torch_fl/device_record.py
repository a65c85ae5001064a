"""What a user gets to know of devices and vendors: frozen records, and lists of them that print as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch

from torch_fl.certification import Certification
from torch_fl.vendor_probe import PluginFile


@dataclass(frozen=True)
class DeviceRecord:
    """The logical device `fl:index`, as it was when the list was made.

    vendor, vendor_index: whose it is, and its number there. name, uuid (32 hex digits), execution_model: None where the
    device was not opened. total_memory, free_memory: bytes; free is None where the device does not say.
    dtypes: those that some kernel of the device takes. operators: how many of the registry it has kernels for.
    refusal: why any use of the device raises, None where it can be used.
    """

    index: int
    vendor: str
    vendor_index: int
    name: str | None
    uuid: str | None
    total_memory: int
    free_memory: int | None
    dtypes: tuple[torch.dtype, ...]
    operators: int
    execution_model: Literal["async", "inline"] | None
    refusal: str | None
    plugin: PluginFile = field(repr=False)

    @property
    def usable(self) -> bool:
        """Whether tensors can live here."""
        return self.refusal is None

    @property
    def certification(self) -> Certification:
        """What the registry says of the plugin; looked up when first asked for."""
        return self.plugin.certification


@dataclass(frozen=True)
class Probe:
    """What became of one vendor.

    vendor: the name, folder or library that stands for it. source: who named it. outcome: "used", also where it has no
    device; "failed" at `step`; "left out" unasked. reason: of a failure or an omission, one or more lines.
    devices: indices of its logical devices. notes: what a user should know besides. seconds: to load and count.
    """

    vendor: str
    source: str
    outcome: Literal["used", "failed", "left out"]
    step: str | None = None
    reason: str | None = None
    devices: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    plugin: PluginFile | None = None


class ProbeReport(tuple[Probe, ...]):
    """One entry per vendor, in the order in which they were asked; prints as text."""

    def __repr__(self) -> str:
        from torch_fl import device_table

        return device_table.of_probes(self)

    __str__ = __repr__


class DeviceList(tuple[DeviceRecord, ...]):
    """Every device by its index; prints as a table. probes: where they come from, shown where there is no device."""

    probes: ProbeReport

    def __new__(cls, records: Iterable[DeviceRecord], probes: ProbeReport) -> DeviceList:
        """records: by index."""
        made = super().__new__(cls, records)
        made.probes = probes
        return made

    def __repr__(self) -> str:
        from torch_fl import device_table

        return device_table.of_devices(self)

    __str__ = __repr__
