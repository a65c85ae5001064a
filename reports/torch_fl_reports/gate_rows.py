"""The gate on a report's rows: the closed set, the sums, and verdicts that their own evidence contradicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch_fl_spec.rows import ExpectedRow

from torch_fl_reports import totals
from torch_fl_reports.canonical import report_digest
from torch_fl_reports.closed_set import must_claim
from torch_fl_reports.gate_reason import Reason, some
from torch_fl_reports.model import OperatorRow, Report, Row


def closed(report: Report, expected: list[ExpectedRow]) -> Iterator[Reason]:
    """The rows are exactly those that profile and declarations call for, each what its id says."""
    seen = Counter(row.id for row in report.rows)
    wanted = {row.id: row for row in expected}
    doubled = [name for name, times in seen.items() if times > 1]
    if doubled:
        yield Reason("row-doubled", f"rows that occur more than once: {some(doubled)}")
    missing = [name for name in wanted if name not in seen]
    if missing:
        yield Reason("row-missing", f"{len(missing)} rows are missing: {some(missing)}")
    surplus = [name for name in seen if name not in wanted]
    if surplus:
        yield Reason("row-extra", f"rows that this plugin and profile do not have: {some(surplus)}")
    for row in report.rows:
        if row.id in wanted:
            yield from _against(row, wanted[row.id])


def _against(row: Row, wanted: ExpectedRow) -> Iterator[Reason]:
    if (row.kind, row.chapter, row.extra) != (wanted.kind, wanted.chapter, wanted.extra):
        yield Reason("row-altered", f"{row.id} is filed as another kind of row than it is")
    if isinstance(row, OperatorRow) and row.tier != wanted.tier:
        yield Reason("tier", f"{row.id} is labelled {row.tier}, its kernel declares {wanted.tier}")
    if row.verdict == "not-claimed" and not wanted.may_be_not_claimed:
        yield Reason("not-claimed", f"{row.id} may not stay unclaimed in this profile")
    unclaimed = isinstance(row, OperatorRow) and row.variant == "-"
    if unclaimed and row.verdict != "not-claimed":
        yield Reason("not-claimed", f"{row.id} has verdict {row.verdict}, but no kernel claims it")


def sums(report: Report, expected: list[ExpectedRow]) -> Iterator[Reason]:
    """Totals and the report's id, made again from what they sum up."""
    computed = totals.compute(report.run, report.rows, must_claim(expected))
    if computed != report.totals:
        yield Reason("totals", "the totals are not those of the rows")
    if report.run.cases != computed.cases:
        yield Reason("totals", f"the run counts {report.run.cases} cases, its rows {computed.cases}")
    if report_digest(report.plain()) != report.report_id:
        yield Reason("report-id", "the report was changed after it was written")


def evidence(report: Report) -> Iterator[Reason]:
    """Every verdict lets the report through, and no passing row carries evidence against itself."""
    harmful = [row for row in report.rows if row.verdict not in totals.HARMLESS]
    for verdict in dict.fromkeys(row.verdict for row in harmful):
        names = [row.id for row in harmful if row.verdict == verdict]
        if len(names) == 1:
            yield Reason("verdict", f"{names[0]} has verdict {verdict}")
        else:
            yield Reason("verdict", f"{len(names)} rows have verdict {verdict}: {some(names, 3)}")
    for row in report.rows:
        if row.verdict == "pass":
            yield from _passing(row)
    missed = [control.name for control in report.controls if control.seen != control.expected]
    if missed:
        yield Reason("control", f"the harness did not see what is known of these defective plugins: {some(missed)}")


def _passing(row: Row) -> Iterator[Reason]:
    if row.violates or row.reproducer is not None or row.case is not None or row.message is not None:
        yield Reason("contradiction", f"{row.id} passes, yet carries a failing case")
    if row.cases == 0:
        yield Reason("no-cases", f"{row.id} passes without a single case")
    elif row.seconds == 0:
        yield Reason("time", f"{row.id} passes with {row.cases} cases in no time at all")
    if row.worst is not None:
        ratio = row.worst.err_over_t
        if isinstance(ratio, str) or ratio > 1:
            yield Reason("over-budget", f"{row.id} passes with a worst error of {ratio} budgets")
    if row.labels is not None:
        missed = [label for label in row.labels.required if not row.labels.hit.get(label)]
        if missed:
            yield Reason("labels", f"{row.id} passes though its draws missed {some(missed)}")
