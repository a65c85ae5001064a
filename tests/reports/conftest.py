"""Fixtures of the report tests: an honest report, and a registry that would accept it."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]
from torch_fl_reports.attestation import sign_payload
from torch_fl_reports.canonical import canonical, report_digest
from torch_fl_reports.gate import Decision
from torch_fl_reports.keys import generate, load_signer
from torch_fl_reports.model import Report
from torch_fl_reports.policy_current import current_policy
from torch_fl_reports.registry import Registry
from torch_fl_reports.writer import assemble

from . import honest

NOW = datetime(2026, 8, 1, 10, 0, tzinfo=timezone.utc)


@pytest.fixture(scope="session")
def _honest_report() -> Report:
    run = honest.run_data()
    return assemble(run, honest.rows(run))


@pytest.fixture
def honest_report(_honest_report: Report) -> Report:
    """Immutable, so one for all tests."""
    return _honest_report


@pytest.fixture
def plain(_honest_report: Report) -> dict[str, Any]:
    """The honest report as data that a test may spoil."""
    return _honest_report.plain()


class Desk:
    """A registry with one trusted vendor, and the ways to hand something in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "registry"
        self.registry = Registry.create(self.folder, current_policy())
        self.signer = self.key("acme", folder)
        self.plugins = {hashlib.sha256(honest.PLUGIN).hexdigest()}
        self.now = NOW

    def key(self, vendor: str, folder: Path, trusted: bool = True) -> CryptoSigner:
        """A fresh key of a vendor."""
        public = generate(folder / f"{vendor}.key")
        if trusted:
            self.registry.trust(vendor, public.read_bytes())
        return load_signer(folder / f"{vendor}.key")

    def tree(self) -> dict[str, bytes]:
        """Every file of the registry with its contents."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def submit(self, report: dict[str, Any], *, consistent: bool = True) -> Decision:
        """Sign a report given as data. `consistent`: its id is made anew, as a careful forger would."""
        if consistent:
            report["report_id"] = report_digest(report)
        return self.submit_statement(statement(report))

    def submit_statement(self, data: dict[str, Any]) -> Decision:
        """Sign any statement."""
        return self.submit_envelope(sign_payload(canonical(data), self.signer))

    def submit_envelope(self, envelope: bytes) -> Decision:
        """Hand in any bytes. A refusal must leave every file as it was."""
        before = self.tree()
        decision = self.registry.submit(envelope, self.plugins, self.now)
        assert decision.accepted or self.tree() == before
        return decision


def statement(report: dict[str, Any]) -> dict[str, Any]:
    """The statement about a report given as data, valid or not."""
    files = report["subject"]["files"]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file["name"], "digest": {"sha256": file["sha256"]}} for file in files],
        "predicateType": "https://torch-fl.org/fl-conformance/v1",
        "predicate": {"evidence": "self-run", "report": report},
    }


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A registry that would accept the honest report."""
    return Desk(tmp_path)
