"""Devices and vendors as text."""

from __future__ import annotations

from collections.abc import Sequence

from torch_fl_spec.printable import printable

from torch_fl.device_record import DeviceList, DeviceRecord, Probe, ProbeReport
from torch_fl.dtypes import SHORT_NAMES

_GIB = 1 << 30
_HEADINGS = ("device", "vendor", "#", "name", "free / total", "operators", "dtypes", "streams", "certification")


def of_devices(devices: DeviceList) -> str:
    """A table, and below it why some of the devices cannot be used; where there is none, what became of each vendor."""
    if not devices:
        return f"no devices\n{of_probes(devices.probes)}"
    refused: dict[str, list[str]] = {}
    for device in devices:
        if device.refusal is not None:
            refused.setdefault(device.refusal, []).append(f"fl:{device.index}")
    refusals = [f"{', '.join(names)} cannot be used: {printable(reason)}" for reason, names in refused.items()]
    # A line of its own before the table: whoever prints the list behind a word of his own keeps the columns straight.
    count = "1 device" if len(devices) == 1 else f"{len(devices)} devices"
    return "\n".join([count, _aligned([_HEADINGS, *map(_row, devices)]), *refusals])


def of_probes(probes: ProbeReport) -> str:
    """One line per vendor, longer reasons below."""
    if not probes:
        return "no vendor is installed, and none is named by the configuration"
    return "\n".join(printable(line) for probe in probes for line in _lines(probe))


def _row(device: DeviceRecord) -> tuple[str, ...]:
    return (
        f"fl:{device.index}",
        device.vendor,
        str(device.vendor_index),
        printable(device.name or "-").replace("\n", " "),
        _memory(device),
        str(device.operators) if device.usable else "-",
        " ".join(SHORT_NAMES[dtype] for dtype in device.dtypes) or "-",
        device.execution_model or "unusable",
        str(device.certification),
    )


def _memory(device: DeviceRecord) -> str:
    if not device.usable:
        return "-"
    free = "?" if device.free_memory is None else f"{device.free_memory / _GIB:.2f}"
    return f"{free} / {device.total_memory / _GIB:.2f} GiB"


def _lines(probe: Probe) -> list[str]:
    who = f"{probe.vendor} ({probe.source})"
    if probe.outcome == "left out":
        return [f"{who}: left out: {probe.reason}"]
    if probe.outcome == "failed":
        first, *rest = (probe.reason or "").splitlines() or [""]
        return [f"{who}: failed to {probe.step}: {first}", *(f"    {line}" for line in rest)]
    names = ", ".join(f"fl:{index}" for index in probe.devices) or "no device"
    plugin = f", {probe.plugin.vendor} {probe.plugin.version}, {probe.plugin.library}" if probe.plugin else ""
    return [f"{who}: {names}{plugin}", *(f"    {note}" for note in probe.notes)]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
