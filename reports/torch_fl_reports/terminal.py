"""The report in a terminal: what a person who certifies reads first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from torch_fl_spec.printable import printable
from torch_fl_spec.replay import replay_command

from torch_fl_reports.model import Report, Row
from torch_fl_reports.summary import Summary, duration_text, ratio_text, summarise

MAX_FAILURES = 12


def show(report: Report, folder: Path, console: Console) -> None:
    """Print verdict, identity, chapters and the first failures. folder: where the report's files lie."""
    summary = summarise(report)
    console.print(_head(report, summary))
    for name, value in _facts(report, summary):
        # Not wrapped: a digest or a path that is broken can't be looked for.
        console.print(Text.assemble((f"{name:<{len('worst err/T')}}  ", "dim"), printable(value)), soft_wrap=True)
    console.print()
    console.print(_chapters(summary))
    for row in summary.failing[:MAX_FAILURES]:
        console.print(_failure(row, folder), soft_wrap=True)
    if len(summary.failing) > MAX_FAILURES:
        console.print(f"... and {len(summary.failing) - MAX_FAILURES} more failing rows (report.html has all)")


def _head(report: Report, summary: Summary) -> RenderableType:
    colour = "green" if summary.certified else "red"
    subject = report.subject
    lines = [Text(summary.headline, style=f"bold {colour}")]
    lines += [Text(f"  {printable(reason)}") for reason in summary.reasons]
    title = Text(printable(f"{subject.vendor} {subject.version} · Torch-FL conformance"))
    return Panel(Group(*lines), title=title, title_align="left", border_style=colour)


def _facts(report: Report, summary: Summary) -> Iterator[tuple[str, str]]:
    plugin = report.subject.files[0]
    yield "plugin", f"{plugin.name}, sha256 {plugin.sha256}"
    for library in report.subject.libraries:
        yield "loads", f"{library.path}, sha256 {library.sha256}"
    yield "suite", f"{report.suite.version}, sources {report.suite.source_digest[:16]}…"
    yield "run", f"{report.run.effort}, seed {report.run.seed}, {report.run.end}"
    speed = f"{summary.cases_per_second:,.0f} a second"
    yield "cases", f"{report.run.cases:,} in {duration_text(report.run.seconds)}, {speed}"
    yield "worst err/T", _worst(summary)


def _worst(summary: Summary) -> str:
    if summary.worst is None:
        return "every row that passed is exact"
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


def _failure(row: Row, folder: Path) -> RenderableType:
    lines = [Text.assemble((row.verdict, "bold red"), "  ", (printable(row.id), "bold"))]
    if row.violates:
        lines.append(Text(f"  may violate  {', '.join(row.violates)}"))
    lines += [Text(f"  {line}") for line in printable(row.message or "").splitlines()]
    if row.reproducer is not None:
        lines.append(Text(f"  reproduce    {printable(replay_command(folder / row.reproducer))}", style="dim"))
    return Group(Text(), *lines)
