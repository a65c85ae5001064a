# mypy: disable-error-code="no-any-return"
"""The suite can fail: every single defect is caught, by each of several seeds, at quick effort; honest devices pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.failures import RuleViolated
from torch_fl_conformance.problem import Problem
from torch_fl_conformance.row import Row
from torch_fl_spec.abi import FL_INVALID_ARGUMENT

from . import defects, device_defects
from .defects import Values, with_defect
from .fake_device import FakeDevice, IdealDevice, StretchedDevice, judge_operator, operator_named

SEEDS = (1, 2, 3)
F32 = ("f32",)

_DEFECTS: list[tuple[str, str, tuple[str, ...], Callable[[], FakeDevice], dict[str, Any]]] = [
    ("n01 truncating add", "add.Tensor", F32, with_defect(defects.truncated_sum), {}),
    ("n02 undeclared flush", "mul.Tensor", F32, with_defect(defects.flushed), {}),
    ("n03 exp 8 ulp", "exp", F32, with_defect(lambda p, x, y: y.astype(np.float64) * (1 + 8 * 2.0**-23)), {}),
    ("n04 exp error grows", "exp", F32, with_defect(lambda p, x, y: y * (1 + x["self"] * 2.0**-21)), {}),
    ("n06 sin of large", "sin", F32, with_defect(defects.narrow_reduction), {}),
    ("n08 gelu form", "gelu", F32, with_defect(defects.tanh_form), {}),
    ("n11 maximum drops NaN", "maximum", F32, with_defect(lambda p, x, y: np.fmax(x["self"], x["other"])), {}),
    ("n13 half away", "round", F32, with_defect(defects.rounds_away), {}),
    ("n14 bf16 truncates", "_to_copy", ("f32", "bf16"), with_defect(defects.upper_half), {}),
    ("n15 alpha via double", "add.Tensor", ("i64",), with_defect(defects.alpha_through_double), {}),
    ("n16 scalar swapped", "sub.Tensor", F32, with_defect(defects.scalar_swapped), {}),
    ("n17 mode ignored", "div.Tensor_mode", F32, with_defect(defects.mode_ignored), {}),
    ("i01 i32 via f32", "add.Tensor", ("i32",), with_defect(lambda p, x, y: y.astype(np.float32)), {}),
    ("i03 floor truncates", "div.Tensor_mode", ("i32",), with_defect(defects.truncating_division), {}),
    ("i06 u8 sum wraps", "sum.dim_IntList", ("u8", "i64"), with_defect(lambda p, x, y: y.astype(np.uint8)), {}),
    ("i07 bool 0xff", "eq.Tensor", F32, device_defects.ByteBools, {}),
    ("r01 half sum", "sum.dim_IntList", ("f16", "f16"), with_defect(defects.sum_in_half), {}),
    ("r02 tail of 4", "sum.dim_IntList", ("f32", "f32"), with_defect(defects.dropped_tail(4)), {}),
    ("r03 tail of 32", "sum.dim_IntList", ("f32", "f32"), with_defect(defects.dropped_tail(32)), {}),
    ("r04 garbage past 256", "amax", F32, with_defect(defects.garbage_past(256)), {}),
    ("r04 garbage past 4096", "sum.dim_IntList", ("i32", "i64"), with_defect(defects.garbage_past(4096)), {}),
    ("r07 one-pass variance", "var.correction", F32, with_defect(defects.one_pass), {}),
    ("r13 no shift", "_softmax", F32, with_defect(defects.unshifted), {}),
    ("r14 wrong dim when square", "_softmax", F32, with_defect(defects.wrong_dim), {}),
    ("r15 short log2(e)", "_softmax", F32, with_defect(defects.short_e), {}),
    ("m01 tf32", "mm", F32, with_defect(defects.tf32), {}),
    ("m02 f16 accumulator", "mm", ("f16",), with_defect(defects.half_accumulator), {}),
    ("m03 k tail", "mm", F32, with_defect(defects.dropped_k), {}),
    ("m05 transposed when square", "bmm", F32, with_defect(defects.transposed_when_square), {}),
    ("m06 bias twice", "convolution", F32, with_defect(defects.bias_twice), {}),
    ("m07 k = 0", "mm", F32, with_defect(defects.garbage_without_k), {}),
    ("l01 contiguous", "neg", F32, device_defects.AssumesContiguous, {}),
    ("l01 contiguous reduction", "amax", F32, device_defects.AssumesContiguous, {}),
    ("l02 offset", "neg", F32, device_defects.IgnoresOffset, {}),
    ("l05 holes", "neg", F32, device_defects.WritesHoles, {}),
    ("m5 beyond the end", "abs", ("i8",), device_defects.WritesBeyond, {}),
    ("k6 input changed", "abs", F32, device_defects.ChangesInput, {}),
    ("l11 duplicates", "scatter_add", F32, device_defects.LosesDuplicates, {}),
    ("w01 zeroed output", "sum.dim_IntList", ("f32", "f32"), device_defects.AddsToOutput, {}),
    ("w05 cached by address", "add.Tensor", F32, device_defects.CachesByAddress, {}),
    ("cached scalar", "mul.Tensor", F32, device_defects.CachesScalar, {}),
    ("threshold not strict", "threshold_backward", F32, with_defect(defects.threshold_passes), {}),
    ("lerp weight swapped", "lerp.Tensor", F32, with_defect(defects.weight_swapped), {}),
    ("addcmul value squared", "addcmul", ("i64",), with_defect(defects.value_on_both), {}),
    ("d01 seed ignored", "uniform", F32, device_defects.SeedIgnored, {"philox_exact": True}),
    ("d02 offset ignored", "uniform", F32, device_defects.OffsetIgnored, {"philox_exact": True}),
    ("mask of another seed", "native_dropout", F32, device_defects.OtherMask, {"philox_exact": True}),
    ("kept is not scaled", "native_dropout", F32, device_defects.UnscaledMask, {}),
    ("mask inverted", "native_dropout", F32, device_defects.InvertedMask, {}),
    ("mask of 0xff", "native_dropout", F32, device_defects.ByteMask, {}),
    ("d07 not deterministic", "exp", F32, device_defects.NotQuiteDeterministic, {"deterministic": True}),
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "op", "dtypes", "device", "claims"), _DEFECTS, ids=[d[0] for d in _DEFECTS])
def test_defect_is_caught(
    name: str, op: str, dtypes: tuple[str, ...], device: Callable[[], FakeDevice], claims: dict[str, Any], seed: int
) -> None:
    """The row fails with a case, an index or a byte, and the rules that may be broken."""
    with pytest.raises(RuleViolated) as caught:
        judge_operator(device(), op, dtypes, seed=seed + device_defects.checksum(name), **claims)
    assert caught.value.case["op"].endswith(op)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "op",
    [
        *("exp", "mm", "convolution_backward", "sum.dim_IntList", "_softmax", "native_layer_norm", "gelu"),
        *("sigmoid_backward", "tanh_backward", "native_dropout_backward"),
        *("addcmul", "addcdiv", "lerp.Scalar", "lerp.Tensor", "native_dropout"),
        *("max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"),
        *("native_batch_norm", "native_batch_norm_backward"),
    ],
)
def test_just_beyond_the_budget_is_caught(op: str, seed: int) -> None:
    """Everything off by 2.5 T fails: T also holds half a spacing for the rounding that follows."""
    dtypes = ("f32",) * len(operator_named(op).types)
    with pytest.raises(RuleViolated):
        judge_operator(StretchedDevice(2.5), op, dtypes, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_promise_no_bits_may_have_any_mask(seed: int) -> None:
    """The output is judged by the mask that came back, with subnormal inputs flushed too where the row says so."""
    for dtypes in operator_named("native_dropout").rows:
        assert not judge_operator(device_defects.OtherMask(), "native_dropout", dtypes, seed=seed).missing_labels()
    judge_operator(device_defects.OtherMask(), "native_dropout", F32, seed=seed, ftz_in=True, ftz_out=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("op", ["mul.Tensor", "add.Tensor", "exp"])
def test_declared_flushing_passes(op: str, seed: int) -> None:
    """The same flushing that fails undeclared is right where the row declares FTZ_IN and FTZ_OUT."""
    device = with_defect(defects.flushed)
    judge_operator(device(), op, F32, seed=seed, ftz_in=True, ftz_out=True)


def test_failing_case_is_small_and_complete() -> None:
    """The message names operator, variant, dtype, index, expected, got and budget; shapes have been shrunk."""
    with pytest.raises(RuleViolated) as caught:
        judge_operator(with_defect(lambda p, x, y: y + 1)(), "mm", F32)
    facts = caught.value.case
    assert {"op", "variant", "dtypes", "shapes", "strides", "offsets", "index", "expected", "got", "budget"} <= set(
        facts
    )
    assert np.prod(facts["shapes"]["out"]) <= 4


def test_a_flaky_case_fails_and_says_so() -> None:
    """What failed once is a failure, though the smallest case is right when it is repeated."""
    wrong = [True]
    device = with_defect(lambda p, x, y: y + 1 if y.size and wrong and wrong.pop() else y)()
    row = Row("aten::neg/r1/generic/f32", "kernel.pointwise", "operator")
    with pytest.raises(RuleViolated, match="elements wrong"):
        judge_operator(device, "neg", F32, row=row)
    assert row.notes == ["the failing case did not fail again when it was repeated"]


def test_narrow_accumulator_is_no_accurate_tier() -> None:
    """A half row that declares a half accumulator must say FAST."""
    with pytest.raises(RuleViolated, match="accumulator"):
        judge_operator(IdealDevice(), "mm", ("f16",), accumulator="f16")
    judge_operator(IdealDevice(), "mm", ("f16",), accumulator="f16", tier="FAST")


@pytest.mark.parametrize(
    ("op", "claims", "words"),
    [
        ("arange.start_step", {"accumulator": "bf16"}, "an accumulator of 8 significant bits"),
        ("arange.start_step", {"accumulator": "i64", "accumulator_bits": 1}, "an accumulator of i64 in a floating row"),
        ("mm", {"accumulator": "i64", "tier": "FAST"}, "an accumulator of i64 in a floating row"),
        ("mm", {"accumulator": "f32", "accumulator_bits": 53}, "accumulator_bits 53, f32 has 24"),
        ("mm", {"accumulator_bits": 53}, "accumulator_bits 53, f32 has 24"),
    ],
)
def test_an_incredible_accumulator_earns_no_budget(op: str, claims: dict[str, Any], words: str) -> None:
    """The budget of a floating row hangs on its accumulator: what none can have is refused, whatever the class."""
    with pytest.raises(RuleViolated, match=words):
        judge_operator(IdealDevice(), op, F32, **claims)


def test_rows_that_no_accumulator_touches_may_name_any() -> None:
    """Integer rows, and operators that only copy: their budgets are exact whatever is declared."""
    judge_operator(IdealDevice(), "sum.dim_IntList", ("i32", "i64"), accumulator="i64", accumulator_bits=63)
    judge_operator(IdealDevice(), "flip", ("bf16",), accumulator="bf16")


class _NoFree(IdealDevice):
    def execute(self, command: Any, timeout: float | None = None) -> Any:
        answer = super().execute(command, timeout)
        return {**answer, "free": {"status": FL_INVALID_ARGUMENT, "err": {"message": "no such block"}}}


def test_a_case_whose_blocks_cannot_be_freed_fails() -> None:
    """Freeing what the driver has allocated must go right, as the other calls of a case must."""
    with pytest.raises(RuleViolated, match=r"free of a kernel case: INVALID_ARGUMENT \(no such block\)"):
        judge_operator(_NoFree(), "neg", F32)


class _Harness(IdealDevice):
    def compute(self, command: Any, operands: dict[str, Array]) -> dict[str, Array]:
        raise ZeroDivisionError("the harness's own fault")


def test_faults_of_the_harness_are_not_the_plugins() -> None:
    """Another exception than RuleViolated passes through the search unchanged."""
    with pytest.raises(ZeroDivisionError):
        judge_operator(_Harness(), "neg", F32)


def test_a_row_without_its_labels_has_no_power() -> None:
    """A label that no case met turns a silent pass into no-power."""
    row = Row("x", "kernel.pointwise", "operator")
    row.case()
    row.require("tail", "square")
    row.label("tail")
    assert row.verdict_of_return()[0] == "no-power"


# -- honest devices ----------------------------------------------------------------------------------------------


def _sequential(p: Problem, x: Values, y: Array) -> Array:
    rows = defects._rows(p, x["self"].astype(np.float32))
    return np.add.accumulate(rows, axis=-1, dtype=np.float32)[..., -1].reshape(y.shape) if rows.size else y


def _pairwise(p: Problem, x: Values, y: Array) -> Array:
    return np.sum(defects._rows(p, x["self"].astype(np.float32)), axis=-1, dtype=np.float32).reshape(y.shape)


def _single_matmul(p: Problem, x: Values, y: Array) -> Array:
    return np.matmul(x["self"].astype(np.float32), x["mat2"].astype(np.float32))


def _two_pass(p: Problem, x: Values, y: Array) -> Array:
    rows = defects._rows(p, x["self"].astype(np.float32))
    n = rows.shape[-1]
    mean = (np.add.reduce(rows, axis=-1, dtype=np.float32) / np.float32(n))[..., None]
    total = np.add.reduce((rows - mean) ** 2, axis=-1, dtype=np.float32)
    return (total / np.float32(max(n - p.structure.params["correction"], 0))).reshape(y.shape)


def _single_softmax(p: Problem, x: Values, y: Array) -> Array:
    w = x["self"].astype(np.float32)
    if not w.size:
        return y
    powers = np.exp(w - np.max(w, axis=p.structure.params["dim"], keepdims=True))
    return powers / np.sum(powers, axis=p.structure.params["dim"], keepdims=True)


def _single_power(p: Problem, x: Values, y: Array) -> Array:
    return np.power(x["self"], x["exponent"]) if "exponent" in x else y


def _unfused_add(p: Problem, x: Values, y: Array) -> Array:
    other = x["other"] if "other" in x else np.float32(p.structure.params["other"])
    return x["self"] + np.float32(p.structure.params["alpha"]) * other


_HONEST: list[tuple[str, str, tuple[str, ...], Callable[[Problem, Values, Array], Array]]] = [
    ("sequential sum", "sum.dim_IntList", ("f32", "f32"), _sequential),
    ("sequential half sum in f32", "sum.dim_IntList", ("bf16", "bf16"), _sequential),
    ("pairwise sum", "sum.dim_IntList", ("f32", "f32"), _pairwise),
    ("random order", "sum.dim_IntList", ("f32", "f32"), defects.reordered),
    ("float32 matmul", "mm", F32, _single_matmul),
    ("float32 matmul of halves", "mm", ("f16",), _single_matmul),
    ("two-pass variance", "var.correction", F32, _two_pass),
    ("float32 softmax", "_softmax", F32, _single_softmax),
    ("float32 exp", "exp", F32, lambda p, x, y: np.exp(x["self"].astype(np.float32))),
    ("float32 exp of halves", "exp", ("bf16",), lambda p, x, y: np.exp(x["self"].astype(np.float32))),
    ("float32 tanh", "tanh", F32, lambda p, x, y: np.tanh(x["self"].astype(np.float32))),
    ("float32 pow", "pow.Tensor_Tensor", F32, _single_power),
    ("unfused add", "add.Tensor", F32, _unfused_add),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "op", "dtypes", "change"), _HONEST, ids=[h[0] for h in _HONEST])
def test_honest_device_passes(
    name: str, op: str, dtypes: tuple[str, ...], change: Callable[[Problem, Values, Array], Array], seed: int
) -> None:
    """Other orders, other algorithms, float32 throughout: no false alarm."""
    row = judge_operator(with_defect(change)(), op, dtypes, seed=seed)
    assert not row.missing_labels()


def test_effort_full_looks_longer() -> None:
    """At least 40 cases a row at full effort."""
    assert Effort("full").is_full
    assert judge_operator(IdealDevice(), "neg", F32, effort="full").cases >= 40
