"""The end of a run on the terminal: failing rows one line each, counts, verdict, where the report is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from torch_fl_reports.model import Report, Row
from torch_fl_reports.summary import summarise
from torch_fl_spec.printable import printable
from torch_fl_spec.replay import replay_command

from torch_fl_conformance.completion import NO_VERDICT

_GRAVITY = ("crash", "hang", "fail", "no-power", "error", "collateral")
_MOST = 40  # failing rows shown; the report has them all


def show(report: Report, folder: Path, write_line: Callable[[str], None]) -> None:
    """Write the summary, line by line."""

    def write(line: str) -> None:
        write_line(printable(line))

    summary = summarise(report)
    write("")
    unclaimed = [row for row in summary.failing if row.verdict == "not-claimed"]
    failing = sorted((row for row in summary.failing if row.verdict != "not-claimed"), key=_gravity)
    without = [row for row in failing if row.message == NO_VERDICT]
    shown = [row for row in failing if row.message != NO_VERDICT]
    for row in shown[:_MOST]:
        write(_line(row, folder))
    if len(shown) > _MOST:
        write(f"... and {len(shown) - _MOST} more, see the report")
    if without:
        write(f"ERROR       {_first_of(without)}: {NO_VERDICT}")
    if unclaimed:
        write(f"NOT-CLAIMED {_first_of(unclaimed)}: required by the profile")
    if summary.failing:
        write("")
    verdicts = Counter(row.verdict for row in report.rows)
    write("rows     " + (", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) or "none"))
    write(f"cases    {report.run.cases} in {report.run.seconds:.1f} s, {summary.cases_per_second:.0f} a second")
    write(f"seed     {report.run.seed}")
    write(f"report   {folder / 'report.html'}")
    subject = f"{report.subject.vendor} {report.subject.version}"
    write(f"verdict  {subject}: {summary.headline}" + (f" ({'; '.join(summary.reasons)})" if summary.reasons else ""))


def _first_of(rows: list[Row]) -> str:
    return rows[0].id + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")


def _gravity(row: Row) -> int:
    return _GRAVITY.index(row.verdict) if row.verdict in _GRAVITY else len(_GRAVITY)


def _line(row: Row, folder: Path) -> str:
    message = (row.message or "").partition("\n")[0]
    line = f"{row.verdict.upper():<11} {row.id}  {message}"
    return f"{line}  [{replay_command(folder / row.reproducer)}]" if row.reproducer else line
