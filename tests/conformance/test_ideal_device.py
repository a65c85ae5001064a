"""The ideal device, RN(oracle), must pass every formula x dtype x regime: a budget that rejects it is wrong."""

from __future__ import annotations

import pytest
from torch_fl_conformance.problem import Claim
from torch_fl_conformance.strategies import recipes
from torch_fl_spec.registry import Operator, load_registry

from .fake_device import IdealDevice, judge_operator, operator_named

_OPERATORS = [pytest.param(operator, id=operator.short_name) for operator in load_registry()]


@pytest.mark.parametrize("operator", _OPERATORS)
def test_passes_every_row(operator: Operator) -> None:
    """All dtype rows, all regimes and required labels at quick effort."""
    for dtypes in operator.rows:
        row = judge_operator(IdealDevice(), operator.short_name, dtypes, philox_exact=True)
        assert not row.missing_labels(), (dtypes, row.missing_labels())
        assert row.cases >= 10


@pytest.mark.parametrize("name", ["uniform", "normal_functional", "native_dropout"])
def test_passes_rows_that_promise_no_bits(name: str) -> None:
    """Random rows without Philox's bits are judged by their distribution: its own are as good as any."""
    for dtypes in operator_named(name).rows:
        assert not judge_operator(IdealDevice(), name, dtypes).missing_labels()


@pytest.mark.parametrize("tier", ["FAST"])
@pytest.mark.parametrize("name", ["mm", "convolution", "convolution_backward", "div.Tensor", "sqrt"])
def test_passes_wider_tiers(name: str, tier: str) -> None:
    """A FAST row has wider budgets, never narrower ones."""
    judge_operator(IdealDevice(), name, ("f32",), tier=tier)


@pytest.mark.parametrize("path_length", [1, 32])
def test_passes_with_declared_summation(path_length: int) -> None:
    """Pairwise and blocked path lengths tighten the bound, but not below rounding once."""
    for name in ("sum.dim_IntList", "cumsum"):
        judge_operator(IdealDevice(), name, ("f32", "f32"), path_length=path_length)


def test_every_regime_is_met() -> None:
    """No regime of a row is lost among the recipes."""
    for operator in load_registry():
        for dtypes in operator.rows:
            claim = Claim(operator.op, 1, "fake", dtypes)
            met = {recipe.regime for recipe in recipes(operator, claim, 10, seed=3)}
            assert set(operator.regimes_for(dtypes)) <= met, (operator.op, dtypes)


@pytest.mark.parametrize("layouts", [2, 2 + 16, 2 + 4])
def test_narrower_layout_claims_are_kept_to(layouts: int) -> None:
    """A kernel that claims contiguous, permuted or channels-last tensors is given no others."""
    for name in ("add.Tensor", "convolution", "convolution_backward", "amax"):
        operator = operator_named(name)
        claim = Claim(operator.op, 1, "fake", ("f32",), layouts=layouts, takes_scalar=True)
        seen = {recipe.layout for recipe in recipes(operator, claim, 24, 1)}
        assert seen == {
            "contiguous",
            *(["permuted"] if layouts & 16 else []),
            *(["channels_last"] if layouts & 4 else []),
        }
        judge_operator(IdealDevice(), name, ("f32",), layouts=layouts)
