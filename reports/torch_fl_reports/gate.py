"""The gate: a pure function of (envelope, plugin digests, policy, keys, time) that answers with every reason.

It trusts nothing that it can compute: totals, the set of rows and the report's id are made again. What it
cannot see from a self-run, it does not claim to see; SPEC.md says so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from torch_fl_spec.rows import ExpectedRow

from torch_fl_reports import gate_rows, gate_run, gate_waivers
from torch_fl_reports.attestation import Opened, Refused, Statement, open_envelope
from torch_fl_reports.canonical import MalformedJson, read_json
from torch_fl_reports.closed_set import closed_set
from torch_fl_reports.gate_reason import Reason
from torch_fl_reports.keys import TrustedKey
from torch_fl_reports.model import Report
from torch_fl_reports.policy import Policy


@dataclass(frozen=True)
class Setting:
    """Everything besides the submission that a decision depends on."""

    policy: Policy
    keys: Sequence[TrustedKey]
    now: datetime  # aware
    installed_registry: str  # digest of the operator registry that expected rows are computed from
    registered: Collection[str] = ()  # sha256 of plugins that already have an entry


@dataclass(frozen=True)
class Decision:
    """Accepted when there is no reason against it. `report` and `signer`: as far as they were read.

    `unchecked`: what an entry, accepted once, could not be judged by again.
    """

    reasons: tuple[Reason, ...]
    report: Report | None = None
    signer: TrustedKey | None = None
    unchecked: tuple[Reason, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether an entry may be written."""
        return not self.reasons and self.report is not None


def judge(envelope: bytes, plugins: Collection[str], setting: Setting) -> Decision:
    """Decide on one submission. `plugins`: sha256 of the files handed in as the product."""
    try:
        opened = open_envelope(envelope, setting.keys)
    except Refused as refusal:
        return Decision((Reason(refusal.code, str(refusal)),))
    try:
        statement = Statement.model_validate(read_json(opened.payload))
    except MalformedJson as error:
        return Decision((Reason(error.code, str(error)),), signer=opened.signer)
    except ValidationError as error:
        return Decision(schema_reasons(error), signer=opened.signer)
    report = statement.predicate.report
    return Decision(tuple(_reasons(statement, plugins, opened, setting)), report, opened.signer)


def _reasons(statement: Statement, plugins: Collection[str], opened: Opened, setting: Setting) -> list[Reason]:
    report, policy = statement.predicate.report, setting.policy
    expected = _expected(report, setting)
    return [
        *gate_run.identity(report, opened.signer.vendor),
        *gate_run.subject(statement, plugins, setting.registered),
        *gate_run.suite(report, policy, setting.installed_registry),
        *gate_run.named(report),
        *gate_run.declared_table(report),
        *gate_run.declared_devices(report),
        *gate_run.conditions(report, policy, setting.now),
        *(gate_rows.closed(report, expected) if expected is not None else ()),
        *gate_rows.sums(report, expected or []),
        *gate_rows.evidence(report),
        *gate_waivers.waivers(report, policy, opened.signer.vendor, setting.now),
    ]


def _expected(report: Report, setting: Setting) -> list[ExpectedRow] | None:
    """The closed set, or None where this installation knows other operators than the suite that ran."""
    if report.suite.registry_digest != setting.installed_registry:
        return None
    return closed_set(report.run.profile, report.declarations)


def schema_reasons(error: ValidationError) -> tuple[Reason, ...]:
    """What the schema holds against a document, each once."""
    return tuple(dict.fromkeys(_schema_reason(detail) for detail in error.errors()))


_PATHS = ("reproducer", "name")
_OWN_CODES: dict[object, str] = {"predicateType": "predicate-type", "evidence": "evidence"}


def _schema_reason(detail: ErrorDetails) -> Reason:
    """A validation error as a reason; the kinds that a forger would try have codes of their own."""
    where = ".".join(str(part) for part in detail["loc"])
    text = f"{where}: {detail['msg']}"
    last = detail["loc"][-1] if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        return Reason("unknown-field", text)
    if detail["type"] == "string_pattern_mismatch" and last in _PATHS:
        return Reason("unsafe-name", text)
    if last in _OWN_CODES:
        return Reason(_OWN_CODES[last], text)
    return Reason("schema", text)
