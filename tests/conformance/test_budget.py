"""Formulas: the grammar keeps to the vocabulary, the values are those worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from torch_fl_conformance.budget import FormulaError, Precision, bound, evaluate, half_spacing, parse
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.rounding import spacing
from torch_fl_spec.registry import load_registry

from .fake_device import operator_named

SINGLE = Precision(DTYPES["f32"], 24)
F32, F16, F64 = DTYPES["f32"], DTYPES["f16"], DTYPES["f64"]


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')", "ref.real", "[ref]", "lambda: 1", "ref if ref else 1", "open(ref)", "kappa(h=1)",
        "u_a ** ref; 1", "(x := 1)", "f'{ref}'", "ref[0]", "1j",
    ],
)  # fmt: skip
def test_nothing_outside_the_vocabulary_parses(formula: str) -> None:
    """Formulas are data, not programs."""
    with pytest.raises((ValueError, SyntaxError, FormulaError)):
        parse(formula)


def test_missing_names_are_an_error_of_their_own() -> None:
    """An oracle that does not offer what the formula needs is not a budget of zero."""
    with pytest.raises(FormulaError, match="sum_abs"):
        evaluate("u_a * sum_abs", SINGLE, F32, {"ref": np.ones(1)})


def test_kappa_takes_the_root_only_for_random_mantissas() -> None:
    """min(h, 6 sqrt(h)); h on data with repeated values."""
    h = {"h": np.array([0, 1, 36, 10_000])}
    assert np.array_equal(evaluate("kappa(h)", SINGLE, F32, h), [0, 1, 36, 600])
    assert np.array_equal(evaluate("kappa(h)", SINGLE, F32, h, repeated=True), h["h"])


@pytest.mark.parametrize(
    ("code", "n", "h"), [(0, 1000, 999), (1, 1000, 10), (1, 1024, 10), (32, 1000, 64), (32, 8, 7), (0, 0, 0)]
)
def test_additions_follow_the_declared_path(code: int, n: int, h: int) -> None:
    """0: n - 1; 1: ceil(log2 n); b: n / b + b, never more than n - 1."""
    assert Precision(F32, 24, code).additions(n) == h


def test_spacing_is_that_of_numpy() -> None:
    """ulp(r) against nextafter, zeros and subnormals included."""
    values = np.array([1.0, 1.5, 2.0, 0.0, 1e-40, 3e38, -7.0], np.float32)
    assert np.array_equal(spacing(values.astype(np.float64), 24, -126), np.spacing(np.abs(values)).astype(np.float64))
    assert half_spacing(np.array([1.0]), F16)[0] == 2.0**-11


def test_total_has_its_three_terms() -> None:
    """T = T_a + n_ops 2^(emin - p) + half a spacing of the output."""
    operator = operator_named("sum.dim_IntList")
    ref = np.array([1.0])
    elements = {"h": np.array(99.0), "sum_abs": np.array([3.0])}
    found = bound(operator, "out", ("f16", "f16"), "ACCURATE", SINGLE, ref, elements)
    expected = 2.0**-24 * 6 * np.sqrt(99.0) * 3.0 + 2.0**-24 + 99 * 2.0 ** (-126 - 24) + 2.0**-11
    assert float(found.values[0]) == pytest.approx(expected, rel=1e-12)


def test_zero_budget_takes_no_further_term() -> None:
    """add with alpha 1 is exact; with another alpha it has a budget."""
    operator = operator_named("add.Tensor")
    elements = {"alpha": 1.0, "other": np.array([2.0]), "self": np.array([1.0])}
    exact = bound(operator, "out", ("f32",), "ACCURATE", SINGLE, np.array([3.0]), elements)
    assert exact.values[0] == 0
    scaled = bound(operator, "out", ("f32",), "ACCURATE", SINGLE, np.array([7.0]), {**elements, "alpha": 3.0})
    assert scaled.values[0] > 2.0**-24 * 13


def test_fast_tier_widens_and_falls_back() -> None:
    """FAST mm reads inputs with 11 bits; an operator without a FAST entry keeps its ACCURATE one."""
    elements = {"h": np.array(9.0), "n": 10, "abs_dot": np.array([10.0])}
    fast = Precision(F32, 24, fast=True)
    mm = operator_named("mm")
    wide = bound(mm, "out", ("f32",), "FAST", fast, np.array([1.0]), elements).values[0]
    narrow = bound(mm, "out", ("f32",), "ACCURATE", SINGLE, np.array([1.0]), elements).values[0]
    assert wide > 100 * narrow
    exp = operator_named("exp")
    assert bound(exp, "out", ("f32",), "FAST", fast, np.array([1.0]), {}).values[0] > 0


def test_every_float_row_has_a_budget() -> None:
    """No floating output of the registry is without an entry that applies at tier ACCURATE."""
    for operator in load_registry():
        for dtypes in operator.rows:
            for out in operator.outs:
                if operator.dtype_of(out.type, dtypes) in ("f16", "bf16", "f32", "f64"):
                    assert operator.candidates(out.name, dtypes, "ACCURATE"), (operator.op, dtypes, out.name)
