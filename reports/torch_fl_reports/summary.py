"""What a reader wants to know first, computed once for the page and for the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch_fl_spec import INTERFACE
from torch_fl_spec.registry import load_registry
from torch_fl_spec.rows import ExpectedRow

from torch_fl_reports import totals
from torch_fl_reports.canonical import report_digest
from torch_fl_reports.closed_set import closed_set, must_claim
from torch_fl_reports.gate_rows import closed
from torch_fl_reports.gate_waivers import covered
from torch_fl_reports.model import OperatorRow, Report, Row, Verdict


@dataclass(frozen=True)
class Chapter:
    """Sums over one chapter's rows."""

    name: str
    rows: int
    cases: int
    seconds: float
    verdicts: dict[Verdict, int]
    worst: float | str | None  # largest err/T; None where every row is exact


@dataclass(frozen=True)
class Summary:
    """The report in a few lines. `headline` is the verdict as a sentence."""

    certified: bool
    headline: str
    reasons: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    failing: tuple[Row, ...]
    unclaimed: tuple[OperatorRow, ...]
    waived: tuple[Row, ...]
    worst: tuple[str, float | str] | None  # (row id, err/T) over all rows
    cases_per_second: float


def summarise(report: Report) -> Summary:
    """Everything recomputed from the rows; the report's own totals are not read.

    A report that was changed after it was written, or that lacks a row, has passed nothing.
    """
    expected = closed_set(report.run.profile, report.declarations)
    required = must_claim(expected)
    reasons = totals.decide(report.run, report.rows, required).reasons
    if report.interface != INTERFACE:
        reasons = (*reasons, f"it is about interface {report.interface}, this suite about {INTERFACE}")
    if report_digest(report.plain()) != report.report_id:
        reasons = (*reasons, "the report was changed after it was written")
    reasons = (*reasons, *_against_the_set(report, expected))
    level = f"{report.run.profile} {report.interface}"
    headline = f"Did not pass {level}" if reasons else f"Passed {level}"
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        groups[row.chapter].append(row)
    return Summary(
        certified=not reasons,
        headline=headline,
        reasons=reasons,
        chapters=tuple(_chapter(name, groups[name]) for name in sorted(groups, key=_place)),
        failing=_failing(report.rows, required),
        unclaimed=tuple(row for row in report.rows if isinstance(row, OperatorRow) and row.verdict == "not-claimed"),
        waived=tuple(row for row in report.rows if row.verdict == "waived"),
        worst=_worst(report.rows),
        cases_per_second=report.run.cases / report.run.seconds if report.run.seconds else 0.0,
    )


def _against_the_set(report: Report, expected: list[ExpectedRow]) -> Iterator[str]:
    """What keeps the rows of a whole run from being those that the plugin must show."""
    stated = {waiver.id: waiver for waiver in report.waivers}
    for row in report.rows:
        if row.verdict == "waived":
            yield from (reason.text for reason in covered(row, stated))
    if report.suite.registry_digest != load_registry().digest:
        yield "it is about other operators than are installed here, so which rows it must hold can't be computed"
    elif not (report.run.partial or report.run.interrupted):
        # That a required row stays unclaimed has been said, once for all rows.
        yield from (reason.text for reason in closed(report, expected) if reason.code != "not-claimed")


_CHAPTERS = (
    "load",
    "version",
    "error",
    "thread",
    "memory",
    "stream",
    "copy",
    "kernel",
    "random",
    "process",
    "extension",
    "framework",
)


def _place(chapter: str) -> tuple[int, str]:
    """Sort key: the order of SPEC.md, then by name; `kernel.reduction` stands with `kernel`."""
    first = chapter.split(".")[0]
    return (_CHAPTERS.index(first) if first in _CHAPTERS else len(_CHAPTERS)), chapter


def _chapter(name: str, rows: list[Row]) -> Chapter:
    worst = _worst(rows)
    return Chapter(
        name=name,
        rows=len(rows),
        cases=sum(row.cases for row in rows),
        seconds=sum(row.seconds for row in rows),
        verdicts=totals.count(rows),
        worst=None if worst is None else worst[1],
    )


def _failing(rows: list[Row], required: Collection[str]) -> tuple[Row, ...]:
    """Rows that stand in the way, shown defects first, the suite's own troubles last."""
    found = [
        row
        for row in rows
        if row.verdict not in totals.HARMLESS or (row.verdict == "not-claimed" and row.id in required)
    ]
    return tuple(sorted(found, key=lambda row: row.verdict in totals.SUITE_TROUBLE))


def _worst(rows: list[Row]) -> tuple[str, float | str] | None:
    """The row with the largest err/T above 0; words ("inf", "nan") beat numbers."""
    measured = [(row.id, row.worst.err_over_t) for row in rows if row.worst is not None]
    measured = [(name, ratio) for name, ratio in measured if ratio != 0]
    return max(measured, key=lambda item: float("inf") if isinstance(item[1], str) else item[1], default=None)


def ratio_text(ratio: float | str | None) -> str:
    """err/T for people: three digits, a dash where every row is exact."""
    if ratio is None:
        return "\N{EN DASH}"
    return ratio if isinstance(ratio, str) else f"{ratio:.3g}"


def duration_text(seconds: float) -> str:
    """Seconds for people: `0.8 s`, `42 s`, `6 min 03 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
