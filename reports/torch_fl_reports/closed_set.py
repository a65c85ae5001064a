"""The rows that must be in a report: computed from what the plugin declares."""

from __future__ import annotations

from torch_fl_spec.rows import ExpectedRow, expected_rows

from torch_fl_reports.declared import Declarations
from torch_fl_reports.model import Profile


def closed_set(profile: Profile, declarations: Declarations) -> list[ExpectedRow]:
    """Every row that a run of this profile on this plugin has, no more and no fewer."""
    data = declarations.model_dump(mode="json")
    return expected_rows(profile, data, data["kernels"])


def must_claim(expected: list[ExpectedRow]) -> frozenset[str]:
    """Ids of the rows that may not stay unclaimed."""
    return frozenset(row.id for row in expected if not row.may_be_not_claimed)
