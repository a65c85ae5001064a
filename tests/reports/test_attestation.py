"""Keys and envelopes: what is signed, and what opens."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from torch_fl_reports.attestation import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    is_envelope,
    open_envelope,
    sign,
    statement_of,
)
from torch_fl_reports.keys import BadKey, TrustedKey, generate, load_public, load_signer
from torch_fl_reports.model import Report

from .conftest import statement


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    private = tmp_path / "acme.key"
    return private, generate(private)


def test_statement_is_in_toto_about_the_plugin(honest_report: Report, pair: tuple[Path, Path]) -> None:
    envelope = json.loads(sign(honest_report, load_signer(pair[0])))
    assert envelope["payloadType"] == PAYLOAD_TYPE == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    file = honest_report.subject.files[0]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": file.name, "digest": {"sha256": file.sha256}}]
    assert statement["predicateType"] == PREDICATE_TYPE == "https://torch-fl.org/fl-conformance/v1"
    assert statement["predicate"] == {"evidence": "self-run", "report": honest_report.plain()}


def test_signature_is_plain_ed25519_over_the_dsse_encoding(honest_report: Report, pair: tuple[Path, Path]) -> None:
    """Checked with nothing but the two specifications, so that any DSSE tool can do it too."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    envelope = json.loads(sign(honest_report, load_signer(pair[0])))
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key = load_pem_public_key(pair[1].read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded)  # type: ignore[union-attr, call-arg]


def test_what_is_signed_opens(honest_report: Report, pair: tuple[Path, Path]) -> None:
    envelope = sign(honest_report, load_signer(pair[0]))
    trusted = TrustedKey("acme", load_public(pair[1].read_bytes(), "key"))
    opened = open_envelope(envelope, [trusted])
    assert opened.signer is trusted
    assert json.loads(opened.payload)["predicate"]["report"] == honest_report.plain()
    assert is_envelope(envelope)
    assert not is_envelope(b"{}")
    assert not is_envelope(b"nonsense")


def test_private_keys_are_private_and_never_replaced(pair: tuple[Path, Path]) -> None:
    private, public = pair
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public.name == "acme.key.pub"
    before = private.read_bytes()
    with pytest.raises(FileExistsError):
        generate(private)
    assert private.read_bytes() == before


def test_keys_of_other_kinds_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="private key; give the public one"):
        load_public(pair[0].read_bytes(), "key")
    with pytest.raises(BadKey, match="no unencrypted private key"):
        load_signer(pair[1])
    with pytest.raises(BadKey, match="no public key in PEM form"):
        load_public(b"hello", "key")
    other = generate_private_key(SECP256R1())
    path = tmp_path / "other.key"
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(BadKey, match="not Ed25519"):
        load_signer(path)
    public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(BadKey, match="not Ed25519"):
        load_public(public, "key")


def test_the_tests_own_statement_is_the_products(honest_report: Report) -> None:
    """`conftest.statement` wraps reports that the model refuses; on good ones it must not differ."""
    assert statement(honest_report.plain()) == statement_of(honest_report)
