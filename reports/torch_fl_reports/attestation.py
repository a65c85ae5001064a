"""A report as evidence: an in-toto Statement v1 about the plugin's bytes, in a signed DSSE envelope."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import CryptoSigner, Signature  # type: ignore[attr-defined]

from torch_fl_reports.canonical import MalformedJson, canonical, read_json
from torch_fl_reports.keys import TrustedKey
from torch_fl_reports.model import FileName, Part, Report, Sha256

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://torch-fl.org/fl-conformance/v1"


class Digests(Part):
    """in-toto's DigestSet, of which one algorithm is used."""

    sha256: Sha256


class StatementSubject(Part):
    """One file of the plugin."""

    name: FileName
    digest: Digests


class Predicate(Part):
    """What is stated: the whole report, and how strong the evidence is."""

    evidence: Literal["self-run"]
    report: Report


class Statement(Part):
    """in-toto Statement v1 with our predicate."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[StatementSubject] = Field(min_length=1)
    predicate_type: Literal["https://torch-fl.org/fl-conformance/v1"] = Field(alias="predicateType")
    predicate: Predicate


class EnvelopeSignature(Part):
    """One signature of a DSSE envelope. `keyid` is a hint and decides nothing."""

    keyid: str
    sig: str


class EnvelopeDocument(Part):
    """A DSSE envelope as JSON."""

    payload: str
    payload_type: str = Field(alias="payloadType")
    signatures: list[EnvelopeSignature]


@dataclass(frozen=True)
class Opened:
    """A verified envelope: its payload and the key that signed it."""

    payload: bytes
    signer: TrustedKey


class Refused(Exception):
    """An envelope that cannot be relied on. `code` is the gate's reason code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def statement_of(report: Report) -> dict[str, Any]:
    """The statement about a report's subject, as JSON data."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": file.name, "digest": {"sha256": file.sha256}} for file in report.subject.files],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"evidence": "self-run", "report": report.plain()},
    }


def sign(report: Report, signer: CryptoSigner) -> bytes:
    """The signed envelope of a report, as JSON text."""
    return sign_payload(canonical(statement_of(report)), signer)


def sign_payload(payload: bytes, signer: CryptoSigner, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """A DSSE envelope around any payload, as JSON text."""
    envelope = Envelope(payload, payload_type, {})
    envelope.sign(signer)
    return envelope_text(envelope.to_dict())


def envelope_text(data: dict[str, Any]) -> bytes:
    """The one spelling in which envelopes are stored."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def is_envelope(data: bytes) -> bool:
    """Whether a file holds a DSSE envelope rather than a report."""
    try:
        document = read_json(data)
    except MalformedJson:
        return False
    return isinstance(document, dict) and "payload" in document


def open_envelope(data: bytes, keys: Sequence[TrustedKey]) -> Opened:
    """Verify an envelope against every trusted key. Raises Refused.

    The keyid in the envelope never chooses the key: an attacker writes it. It must only not lie.
    """
    document = _document(data)
    if document.payload_type != PAYLOAD_TYPE:
        raise Refused("payload-type", f"the payload type is {document.payload_type!r}, not {PAYLOAD_TYPE!r}")
    if len(document.signatures) != 1:
        raise Refused("signature-count", f"the envelope has {len(document.signatures)} signatures, not one")
    claimed = document.signatures[0]
    payload, signature = _decode(document.payload, "payload"), _decode(claimed.sig, "signature")
    pae = Envelope(payload, document.payload_type, {}).pae()
    for trusted in keys:
        try:
            trusted.key.verify_signature(Signature(trusted.key.keyid, signature.hex()), pae)
        except UnverifiedSignatureError:
            continue
        if claimed.keyid != trusted.key.keyid:
            raise Refused("keyid", f"signed by key {trusted.key.keyid}, but the envelope names {claimed.keyid}")
        return Opened(payload, trusted)
    if claimed.keyid in {trusted.key.keyid for trusted in keys}:
        raise Refused("bad-signature", f"the signature does not verify with the named key {claimed.keyid}")
    raise Refused("untrusted-key", f"no key of this registry made the signature (it names {claimed.keyid})")


def _document(data: bytes) -> EnvelopeDocument:
    try:
        return EnvelopeDocument.model_validate(read_json(data))
    except MalformedJson as error:
        raise Refused(error.code, str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused("envelope", f"this is no DSSE envelope: {where}: {first['msg']}") from None


def _decode(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise Refused("envelope", f"the {what} is not base64: {error}") from None
