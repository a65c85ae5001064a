"""Random operators: pure functions of seed and offset, with the right numbers or the right distribution."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.rows import ExpectedRow

from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.kernel_row import claims_of, judge_row
from torch_fl_conformance.random_row import judge_statistics
from torch_fl_conformance.row import Row


def test_operator(
    operator_row: ExpectedRow, driver: Driver, declarations: dict[str, Any], row: Row, seed: int, effort: Effort
) -> None:
    """Cases like those of any operator, then statistics over long sequences."""
    operator, claims = claims_of(declarations, operator_row)
    judge_row(row, driver, operator, claims, seed=seed, effort=effort)
    for device, claim in claims.items():
        judge_statistics(row, driver, operator, claim, device=device, seed=seed, count=effort.pick(2**18, 2**19))
