"""The gate as a function: pure, complete in its reasons, and of one mind with `torch_fl_reports.totals`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from torch_fl_reports.attestation import sign
from torch_fl_reports.gate import Setting, judge
from torch_fl_reports.model import Report
from torch_fl_reports.totals import HARMLESS, ORDER, compute, decide
from torch_fl_spec.registry import load_registry

from .conftest import NOW, Desk


def setting(desk: Desk, **fields: Any) -> Setting:
    values: dict[str, Any] = {
        "policy": desk.registry.policy,
        "keys": desk.registry.keys(),
        "now": NOW,
        "installed_registry": load_registry().digest,
    }
    return Setting(**values | fields)


def test_same_input_same_answer_and_nothing_touched(desk: Desk, honest_report: Report) -> None:
    envelope = sign(honest_report, desk.signer)
    before = desk.tree()
    answers = [judge(envelope, desk.plugins, setting(desk)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].accepted
    assert desk.tree() == before


def test_all_reasons_are_given_at_once(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["in_process"] = True
    plain["suite"]["source_digest"] = "5" * 64
    plain["rows"].pop()
    codes = {reason.code for reason in desk.submit(plain).reasons}
    assert {"in-process", "suite-digest", "row-missing", "totals"} <= codes


def test_rows_of_other_operators_are_not_guessed_at(desk: Desk, honest_report: Report) -> None:
    """An installation with another operator registry cannot know the closed set, so it says only that."""
    decision = judge(sign(honest_report, desk.signer), desk.plugins, setting(desk, installed_registry="5" * 64))
    assert [reason.code for reason in decision.reasons] == ["registry-digest"]


@pytest.mark.parametrize("verdict", ORDER)
def test_a_verdict_lets_through_or_does_not(honest_report: Report, verdict: str) -> None:
    rows = [honest_report.rows[0].model_copy(update={"verdict": verdict}), *honest_report.rows[1:]]
    assert decide(honest_report.run, rows).certified == (verdict in HARMLESS)
    unclaimed = decide(honest_report.run, rows, {rows[0].id})
    assert unclaimed.certified == (verdict in ("pass", "waived"))


def test_an_empty_run_is_not_certified(honest_report: Report) -> None:
    assert decide(honest_report.run, []).reasons == ("no row ran",)


def test_totals_are_of_the_rows(honest_report: Report) -> None:
    rows = copy.copy(honest_report.rows)
    sums = compute(honest_report.run, rows)
    assert sums.rows == sum(sums.verdicts.values()) == len(rows)
    assert sums.cases == honest_report.run.cases
