"""Forged reports, continued: waivers, and the honest use of them. See `test_forged`."""

from __future__ import annotations

from typing import Any

from torch_fl_reports.model import Waiver
from torch_fl_reports.policy import Policy

from .conftest import Desk
from .forging import assert_refused, operator_row, rule_row, with_totals


def _waived(desk: Desk, report: dict[str, Any], row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Waive a row, with a waiver that the registry's policy holds."""
    waiver: dict[str, Any] = {
        "id": "W-1",
        "kind": "erratum",
        "rows": [row["id"]],
        "vendor": "acme",
        "expires": "2026-12-01T00:00:00Z",
        "text": "the divider of stepping B0 rounds down",
        **fields,
    }
    waiver = {key: value for key, value in waiver.items() if value is not None}
    row.update(verdict="waived", waiver=waiver["id"])
    report["waivers"] = [waiver]
    _allow(desk, waiver)
    return with_totals(report)


def _allow(desk: Desk, waiver: dict[str, Any]) -> None:
    desk.registry.policy = Policy.model_validate(
        desk.registry.policy.model_dump(by_alias=True) | {"waivers": [Waiver.model_validate(waiver).model_dump()]}
    )


def test_a_valid_waiver_is_accepted(desk: Desk, plain: dict[str, Any]) -> None:
    assert desk.submit(_waived(desk, plain, operator_row(plain))).reasons == ()


def test_a_suite_defect_excuses_any_row(desk: Desk, plain: dict[str, Any]) -> None:
    report = _waived(desk, plain, rule_row(plain), kind="suite-defect", vendor=None)
    assert desk.submit(report).reasons == ()


def test_waiver_of_the_vendors_own_making(desk: Desk, plain: dict[str, Any]) -> None:
    report = _waived(desk, plain, operator_row(plain))
    report["waivers"][0]["expires"] = "2026-12-31T00:00:00Z"
    assert_refused(desk.submit(report), "waiver-unknown")


def test_waived_row_without_a_waiver(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "waived"
    assert_refused(desk.submit(with_totals(plain)), "waiver-unknown")


def test_expired_waiver(desk: Desk, plain: dict[str, Any]) -> None:
    report = _waived(desk, plain, operator_row(plain), expires="2026-07-31T00:00:00Z")
    assert_refused(desk.submit(report), "waiver-expired")


def test_waiver_of_another_vendor(desk: Desk, plain: dict[str, Any]) -> None:
    assert_refused(desk.submit(_waived(desk, plain, operator_row(plain), vendor="bolt")), "waiver-vendor")


def test_erratum_in_a_stream_row(desk: Desk, plain: dict[str, Any]) -> None:
    report = _waived(desk, plain, rule_row(plain, "stream"))
    assert_refused(desk.submit(report), "waiver-forbidden")


def test_erratum_in_an_exact_row(desk: Desk, plain: dict[str, Any]) -> None:
    row = next(row for row in plain["rows"] if row.get("tier") == "EXACT")
    assert_refused(desk.submit(_waived(desk, plain, row)), "waiver-forbidden")


def test_waiver_for_other_rows(desk: Desk, plain: dict[str, Any]) -> None:
    report = _waived(desk, plain, operator_row(plain), rows=["aten::bmm/r1/generic/f32"])
    assert_refused(desk.submit(report), "waiver-rows")


def test_erratum_for_too_many_rows(desk: Desk, plain: dict[str, Any]) -> None:
    rows = [row["id"] for row in plain["rows"] if row.get("op") == "aten::mm"][:4]
    assert_refused(desk.submit(_waived(desk, plain, operator_row(plain), rows=rows)), "waiver-rows")
