"""A registry in a terminal: decisions, the list of entries, the outcome of a verification."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch_fl_spec.printable import printable

from torch_fl_reports.gate import Decision
from torch_fl_reports.gate_reason import Reason
from torch_fl_reports.registry import Entry, instant


def show_decision(decision: Decision) -> None:
    """Say what the gate decided and, when it refused, every reason with its code."""
    console = Console(highlight=False, markup=False, emoji=False)
    if decision.accepted and decision.report is not None:
        subject, run = decision.report.subject, decision.report.run
        console.print(Text("accepted", style="bold green"), printable(f"{subject.vendor} {subject.version},"), end=" ")
        console.print(printable(f"{run.profile} {decision.report.interface}, self-run"))
        console.print(f"plugin sha256 {subject.files[0].sha256}", soft_wrap=True)
        for library in subject.libraries:
            console.print(printable(f"loads sha256 {library.sha256} {library.path}"), soft_wrap=True)
        return
    console.print(Text(f"refused for {_reasons(len(decision.reasons))}", style="bold red"))
    _show_reasons(console, decision.reasons)


def show_entries(entries: list[Entry], now: datetime) -> None:
    """A table of the index, newest last. It judges no entry."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (
        "vendor",
        "version",
        "conformance",
        "evidence",
        "state",
        "accepted",
        "expires",
        "plugin sha256",
    ):
        table.add_column(name, no_wrap=name != "plugin sha256", overflow="fold")
    for entry in sorted(entries, key=lambda item: item.accepted):
        # The index alone is read: whether an entry holds is for `verify` to say.
        unexpired = instant(entry.expires) > now
        table.add_row(
            printable(entry.vendor),
            printable(entry.version),
            printable(f"{entry.profile}-{entry.interface}"),
            entry.evidence,
            Text("unexpired", style="green") if unexpired else Text("expired", style="yellow"),
            entry.accepted[:10],
            entry.expires[:10],
            entry.plugin,
        )
    # A digest that is cut off can't be looked for: rather let a narrow terminal break the line.
    console = Console(highlight=False, markup=False, emoji=False, width=max(Console().width, 160))
    console.print(table if entries else "no entries")


def show_verification(results: Mapping[str, Decision]) -> None:
    """One line per entry, with the reasons against it, or what of it could not be checked."""
    console = Console(highlight=False, markup=False, emoji=False)
    for plugin, decision in results.items():
        state = Text("bad ", style="bold red") if decision.reasons else Text("good", style="green")
        console.print(state, plugin, soft_wrap=True)
        _show_reasons(console, (*decision.reasons, *decision.unchecked))
    bad = sum(bool(decision.reasons) for decision in results.values())
    console.print(f"entries: {len(results)}, bad: {bad}")


def _show_reasons(console: Console, reasons: tuple[Reason, ...]) -> None:
    """One line each, however narrow the terminal: a digest that is broken can't be looked for."""
    width = max((len(reason.code) for reason in reasons), default=0)
    for reason in reasons:
        line = Text.assemble("  ", (f"{reason.code:<{width}}", "bold"), "  ", printable(reason.text))
        console.print(line, soft_wrap=True)


def _reasons(number: int) -> str:
    return "1 reason" if number == 1 else f"{number} reasons"
