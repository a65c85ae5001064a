"""A profile as a table, and what is to be learnt from it."""

from __future__ import annotations

from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from torch_fl.plain_text import duration, plain_text
from torch_fl.profiler import Measurement, OperatorProfile

#: Of the time or the calls: where the cpu tier takes more, it is pointed out.
TOO_MUCH_ON_CPU = 0.1

#: Rows of print(profile); table() gives all.
_PRINTED = 30
#: Operators that are blamed by name.
_BLAMED = 5

_NUMBERS = ("calls", "time", "share", "per call", "waits", "waiting", "to device", "to host", "shapes known")


def table(measured: Measurement, limit: int | None) -> Table:
    """One row per operator, device and tier; the first `limit`, or all."""
    out = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("operator", "device", "tier"):
        out.add_column(heading, no_wrap=True)
    for heading in _NUMBERS:
        out.add_column(heading, justify="right", no_wrap=True)
    for row in measured.operators[:limit]:
        out.add_row(*_cells(row, measured.host_s or 1.0), style="red" if row.tier == "cpu" else None)
    return out


def advice(measured: Measurement) -> str | None:
    """Where the cpu tier takes more than its due: whose fault it is, and what to do. Else None."""
    if max(measured.cpu_time_share, measured.cpu_call_share) <= TOO_MUCH_ON_CPU:
        return None
    seconds: dict[str, float] = {}
    for row in measured.on_cpu:
        seconds[row.operator] = seconds.get(row.operator, 0.0) + row.host_s
    whole = measured.host_s or 1.0
    blamed = [f"{name} ({spent / whole:.0%})" for name, spent in list(seconds.items())[:_BLAMED]]
    if len(seconds) > _BLAMED:
        blamed.append(f"{len(seconds) - _BLAMED} more")
    return (
        f"CPU fallback: {measured.cpu_time_share:.0%} of the time and {measured.cpu_call_share:.0%} of the calls, by "
        f"{', '.join(blamed)}. Each such call waits for the device, copies its operands to the host and its results "
        "back. What to do: use operators and dtypes that the device has kernels for (torch_fl.supports() says), or "
        "move that part of the program to the CPU as a whole, or ask the vendor for these kernels. The setting "
        "fallback.on_fallback: error finds the lines."
    )


def group(measured: Measurement) -> Group:
    """Table and remarks, for a terminal."""
    parts: list[Table | Text] = [Text(_first_line(measured)), table(measured, _PRINTED)]
    if len(measured.operators) > _PRINTED:
        parts.append(Text(f"and {len(measured.operators) - _PRINTED} more rows: table() has all"))
    if not measured.synchronize:
        parts.append(Text("Times are the host's; with profile(synchronize=True) they include the device's."))
    if remark := advice(measured):
        parts.append(Text(remark, style="bold red"))
    return Group(*parts)


def text(measured: Measurement) -> str:
    """The same without colours, each row and each remark a line, however long."""
    return plain_text(group(measured))


def _first_line(measured: Measurement) -> str:
    calls = sum(row.calls for row in measured.operators)
    spent = f"{duration(measured.seconds)}, of which {duration(measured.host_s)} in {calls} calls on fl devices"
    return f"profile of {spent}" + (", each completed by the device" if measured.synchronize else "")


def _cells(row: OperatorProfile, whole: float) -> tuple[str, ...]:
    rate = row.shape_hit_rate
    return (
        row.operator,
        row.device,
        row.tier,
        str(row.calls),
        duration(row.host_s),
        f"{row.host_s / whole:.0%}",
        duration(row.host_s / row.calls) if row.calls else "-",
        str(row.waits or "-"),
        duration(row.wait_s) if row.waits else "-",
        decimal(row.bytes_to_device) if row.bytes_to_device else "-",
        decimal(row.bytes_to_host) if row.bytes_to_host else "-",
        "-" if rate is None else f"{rate:.0%}",
    )
