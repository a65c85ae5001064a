"""The report in a terminal: what a person who certifies reads first."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from torch_fl_spec.printable import printable

from torch_fl_reports.model import Report, Row
from torch_fl_reports.summary import Summary, duration_text, ratio_text, summarise

MAX_FAILURES = 12


def show(report: Report, console: Console) -> None:
    """Print verdict, identity, chapters and the first failures."""
    summary = summarise(report)
    console.print(_head(report, summary))
    console.print(_chapters(summary))
    for row in summary.failing[:MAX_FAILURES]:
        console.print(_failure(row))
    if len(summary.failing) > MAX_FAILURES:
        console.print(f"... and {len(summary.failing) - MAX_FAILURES} more failing rows (report.html has all)")


def _head(report: Report, summary: Summary) -> RenderableType:
    colour = "green" if summary.certified else "red"
    subject = report.subject
    lines = [Text(summary.headline, style=f"bold {colour}")]
    lines += [Text(f"  {printable(reason)}") for reason in summary.reasons]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("plugin", f"{subject.files[0].name}, sha256 {subject.files[0].sha256}")
    for library in subject.libraries:
        facts.add_row("loads", printable(f"{library.path}, sha256 {library.sha256}"))
    facts.add_row("suite", f"{report.suite.version}, sources {report.suite.source_digest[:16]}…")
    facts.add_row("run", f"{report.run.effort}, seed {report.run.seed}, {report.run.end}")
    speed = f"{summary.cases_per_second:,.0f} a second"
    facts.add_row("cases", f"{report.run.cases:,} in {duration_text(report.run.seconds)}, {speed}")
    facts.add_row("worst err/T", _worst(summary))
    title = Text(printable(f"{subject.vendor} {subject.version} · Torch-FL conformance"))
    return Panel(Group(*lines, Text(), facts), title=title, title_align="left", border_style=colour)


def _worst(summary: Summary) -> str:
    if summary.worst is None:
        return "every row is exact"
    return f"{ratio_text(summary.worst[1])} in {summary.worst[0]}"


def _chapters(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("chapter")
    for name in ("rows", "passed", "other", "cases", "worst err/T", "time"):
        table.add_column(name, justify="right")
    for chapter in summary.chapters:
        others = [f"{number} {verdict}" for verdict, number in chapter.verdicts.items() if verdict != "pass"]
        table.add_row(
            chapter.name,
            str(chapter.rows),
            str(chapter.verdicts.get("pass", 0)),
            ", ".join(others),
            f"{chapter.cases:,}",
            ratio_text(chapter.worst),
            duration_text(chapter.seconds),
        )
    return table


def _failure(row: Row) -> RenderableType:
    lines = [Text.assemble((row.verdict, "bold red"), "  ", (printable(row.id), "bold"))]
    if row.violates:
        lines.append(Text(f"  may violate {', '.join(row.violates)}"))
    lines += [Text(f"  {line}") for line in printable(row.message or "").splitlines()]
    if row.reproducer is not None:
        lines.append(Text(f"  reproduce: python {row.reproducer}/repro.py", style="dim"))
    return Group(Text(), *lines)
