"""What the tests of forged reports share."""

from __future__ import annotations

from typing import Any

from torch_fl_reports.gate import Decision
from torch_fl_reports.model import Report
from torch_fl_reports.totals import compute


def assert_refused(decision: Decision, *codes: str) -> None:
    """Refused for exactly these reasons, each with words."""
    assert {reason.code for reason in decision.reasons} == set(codes), decision.reasons
    assert not decision.accepted
    assert all(len(reason.text) > 10 for reason in decision.reasons)


def with_totals(report: dict[str, Any]) -> dict[str, Any]:
    """Totals as they belong to the rows."""
    report["run"]["cases"] = sum(row["cases"] for row in report["rows"])
    valid = Report.model_validate(report)
    report["totals"] = compute(valid.run, valid.rows).model_dump(mode="json")
    return report


def rule_row(report: dict[str, Any], chapter: str = "memory") -> dict[str, Any]:
    return next(row for row in report["rows"] if row["kind"] == "rule" and row["chapter"] == chapter)


def operator_row(report: dict[str, Any], row_id: str = "aten::mm/r1/generic/f32") -> dict[str, Any]:
    return next(row for row in report["rows"] if row["id"] == row_id)
