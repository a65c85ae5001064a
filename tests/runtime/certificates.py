"""A registry with a signed entry about given bytes, made in well under a second: the report in it is synthetic."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from torch_fl_reports.attestation import sign
from torch_fl_reports.keys import generate, load_signer
from torch_fl_reports.model import Waiver
from torch_fl_reports.policy import Policy
from torch_fl_reports.policy_current import current_policy
from torch_fl_reports.registry import Registry, instant_text
from torch_fl_reports.writer import assemble

from tests.reports import honest


def registry(folder: Path, vendor: str = "acme", **policy: Any) -> Registry:
    """An empty one that accepts this suite and trusts a fresh key of one vendor."""
    accepted = Policy.model_validate(current_policy().model_dump(by_alias=True) | policy)
    made = Registry.create(folder / "registry", accepted)
    made.trust(vendor, generate(folder / f"{vendor}.key").read_bytes())
    return made


def enter(
    made: Registry,
    library: Path,
    *,
    vendor: str = "acme",
    age: timedelta = timedelta(minutes=1),
    waivers: tuple[Waiver, ...] = (),
) -> str:
    """Report, sign and submit a library as a vendor's product, some time ago; returns its sha256."""
    data = library.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    then = datetime.now(timezone.utc) - age
    run = honest.run_data()
    run["subject"]["vendor"] = vendor
    run["subject"]["files"] = [{"name": library.name, "sha256": digest, "size": len(data)}]
    run["run"] |= {"start": instant_text(then - timedelta(minutes=2)), "end": instant_text(then), "seconds": 120.0}
    rows = honest.rows(run)
    for waiver in waivers:
        for row in rows:
            if row["id"] in waiver.rows:
                row |= {"verdict": "waived", "waiver": waiver.id}
    run["waivers"] = [waiver.model_dump(mode="json", exclude_none=True) for waiver in waivers]
    envelope = sign(assemble(run, rows), load_signer(made.folder.parent / f"{vendor}.key"))
    decision = made.submit(envelope, {digest}, then)
    assert decision.accepted, decision.reasons
    return digest
