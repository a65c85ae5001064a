"""Sums and the decision, recomputed from the rows each time somebody needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch_fl_reports.model import Row, Run, Totals, Verdict

ORDER: tuple[Verdict, ...] = (
    "pass",
    "fail",
    "crash",
    "hang",
    "no-power",
    "error",
    "collateral",
    "not-claimed",
    "waived",
)
"""All verdicts in the order in which they are shown."""

SUITE_TROUBLE: frozenset[Verdict] = frozenset({"error", "collateral"})
"""Verdicts that say nothing about the row's own subject: no certificate, but no defect shown either."""

HARMLESS: frozenset[Verdict] = frozenset({"pass", "not-claimed", "waived"})
"""Verdicts that do not by themselves keep a run from being certified."""

_WORDS: dict[Verdict, str] = {
    "fail": "failed",
    "crash": "crashed the driver process",
    "hang": "hung",
    "no-power": "had no power: what they drew could not have shown a defect",
    "error": "met an error of the suite itself",
    "collateral": "could not run because of another row's failure",
}


@dataclass(frozen=True)
class Decision:
    """Whether a run earns its certificate, and every reason why not."""

    certified: bool
    reasons: tuple[str, ...]


def count(rows: Iterable[Row]) -> dict[Verdict, int]:
    """Rows per verdict, verdicts that do not occur absent."""
    seen = Counter(row.verdict for row in rows)
    return {verdict: seen[verdict] for verdict in ORDER if seen[verdict]}


def decide(run: Run, rows: list[Row], must_claim: Collection[str] = ()) -> Decision:
    """Judge a run by its own rows.

    `must_claim`: ids of rows that the profile does not let a plugin leave unclaimed. Completeness against
    the closed set and the validity of waivers are the gate's part.
    """
    reasons = []
    if run.in_process:
        reasons.append("the plugin ran inside the judge's process")
    if run.interrupted:
        reasons.append("the run was interrupted")
    elif run.partial:
        reasons.append("only a selection of the rows ran")
    if not rows:
        reasons.append("no row ran")
    bad = {verdict: number for verdict, number in count(rows).items() if verdict not in HARMLESS}
    reasons.extend(f"{number} {_rows(number)} {_WORDS[verdict]}" for verdict, number in bad.items())
    required = [row.id for row in rows if row.verdict == "not-claimed" and row.id in must_claim]
    if required:
        reasons.append(f"{len(required)} {_rows(len(required))} not claimed though the profile requires them")
    if run.exit != 0 and not reasons:
        reasons.append(f"the run ended with exit status {run.exit}")
    return Decision(not reasons, tuple(reasons))


def compute(run: Run, rows: list[Row], must_claim: Collection[str] = ()) -> Totals:
    """The totals that belong to these rows."""
    return Totals(
        rows=len(rows),
        cases=sum(row.cases for row in rows),
        verdicts=count(rows),
        certified=decide(run, rows, must_claim).certified,
    )


def _rows(number: int) -> str:
    return "row" if number == 1 else "rows"
