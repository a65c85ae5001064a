"""Forged reports: one kind a test, each refused for its own reason, the registry unchanged (see `Desk`).

The forger of these tests is careful: totals and the report's id are made anew and everything is signed with
the vendor's trusted key, unless the forgery is about just that.
"""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch_fl_reports.attestation import PAYLOAD_TYPE, sign_payload
from torch_fl_reports.canonical import canonical
from torch_fl_reports.gate import Decision
from torch_fl_reports.model import Report, Waiver
from torch_fl_reports.policy import Policy
from torch_fl_reports.totals import compute

from .conftest import Desk, statement


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
    assert_refused(desk.submit(with_totals(edited), consistent=False), "report-id")


def test_verdict_edited_but_not_the_totals(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["verdict"] = "fail"
    with_totals(plain)
    operator_row(plain)["verdict"] = "pass"
    assert_refused(desk.submit(plain), "totals")


def test_verdict_edited_but_not_its_failing_case(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain).update(violates=["FL-KERNEL-010"])
    assert_refused(desk.submit(plain), "contradiction")


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
    plain["run"]["end"] = "2027-01-01T00:00:00Z"
    assert_refused(desk.submit(plain), "clock-ahead")


def test_end_before_start(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["end"] = "2026-08-01T08:00:00Z"
    assert_refused(desk.submit(plain), "time")


def test_run_of_long_ago(desk: Desk, plain: dict[str, Any]) -> None:
    desk.now += timedelta(days=366)
    assert_refused(desk.submit(plain), "too-old")


# Suite and interface


def test_unknown_suite(desk: Desk, plain: dict[str, Any]) -> None:
    plain["suite"]["source_digest"] = "5" * 64
    assert_refused(desk.submit(plain), "suite-digest")


def test_other_suite_version(desk: Desk, plain: dict[str, Any]) -> None:
    plain["suite"]["version"] = "9.0.0"
    assert_refused(desk.submit(plain), "suite-version")


def test_other_operator_registry(desk: Desk, plain: dict[str, Any]) -> None:
    plain["suite"]["registry_digest"] = "5" * 64
    assert_refused(desk.submit(plain), "registry-digest")


def test_unknown_header(desk: Desk, plain: dict[str, Any]) -> None:
    plain["abi"]["header_id"] = "5" * 64
    assert_refused(desk.submit(plain), "header-id")


def test_other_interface(desk: Desk, plain: dict[str, Any]) -> None:
    plain["interface"] = "1.0"
    assert_refused(desk.submit(plain), "interface")


# Subject and vendor


def test_other_plugin_handed_in(desk: Desk, plain: dict[str, Any]) -> None:
    desk.plugins = {"5" * 64}
    assert_refused(desk.submit(plain), "plugin-digest")


def test_statement_about_other_bytes(desk: Desk, plain: dict[str, Any]) -> None:
    data = statement(plain)
    data["subject"][0]["digest"]["sha256"] = "5" * 64
    assert_refused(desk.submit_statement(data), "subject")


def test_second_submission_of_the_same_plugin(desk: Desk, plain: dict[str, Any]) -> None:
    assert desk.submit(plain).accepted
    assert_refused(desk.submit(plain), "already-registered")


def test_report_about_another_vendor(desk: Desk, plain: dict[str, Any]) -> None:
    plain["subject"]["vendor"] = "bolt"
    assert_refused(desk.submit(plain), "vendor")


def test_unicode_twin_of_a_vendor_name(desk: Desk, plain: dict[str, Any]) -> None:
    plain["subject"]["vendor"] = "\N{CYRILLIC SMALL LETTER A}cme"
    assert_refused(desk.submit(plain), "vendor-name")


def test_path_traversal_in_a_file_name(desk: Desk, plain: dict[str, Any]) -> None:
    plain["subject"]["files"][0]["name"] = "../../policy.json"
    assert_refused(desk.submit(plain), "unsafe-name")


def test_path_traversal_in_a_reproducer(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["reproducer"] = "reproducers/../../keys"
    assert_refused(desk.submit(plain), "unsafe-name")


def test_path_traversal_in_the_vendor_name(desk: Desk, plain: dict[str, Any]) -> None:
    plain["subject"]["vendor"] = "../acme"
    assert_refused(desk.submit(plain), "vendor-name")


# Documents


def test_unknown_field(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["certified_by"] = "a friend"
    assert_refused(desk.submit(plain), "unknown-field")


def test_unknown_schema_version(desk: Desk, plain: dict[str, Any]) -> None:
    plain["schema"] = "torch-fl-report/v2"
    assert_refused(desk.submit(plain), "schema")


def test_number_as_text(desk: Desk, plain: dict[str, Any]) -> None:
    operator_row(plain)["cases"] = "12"
    plain["report_id"] = "0" * 64
    assert_refused(desk.submit(plain, consistent=False), "schema")


def test_duplicate_key(desk: Desk, plain: dict[str, Any]) -> None:
    """A person reads the first verdict, a lax program the second."""
    text = canonical(statement(plain)).replace(b'"interface":', b'"interface":"2.0","interface":', 1)
    assert_refused(desk.submit_envelope(sign_payload(text, desk.signer)), "duplicate-key")


def test_nan_in_a_number(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["seconds"] = -12345.5
    text = canonical(statement(plain)).replace(b"-12345.5", b"NaN")
    assert_refused(desk.submit_envelope(sign_payload(text, desk.signer)), "not-a-number")


def test_other_predicate_type(desk: Desk, plain: dict[str, Any]) -> None:
    data = statement(plain) | {"predicateType": "https://in-toto.io/attestation/test-result/v0.1"}
    assert_refused(desk.submit_statement(data), "predicate-type")


def test_stronger_evidence_than_a_self_run(desk: Desk, plain: dict[str, Any]) -> None:
    data = statement(plain)
    data["predicate"]["evidence"] = "witnessed"
    assert_refused(desk.submit_statement(data), "evidence")


# Signatures


def test_payload_changed_after_signing(desk: Desk, plain: dict[str, Any]) -> None:
    envelope = json.loads(sign_payload(canonical(statement(plain)), desk.signer))
    payload = base64.b64decode(envelope["payload"]).replace(b'"effort":"quick"', b'"effort":"full"')
    envelope["payload"] = base64.b64encode(payload).decode()
    assert_refused(desk.submit_envelope(json.dumps(envelope).encode()), "bad-signature")


def test_foreign_key(desk: Desk, plain: dict[str, Any], tmp_path: Path) -> None:
    desk.signer = desk.key("stranger", tmp_path, trusted=False)
    assert_refused(desk.submit(plain), "untrusted-key")


def test_key_of_another_vendor(desk: Desk, plain: dict[str, Any], tmp_path: Path) -> None:
    desk.signer = desk.key("bolt", tmp_path)
    assert_refused(desk.submit(plain), "vendor")


def test_foreign_key_under_a_trusted_keyid(desk: Desk, plain: dict[str, Any], tmp_path: Path) -> None:
    trusted = desk.signer.public_key.keyid
    stranger = desk.key("stranger", tmp_path, trusted=False)
    envelope = json.loads(sign_payload(canonical(statement(plain)), stranger))
    envelope["signatures"][0]["keyid"] = trusted
    assert_refused(desk.submit_envelope(json.dumps(envelope).encode()), "bad-signature")


def test_trusted_key_under_another_keyid(desk: Desk, plain: dict[str, Any], tmp_path: Path) -> None:
    other = desk.key("bolt", tmp_path)
    envelope = json.loads(sign_payload(canonical(statement(plain)), desk.signer))
    envelope["signatures"][0]["keyid"] = other.public_key.keyid
    assert_refused(desk.submit_envelope(json.dumps(envelope).encode()), "keyid")


def test_payload_type_signed_otherwise(desk: Desk, plain: dict[str, Any]) -> None:
    envelope = sign_payload(canonical(statement(plain)), desk.signer, "application/json")
    assert_refused(desk.submit_envelope(envelope), "payload-type")


def test_payload_type_changed_after_signing(desk: Desk, plain: dict[str, Any]) -> None:
    """The type is part of what is signed, so it cannot be put right afterwards."""
    envelope = json.loads(sign_payload(canonical(statement(plain)), desk.signer, "application/json"))
    envelope["payloadType"] = PAYLOAD_TYPE
    assert_refused(desk.submit_envelope(json.dumps(envelope).encode()), "bad-signature")


def test_no_signature(desk: Desk, plain: dict[str, Any]) -> None:
    envelope = json.loads(sign_payload(canonical(statement(plain)), desk.signer))
    envelope["signatures"] = []
    assert_refused(desk.submit_envelope(json.dumps(envelope).encode()), "signature-count")


def test_bare_report_instead_of_an_envelope(desk: Desk, plain: dict[str, Any]) -> None:
    assert_refused(desk.submit_envelope(canonical(plain)), "envelope")


# Waivers


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
