"""Forged reports, continued: suite, subject, vendor, documents and signatures. See `test_forged`."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from torch_fl_reports.attestation import PAYLOAD_TYPE, sign_payload
from torch_fl_reports.canonical import canonical

from .conftest import Desk, statement
from .forging import assert_refused, operator_row

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


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\n", "\t", "\x9b31m", "\N{RIGHT-TO-LEFT OVERRIDE}"])
def test_what_does_not_show_in_a_name(desk: Desk, plain: dict[str, Any], hidden: str) -> None:
    file = plain["subject"]["files"][0]
    name, file["name"] = file["name"], f"lib{hidden}.so"
    assert_refused(desk.submit(plain), "unsafe-name")
    file["name"] = name
    plain["subject"]["version"] = f"1{hidden}2"
    assert_refused(desk.submit(plain), "unsafe-name")


def test_an_empty_file(desk: Desk, plain: dict[str, Any]) -> None:
    plain["subject"]["files"][0]["size"] = 0
    assert_refused(desk.submit(plain), "schema")


def test_another_file_in_front_of_the_plugin(desk: Desk, plain: dict[str, Any]) -> None:
    """The entry would be filed under its digest, and the plugin could have as many entries as there are such files."""
    other = hashlib.sha256(b"text").hexdigest()
    plain["subject"]["files"].insert(0, {"name": "a.txt", "sha256": other, "size": 4})
    desk.plugins.add(other)
    assert_refused(desk.submit(plain), "subject")


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
