"""Plugins whose worthlessness is plain get no certificate: the null plugin not even a row that isn't handshake."""

from __future__ import annotations

import pytest
from torch_fl_spec.rows import fits

from .controls import WRONG_KERNELS, build_control
from .runner import judge

HANDSHAKE = (
    "FL-LAYOUT-*",  # chapter load
    "FL-VERSION-001",  # the library's symbols
    "FL-VERSION-006",  # the header it names
    "FL-KERNEL-001",  # the form of the table
    "FL-KERNEL-002",  # that it stays the same
)
"""Rows that a plugin passes by what it is, not by what it does."""

SAMPLE_ROWS = ("FL-STREAM-00[2578]", "FL-COPY-001", "FL-VERSION-00[25]", "neg/*/i16", "sum.dim_IntList/*/i64,i64")
NATURALLY_RIGHT = {
    "garbage": (),
    "echo": ("_to_copy/*",),
    "constant": (),
}
"""Operator rows that a control passes because what it writes is the right answer."""


@pytest.fixture
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether all rows are looked at."""
    return bool(pytestconfig.getoption("all_twins", False))


def test_the_null_plugin_passes_handshakes_only(whole: bool) -> None:
    rows = ("*",) if whole else (*HANDSHAKE, *SAMPLE_ROWS)
    (run,) = judge(build_control("null"), [(1, rows)], stop=False, seconds=1800)
    passed = [row["id"] for row in run.rows if row["verdict"] == "pass"]
    assert [row for row in passed if not fits(row, HANDSHAKE)] == []
    assert {row["verdict"] for row in run.rows} & {"fail"}


@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_wrong_numbers_are_not_certified(name: str, whole: bool) -> None:
    rows = ("aten::*",) if whole else ("neg/*/i16", "sum.dim_IntList/*/i64,i64", "gt.Tensor/*/f32", "mm/*/f32")
    (run,) = judge(build_control(name), [(1, rows)], stop=False, seconds=1800)
    passed = [row["id"] for row in run.rows if row["verdict"] == "pass"]
    assert [row for row in passed if not fits(row, NATURALLY_RIGHT[name])] == []
    assert {row["verdict"] for row in run.rows} & {"fail"}
