"""Oracles against torch's float64 and mpmath, against Python's own integers, and Philox against known answers."""

from __future__ import annotations

from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from torch_fl_conformance import (
    oracle_contraction,
    oracle_convolution_backward,
    oracle_loss,
    oracle_pointwise,
    oracle_reduction,
    philox,
)
from torch_fl_conformance.budget import Precision
from torch_fl_conformance.dtypes import DTYPES, Array, from_bits, to_bits
from torch_fl_conformance.oracle_maths import erf, integer_power
from torch_fl_conformance.oracle_operands import Operands
from torch_fl_conformance.rounding import round_to

F32, F64, I64 = DTYPES["f32"], DTYPES["f64"], DTYPES["i64"]
SINGLE = Precision(F32, 24)
RNG = np.random.Generator(np.random.PCG64(5))


def pointwise(name: str, dtype: str, **operands: Any) -> Array:
    """The oracle's value of a pointwise operator."""
    kind = DTYPES[dtype]
    shape = np.broadcast_shapes(*(np.shape(v) for v in operands.values() if not isinstance(v, str)))
    operators = Operands(operands, kind, kind, shape)
    return np.asarray(oracle_pointwise.expected(name, operators).ref)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", mpmath.exp), ("log", lambda x: mpmath.log(abs(x))), ("sin", mpmath.sin), ("cos", mpmath.cos),
        ("tanh", mpmath.tanh), ("erf", mpmath.erf), ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x))),
        ("gelu", lambda x: x * mpmath.ncdf(x)), ("silu", lambda x: x / (1 + mpmath.exp(-x))),
    ],
)  # fmt: skip
def test_f64_oracles_are_within_a_64th_of_an_ulp_bound(name: str, function: Any) -> None:
    """Rule R1 for float64: error at most T / 64 against 50 digits. T is at least 2 ulp, of |x| for gelu."""
    mpmath.mp.dps = 50
    x = np.concatenate([RNG.standard_normal(60) * 3, RNG.uniform(-30, 30, 30), [1e-9, 5.9, -5.9]])
    if name == "log":
        x = np.abs(x)
    operands = {"self": x} | ({"approximate": "none"} if name == "gelu" else {})
    got = pointwise(name, "f64", **operands)
    for value, argument in zip(got, x, strict=True):
        exact = function(mpmath.mpf(float(argument)))
        scale = max(abs(exact), abs(argument) if name == "gelu" else 0)
        error = abs(mpmath.mpf(str(np.format_float_positional(value, precision=30, unique=False))) - exact)
        assert error <= scale * mpmath.mpf(2) ** -52 * 2 / 64, (name, argument)


@pytest.mark.parametrize(
    "name", ["exp", "log", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "floor", "ceil", "round", "trunc"]
)
def test_f32_oracles_agree_with_torch(name: str) -> None:
    """float64 by torch, special values included."""
    x = np.concatenate([RNG.standard_normal(200) * 10, [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5]])
    wanted = getattr(torch, name)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(pointwise(name, "f32", self=x), wanted, rtol=1e-13, atol=1e-300)


_STEPS: dict[str, tuple[tuple[str, ...], Any]] = {
    "threshold_backward": (("grad_output", "self"), lambda g, x: torch.ops.aten.threshold_backward(g, x, 0.5)),
    "sigmoid_backward": (("grad_output", "output"), torch.ops.aten.sigmoid_backward),
    "tanh_backward": (("grad_output", "output"), torch.ops.aten.tanh_backward),
    "addcmul": (("self", "tensor1", "tensor2"), lambda x, a, b: torch.addcmul(x, a, b, value=-3)),
    "addcdiv": (("self", "tensor1", "tensor2"), lambda x, a, b: torch.addcdiv(x, a, b, value=-3)),
    "lerp": (("self", "end", "weight"), torch.lerp),
}


@pytest.mark.parametrize("name", _STEPS)
def test_oracles_of_several_steps_agree_with_torch(name: str) -> None:
    """float64 by torch on random numbers and, pair by pair, on those that have a class of their own."""
    slots, function = _STEPS[name]
    special = [0.0, -0.0, 1.0, 0.5, np.nan] if name == "lerp" else [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.5]
    crossed = np.array(np.meshgrid(*[special] * len(slots))).reshape(len(slots), -1)
    data = np.concatenate([RNG.standard_normal((len(slots), 200)), crossed], axis=1)
    operands = dict(zip(slots, data, strict=True))
    numbers = {"threshold": 0.5} if name == "threshold_backward" else {"value": -3.0} if len(slots) == 3 else {}
    wanted = function(*(torch.from_numpy(column) for column in data)).numpy()
    np.testing.assert_allclose(pointwise(name, "f32", **operands, **numbers), wanted, rtol=1e-13, atol=1e-15)


def test_dropped_gradients_are_products_with_zero() -> None:
    """NaN and infinity stay visible where the mask is false, as with torch."""
    grad, mask = np.array([2.0, 3.0, np.nan, np.inf, np.inf]), np.array([True, False, False, False, True])
    got = pointwise("native_dropout_backward", "f32", grad_output=grad, mask=mask, scale=1.25)
    np.testing.assert_array_equal(got, [2.5, 0.0, np.nan, np.nan, np.inf])


def test_steps_that_leave_the_range_on_one_way_are_left_open() -> None:
    """2^100 * 2^100 * 2^-100 is 2^100, or infinity for a kernel that multiplies the large ones first."""
    large, small = np.full(2, 2.0**100), np.array([2.0**-100, 1.0])
    operands = {"self": np.zeros(2), "tensor1": large, "tensor2": large, "value": float(small[0])}
    answer = oracle_pointwise.expected("addcmul", Operands(operands, F32, F32, (2,)))
    assert answer.care is not None
    assert not answer.care.any()
    assert answer.ref.tolist() == [2.0**100] * 2
    fine = oracle_pointwise.expected("addcmul", Operands({**operands, "tensor2": small}, F32, F32, (2,)))
    assert fine.care is not None
    assert fine.care.all()


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "i64"])
def test_integer_division_is_that_of_python(dtype: str, mode: str) -> None:
    """Mixed signs, exact multiples, the smallest integer by -1; against Python's unbounded integers."""
    kind = DTYPES[dtype]
    x = RNG.integers(kind.low, kind.high, 300, dtype=kind.logical, endpoint=True)
    y = RNG.integers(kind.low, kind.high, 300, dtype=kind.logical, endpoint=True)
    y = np.where(RNG.integers(0, 2, 300) == 0, np.asarray(7, kind.logical), y)
    y[y == 0] = 3
    x[0], y[0] = kind.low, (kind.high if kind.low == 0 else -1)
    got = pointwise("div_mode", dtype, self=x, other=y, rounding_mode=mode)
    rest = pointwise("remainder", dtype, self=x, other=y)
    bits = 8 * kind.size
    for a, b, q, r in zip(x.tolist(), y.tolist(), got.tolist(), rest.tolist(), strict=True):
        quotient = a // b if mode == "floor" else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        assert (quotient - q) % 2**bits == 0, (a, b)
        assert r == a % b, (a, b)


def test_float_division_modes_accept_torchs_answers() -> None:
    """torch's floor and trunc lie in the interval wherever the oracle cares, exact multiples included."""
    b = RNG.uniform(0.1, 9, 400).astype(np.float32)
    a = (b * RNG.integers(-50, 50, 400)).astype(np.float32)
    for mode in ("floor", "trunc"):
        operands = Operands({"self": a, "other": b, "rounding_mode": mode}, F32, F32, a.shape)
        answer = oracle_pointwise.expected("div_mode", operands)
        got = torch.div(torch.from_numpy(a), torch.from_numpy(b), rounding_mode=mode).numpy()
        assert answer.low is not None
        assert answer.high is not None
        assert ((got >= answer.low) & (got <= answer.high)).all()
        assert (answer.high - answer.low <= 1).all()


def test_integer_power_wraps() -> None:
    """Against Python's pow modulo 2^64, negative exponents as torch has them."""
    base = RNG.integers(-50, 50, 200)
    exponent = RNG.integers(0, 70, 200)
    got = integer_power(base, exponent)
    assert all((b**e - g) % 2**64 == 0 for b, e, g in zip(base.tolist(), exponent.tolist(), got.tolist(), strict=True))
    negative = integer_power(np.array([1, -1, -1, 2]), np.array([-3, -3, -2, -1]))
    assert negative.tolist() == [1, -1, 1, 0]


@pytest.mark.parametrize("kind", [np.float64, np.longdouble])
def test_erf_of_any_shape(kind: type[np.floating[Any]]) -> None:
    """Limits, zeros of both signs, NaN, nothing, scalars and strides; the smallest numbers keep their relative size."""
    x = np.array([0.0, -0.0, 9.001, -9.001, np.inf, np.nan], kind)
    y = erf(x)
    np.testing.assert_array_equal(y, [0.0, -0.0, 1.0, -1.0, 1.0, np.nan])
    assert np.signbit(y).tolist() == np.signbit(x).tolist()
    assert y.dtype == kind
    assert erf(kind(3.0) * np.ones((), kind)).shape == ()
    assert erf(np.zeros((0, 3), kind)).shape == (0, 3)
    grid = np.arange(12, dtype=kind).reshape(3, 4) / 8
    np.testing.assert_array_equal(erf(grid.T[::2]), erf(grid).T[::2])
    assert abs(erf(np.array([1e-300], kind))[0] / kind(1e-300) - 2 / np.sqrt(np.pi)) < 1e-15


def test_sums_are_near_exact() -> None:
    """Long double pairwise sums against fsum, whose result is correctly rounded."""
    import math

    x = RNG.standard_normal(4097) * 2.0 ** RNG.integers(-20, 20, 4097)
    answer = oracle_reduction.sum_(x, (0,), F64, F64, Precision(F64, 53))
    assert abs(float(answer.ref[0]) - math.fsum(x)) <= 2.0**-53 * abs(math.fsum(x))
    assert oracle_reduction.sum_(np.array([2**63 - 1, 1]), (0,), I64, I64, SINGLE).ref[0] == -(2**63)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_is_torchs(transposed: bool, groups: int) -> None:
    """Asymmetric stride, padding, dilation and output padding, exact integers in float64."""
    stride, padding, dilation, extra = (2, 3), (1, 0), (2, 1), (1, 2) if transposed else (0, 0)
    x = RNG.integers(-9, 9, (2, 4, 7, 6)).astype(np.float64)
    w = RNG.integers(-9, 9, (4, 3, 2, 3) if transposed else (6, 4 // groups, 2, 3)).astype(np.float64)
    b = RNG.integers(-9, 9, 3 * groups if transposed else 6).astype(np.float64)
    tensors = [torch.from_numpy(t) for t in (x, w, b)]
    wanted = torch.convolution(
        tensors[0], tensors[1], tensors[2], stride, padding, dilation, transposed, extra, groups
    ).numpy()
    sizes = oracle_contraction.convolution_sizes((7, 6), (2, 3), stride, padding, dilation, transposed, extra)
    assert sizes == wanted.shape[2:]
    got = oracle_contraction.convolution(
        x, w, b, stride, padding, dilation, transposed, groups, wanted.shape, F64, Precision(F64, 53)
    )
    assert np.array_equal(got.ref.astype(np.float64), wanted)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_a_convolution_are_torchs(transposed: bool, groups: int) -> None:
    """In float64, on exact integers; abs_dot is the same for absolute values."""
    stride, padding, dilation, extra = (2, 3), (1, 0), (2, 1), (1, 2) if transposed else (0, 0)
    x = torch.from_numpy(RNG.integers(-9, 9, (2, 4, 7, 6)).astype(np.float64))
    w = torch.from_numpy(RNG.integers(-9, 9, (4, 3, 2, 3) if transposed else (6, 4 // groups, 2, 3)).astype(np.float64))
    channels = 3 * groups if transposed else 6
    shape = torch.convolution(x, w, None, stride, padding, dilation, transposed, extra, groups).shape
    grad = torch.from_numpy(RNG.integers(-9, 9, shape).astype(np.float64))
    got = oracle_convolution_backward.gradients(
        grad.numpy(), x.numpy(), w.numpy(), stride, padding, dilation, transposed, groups, F64, Precision(F64, 53)
    )

    def wanted(*values: torch.Tensor) -> list[Array]:  # not by autograd, which looks for devices of every kind
        found = torch.ops.aten.convolution_backward(
            *values, [channels], stride, padding, dilation, transposed, extra, groups, [True, True, True]
        )
        return [each.numpy() for each in found]

    for answer, value, size in zip(got.values(), wanted(grad, x, w), wanted(grad.abs(), x.abs(), w.abs()), strict=True):
        assert np.array_equal(answer.ref.astype(np.float64), value)
        assert np.array_equal(answer.elements["abs_dot"].astype(np.float64), size)


def test_variance_survives_a_large_offset() -> None:
    """Mean of 10^6 standard deviations in float64 against mpmath."""
    mpmath.mp.dps = 60
    x = RNG.standard_normal(257) + 1e6
    exact = [mpmath.mpf(float(v)) for v in x]
    mean = sum(exact) / len(exact)
    wanted = sum((v - mean) ** 2 for v in exact) / (len(exact) - 1)
    got = oracle_reduction.var(x, (0,), F64, F64, Precision(F64, 53), 1.0).ref[0]
    assert abs(float(got) / float(wanted) - 1) < 1e-15


def test_philox_known_answers() -> None:
    """The vectors of Random123 for philox4x32-10."""
    assert [hex(int(w)) for w in philox.words(0, 0, 1)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_philox_sequences_continue() -> None:
    """offset + increment gives the numbers that follow; counters carry past 32 bits."""
    whole = philox.uniform(7, 2**32 - 2, 32, F32)
    assert np.array_equal(whole[16:], philox.uniform(7, 2**32 + 2, 16, F32))
    assert philox.counters(33, F32, normal=False) == 9
    assert philox.counters(33, F64, normal=False) == 17


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_to_halves_is_one_rounding(name: str) -> None:
    """Every midpoint of neighbours, and just beside it, from float64 and from long double."""
    dtype = DTYPES[name]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = from_bits(np.arange(65536, dtype=np.uint16), dtype).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    low, high = finite[:-1], finite[1:]
    middle = (low + high) / 2
    even = np.where(to_bits(low.astype(dtype.logical), dtype) % 2 == 0, low, high)
    assert np.array_equal(round_to(middle, dtype).astype(np.float64), even)
    for kind, step in ((np.float64, 2.0**-36), (np.longdouble, 2.0**-47)):
        nudge = (high - low).astype(kind) * kind(step)
        assert np.array_equal(round_to(middle.astype(kind) + nudge, dtype).astype(np.float64), high)
        assert np.array_equal(round_to(middle.astype(kind) - nudge, dtype).astype(np.float64), low)


def test_twice_rounded_values_are_told_from_once_rounded_ones() -> None:
    """float64 -> float32 -> bfloat16 differs from one rounding, which torch's own cast does not do."""
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    once = round_to(value, DTYPES["bf16"])
    twice = torch.from_numpy(value).to(torch.bfloat16).to(torch.float64).numpy()
    assert once[0] == 1 + 2.0**-7
    assert twice[0] == 1.0


def test_losses_of_f64_are_rounded_once() -> None:
    """A weighted loss of its own is one product: as the CPU gives it in f64, forward and backward."""
    x, weight, grad = RNG.standard_normal((4000, 3)), np.abs(RNG.standard_normal(3)), RNG.standard_normal(4000)
    target, total = RNG.integers(0, 3, 4000), np.zeros(())
    loss = oracle_loss.nll_loss(x, target, weight, 0, -100, F64, Precision(F64, 53))["output"].ref
    taken = np.take_along_axis(x, target[:, None], 1)[:, 0]
    assert np.array_equal(loss.astype(np.float64), -taken * weight[target])
    back = oracle_loss.nll_loss_backward(grad, x.shape, target, weight, 0, -100, total, F64).ref
    given = np.take_along_axis(back, target[:, None], 1)[:, 0]
    assert np.array_equal(given.astype(np.float64), -weight[target] * grad)
