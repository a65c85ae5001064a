"""A registry's policy: which suites, interfaces and profiles it accepts, and which waivers are in force."""

from __future__ import annotations

import json
from typing import Final, Literal

from pydantic import Field

from torch_fl_reports.canonical import read_json
from torch_fl_reports.model import Effort, Name, Part, Profile, Sha256, Waiver

POLICY_SCHEMA: Final = "torch-fl-policy/v1"


class AcceptedSuite(Part):
    """One release of the suite: the digest of its sources and the version that it calls itself."""

    version: Name
    source_digest: Sha256


class Policy(Part):
    """What the gate holds a report against. It is data: the gate's code knows no vendor and no version."""

    schema_: Literal["torch-fl-policy/v1"] = Field(alias="schema")
    suites: list[AcceptedSuite]
    registry_digests: list[Sha256]
    header_ids: list[Name]
    interfaces: list[Name]
    profiles: list[Profile]
    efforts: list[Effort]
    max_age_days: int = Field(default=365, ge=1, le=36500)  # a certificate ends a year after its run
    waivers: list[Waiver] = Field(default_factory=list)

    def text(self) -> str:
        """The contents of policy.json."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_policy(data: bytes) -> Policy:
    """Parse policy.json. Raises MalformedJson or pydantic.ValidationError."""
    return Policy.model_validate(read_json(data))
