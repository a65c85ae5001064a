"""Forged reports: one kind a test, each refused for its own reason, the registry unchanged (see `Desk`).

The forger of these tests is careful: totals and the report's id are made anew and everything is signed with
the vendor's trusted key, unless the forgery is about just that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from torch_fl_reports.model import Report

from . import honest
from .conftest import Desk
from .forging import assert_refused, operator_row, rule_row, with_totals


def test_the_honest_report_is_accepted(desk: Desk, plain: dict[str, Any]) -> None:
    """Without this, every test below could pass for the wrong reason."""
    decision = desk.submit(plain)
    assert decision.reasons == ()
    assert decision.accepted


# Rows and verdicts


def test_failing_row(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "fail"
    assert_refused(desk.submit(with_totals(plain)), "verdict")


def test_verdict_edited_without_a_new_id(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain).update(verdict="fail", message="3 of 7 elements are wrong")
    failed = Report.model_validate(with_totals(plain))
    edited = failed.plain() | {"report_id": failed.report_id}
    operator_row(edited)["verdict"] = "pass"
    assert_refused(desk.submit(with_totals(edited), consistent=False), "report-id", "contradiction")


def test_verdict_edited_but_not_the_totals(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "fail"
    with_totals(plain)
    operator_row(plain)["verdict"] = "pass"
    assert_refused(desk.submit(plain), "totals")


def test_verdict_edited_but_not_its_failing_case(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain).update(violates=["FL-KERNEL-010"])
    assert_refused(desk.submit(plain), "contradiction")


@pytest.mark.parametrize("carried", [{"message": "3 of 7 elements are wrong"}, {"case": {"got": "2"}}])
def test_verdict_edited_but_not_what_was_seen(desk: Desk, plain: dict[str, Any], carried: dict[str, Any]) -> None:
    operator_row(plain).update(carried)
    assert_refused(desk.submit(plain), "contradiction")


def test_a_defective_plugin_that_passed_beside_it(desk: Desk, plain: dict[str, Any]) -> None:
    plain["controls"] = [{"name": "twin", "sha256": "0" * 64, "expected": "fail", "seen": "pass"}]
    assert_refused(desk.submit(plain), "control")
    plain["controls"][0]["seen"] = "fail"
    assert desk.submit(plain).accepted


def test_totals_edited(desk: Desk, plain: dict[str, Any]) -> None:
    plain["totals"]["cases"] += 1000
    assert_refused(desk.submit(plain), "totals")


def test_case_count_of_the_run_edited(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["cases"] += 1000
    assert_refused(desk.submit(plain), "totals")


def test_row_dropped(desk: Desk, plain: dict[str, Any]) -> None:
    plain["rows"].remove(operator_row(plain))
    assert_refused(desk.submit(with_totals(plain)), "row-missing")


def test_row_added(desk: Desk, plain: dict[str, Any]) -> None:
    row = {**operator_row(plain), "op": "aten::mmm", "id": "aten::mmm/r1/generic/f32"}
    plain["rows"].append(row)
    assert_refused(desk.submit(with_totals(plain)), "row-extra")


def test_row_doubled(desk: Desk, plain: dict[str, Any]) -> None:
    plain["rows"].append(operator_row(plain))
    assert_refused(desk.submit(with_totals(plain)), "row-doubled")


def test_row_filed_under_another_chapter(desk: Desk, plain: dict[str, Any]) -> None:
    rule_row(plain)["chapter"] = "copy"
    assert_refused(desk.submit(plain), "row-altered")


def test_claimed_row_called_unclaimed(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "not-claimed"
    assert_refused(desk.submit(with_totals(plain)), "not-claimed", "totals")


def test_unclaimed_row_called_passed(desk: Desk, plain: dict[str, Any]) -> None:
    row = next(row for row in plain["rows"] if row["verdict"] == "not-claimed")
    row.update(verdict="pass", cases=12)
    assert_refused(desk.submit(with_totals(plain)), "not-claimed")


def test_tier_relabelled(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["tier"] = "EXACT"
    assert_refused(desk.submit(plain), "tier")


def test_kernel_table_edited(desk: Desk, plain: dict[str, Any]) -> None:
    kernel = next(item for item in plain["declarations"]["kernels"][0] if item["op"] == "aten::mm")
    kernel["max_ndim"] = 2
    assert_refused(desk.submit(plain), "table-hash")


@pytest.mark.parametrize("devices", [[], [0], [0, 0], [1, 0], [0, 1, 7]])
def test_devices_that_contradict_themselves(desk: Desk, plain: dict[str, Any], devices: list[int]) -> None:
    plain["declarations"]["devices"] = [honest.device(index) for index in devices]
    assert "declarations" in {reason.code for reason in desk.submit(plain).reasons}


@pytest.mark.parametrize("field", ["execution_model", "address_model"])
def test_a_device_of_no_known_kind(desk: Desk, plain: dict[str, Any], field: str) -> None:
    plain["declarations"]["devices"][0][field] = "NONSENSE"
    assert "declarations" in {reason.code for reason in desk.submit(plain).reasons}


def test_case_count_cut_to_nothing(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["cases"] = 0
    assert_refused(desk.submit(with_totals(plain)), "no-cases")


def test_required_label_never_met(desk: Desk, plain: dict[str, Any]) -> None:
    del operator_row(plain)["labels"]["hit"]["tail"]
    assert_refused(desk.submit(plain), "labels")


def test_error_beyond_the_budget(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["worst"]["err_over_t"] = 1.07
    assert_refused(desk.submit(plain), "over-budget")


def test_wrong_class_of_result(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["worst"]["err_over_t"] = "nan"
    assert_refused(desk.submit(plain), "over-budget")


def test_row_without_power(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "no-power"
    assert_refused(desk.submit(with_totals(plain)), "verdict")


# Kind of run


def test_partial_run(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["partial"] = True
    assert_refused(desk.submit(with_totals(plain)), "partial")


def test_interrupted_run(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["interrupted"] = True
    assert_refused(desk.submit(with_totals(plain)), "interrupted")


def test_in_process_run(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["in_process"] = True
    assert_refused(desk.submit(with_totals(plain)), "in-process")


def test_run_that_ended_badly(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["exit"] = 3
    assert_refused(desk.submit(with_totals(plain)), "exit")


def test_clock_ahead(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"] |= {"start": "2027-01-01T00:00:00Z", "end": "2027-01-01T00:01:12Z"}
    assert_refused(desk.submit(plain), "clock-ahead")


def test_end_before_start(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["end"] = "2026-08-01T08:00:00Z"
    assert_refused(desk.submit(plain), "time")


@pytest.mark.parametrize(
    "forged",
    [
        {"start": "0001-01-01T00:00:00Z"},
        {"end": "2026-08-01T09:00:00Z"},
        {"end": "2026-08-01T09:00:00Z", "seconds": 0.0},
        {"seconds": 7.0},
    ],
)
def test_a_run_of_another_length_than_it_says(desk: Desk, plain: dict[str, Any], forged: dict[str, Any]) -> None:
    plain["run"] |= forged
    assert_refused(desk.submit(plain), "time")


def test_cases_in_no_time(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["seconds"] = 0.0
    assert_refused(desk.submit(plain), "time")


def test_a_run_of_no_process(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["workers"] = 0
    assert_refused(desk.submit(plain), "schema")


def test_run_of_long_ago(desk: Desk, plain: dict[str, Any]) -> None:
    desk.now += timedelta(days=366)
    assert_refused(desk.submit(plain), "too-old")
