"""Operator rows: every claimed operator x variant x dtype row against its oracle and budget.

The rules of the kernel interface itself (FL-KERNEL-nnn) have checks of their own; an operator row names the ones it
found broken in `violates`.
"""

from __future__ import annotations

from typing import Any

from torch_fl_spec.rows import ExpectedRow

from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.kernel_row import claims_of, judge_row
from torch_fl_conformance.row import Row


def test_operator(
    operator_row: ExpectedRow, driver: Driver, declarations: dict[str, Any], row: Row, seed: int, effort: Effort
) -> None:
    """Draw cases for one row and judge each."""
    operator, claims = claims_of(declarations, operator_row)
    judge_row(row, driver, operator, claims, seed=seed, effort=effort)
