"""Tables and times as plain text, for print() and for files."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

_WIDEST = 10_000  # columns: no row is wrapped, however long


def plain_text(drawn: RenderableType) -> str:
    """Without colours, each row of a table a line, no spaces behind it."""
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def duration(seconds: float) -> str:
    """In the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"
