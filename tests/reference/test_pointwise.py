"""Pointwise kernels of the reference vendor against torch on the CPU: every operator, dtype and number slot."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from .kernel_runner import DTYPES, KernelRunner, Out
from .pointwise_values import (
    ALL,
    BITS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SHAPE,
    Function,
    agree,
    layouts,
    nonzero,
    number,
    values,
)


def square_root(a: torch.Tensor) -> torch.Tensor:
    """Correctly rounded, as torch's own vectorised one is not."""
    with np.errstate(invalid="ignore"):
        root = np.sqrt(a.double().contiguous().numpy())
    return torch.from_numpy(np.asarray(root)).to(a.dtype)


UNARY: dict[str, tuple[Sequence[str], Function, float]] = {
    "exp": (FLOATS, torch.exp, 2),
    "log": (FLOATS, torch.log, 2),
    "sqrt": (FLOATS, square_root, 0),
    "rsqrt": (FLOATS, torch.rsqrt, 2),
    "sin": (FLOATS, torch.sin, 2),
    "cos": (FLOATS, torch.cos, 2),
    "tanh": (FLOATS, torch.tanh, 3),
    "erf": (FLOATS, torch.erf, 4),
    "sigmoid": (FLOATS, torch.sigmoid, 4),
    "silu": (FLOATS, torch.nn.functional.silu, 4),
    "reciprocal": (FLOATS, torch.reciprocal, 0),
    "neg": (NUMBERS, torch.neg, 0),
    "abs": (NUMBERS, torch.abs, 0),
    "relu": (NUMBERS, torch.relu, 0),
    "floor": (NUMBERS, torch.floor, 0),
    "ceil": (NUMBERS, torch.ceil, 0),
    "round": (NUMBERS, torch.round, 0),
    "trunc": (NUMBERS, torch.trunc, 0),
    "sign": (ALL, torch.sign, 0),
    "bitwise_not": (BITS, torch.bitwise_not, 0),
    "logical_not": (ALL, torch.logical_not, 0),
    "isnan": (ALL, torch.isnan, 0),
}


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, (dtypes, _, _) in UNARY.items() for d in dtypes])
def test_unary(kernels: KernelRunner, op: str, dtype: str) -> None:
    _, function, ulps = UNARY[op]
    for a, strides in layouts(dtype, 1):
        expected = function(a.double()).to(a.dtype) if dtype in ("f32", "f16") and ulps else function(a)
        (got,) = kernels.run(op, [a], [Out("bool" if expected.dtype == torch.bool else dtype, tuple(a.shape), strides)])
        agree(got, expected, ulps)


BINARY: dict[str, tuple[Sequence[str], Function, float]] = {
    "mul.Tensor": (ALL, torch.mul, 0),
    "div.Tensor": (FLOATS, torch.div, 0),
    "maximum": (ALL, torch.maximum, 0),
    "minimum": (ALL, torch.minimum, 0),
    "eq.Tensor": (ALL, torch.eq, 0),
    "ne.Tensor": (ALL, torch.ne, 0),
    "lt.Tensor": (ALL, torch.lt, 0),
    "le.Tensor": (ALL, torch.le, 0),
    "gt.Tensor": (ALL, torch.gt, 0),
    "ge.Tensor": (ALL, torch.ge, 0),
    "logical_and": (ALL, torch.logical_and, 0),
    "logical_or": (ALL, torch.logical_or, 0),
    "bitwise_and.Tensor": (BITS, torch.bitwise_and, 0),
    "bitwise_or.Tensor": (BITS, torch.bitwise_or, 0),
    "bitwise_xor.Tensor": (BITS, torch.bitwise_xor, 0),
    "pow.Tensor_Tensor": (NUMBERS, torch.pow, 2),
    "remainder.Tensor": (NUMBERS, torch.remainder, 0),
}
NO_NUMBER = ("maximum", "minimum", "logical_and", "logical_or")
DIVIDING = ("remainder.Tensor",)


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, entry in BINARY.items() for d in entry[0]])
def test_binary(kernels: KernelRunner, op: str, dtype: str) -> None:
    _, function, ulps = BINARY[op]
    for (a, strides), (b, _) in zip(layouts(dtype, 1), layouts(dtype, 50), strict=True):
        if op in DIVIDING and dtype in INTEGERS:
            b = nonzero(b)
        expected = function(a, b)
        out = Out("bool" if expected.dtype == torch.bool else dtype, tuple(a.shape), strides)
        (got,) = kernels.run(op, [a, b], [out])
        agree(got, expected, ulps)
        if op in NO_NUMBER:
            continue
        other = torch.tensor(3, dtype=a.dtype)
        (got,) = kernels.run(op, [a, number(dtype, 3)], [out])
        agree(got, function(a, other.expand(a.shape)), ulps)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_div_mode(kernels: KernelRunner, mode: str, dtype: str) -> None:
    for (a, strides), (b, _) in zip(layouts(dtype, 1), layouts(dtype, 50), strict=True):
        divisor = nonzero(b) if dtype in INTEGERS else b
        out = Out(dtype, tuple(a.shape), strides)
        (got,) = kernels.run("div.Tensor_mode", [a, divisor, {"string": mode}], [out])
        if dtype in FLOATS:
            expected = torch.div(a.double(), divisor.double(), rounding_mode=mode).to(a.dtype)
        else:
            keep = (a == torch.iinfo(a.dtype).min) & (divisor == -1)  # traps in torch's own loop
            expected = torch.where(keep, a, torch.div(a, torch.where(keep, 1, divisor), rounding_mode=mode))
        agree(got, expected)


@pytest.mark.parametrize(("op", "sign"), [("add.Tensor", 1), ("sub.Tensor", -1)])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sum_with_alpha(kernels: KernelRunner, op: str, sign: int, dtype: str) -> None:
    function = torch.add if sign == 1 else torch.sub
    for (a, strides), (b, _) in zip(layouts(dtype, 1), layouts(dtype, 50), strict=True):
        out = Out(dtype, tuple(a.shape), strides)
        for alpha, other in itertools.product((1, 3, 0.625) if dtype in FLOATS else (1, 3), (b, torch.full_like(a, 3))):
            slot = b if other is b else number(dtype, 3)
            (got,) = kernels.run(op, [a, slot, number(dtype, alpha)], [out])
            if dtype not in FLOATS or alpha == 1:
                agree(got, function(a, other, alpha=alpha))
                continue
            # One rounding of the product and one of the sum.
            bound = torch.finfo(a.dtype).eps * ((alpha * other.double()).abs() + a.double().abs())
            expected = function(a.double(), other.double(), alpha=alpha)
            close = (got.double() - expected).abs() <= bound
            assert (close | (got.double() == expected) | (got.isnan() & expected.isnan())).all()


def test_add_bool(kernels: KernelRunner) -> None:
    a, b = values("bool", 1), values("bool", 2)
    for alpha in (False, True):
        (got,) = kernels.run("add.Tensor", [a, b, {"bool": alpha}], [Out("bool", SHAPE)])
        agree(got, torch.add(a, b, alpha=alpha))


def test_add_takes_large_integers_exactly(kernels: KernelRunner) -> None:
    a, b = torch.tensor([1, -5, 0]), torch.tensor([3, 2**40, -1])
    alpha = 2**53 + 1
    (got,) = kernels.run("add.Tensor", [a, b, {"int": alpha}], [Out("i64", (3,))])
    wrapped = [(x + alpha * y + 2**63) % 2**64 - 2**63 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == wrapped
    (got,) = kernels.run("add.Tensor", [a, {"uint": 2**64 - 1}, {"int": 1}], [Out("i64", (3,))])
    assert got.tolist() == [0, -6, -1]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(kernels: KernelRunner, approximate: str, dtype: str) -> None:
    for a, strides in layouts(dtype, 1):
        (got,) = kernels.run("gelu", [a, {"string": approximate}], [Out(dtype, tuple(a.shape), strides)])
        expected = torch.nn.functional.gelu(a.double(), approximate=approximate)
        bound = 8 * torch.finfo(a.dtype).eps * a.double().abs()
        close = (got.double() - expected).abs() <= bound
        assert (close | (got.double() == expected) | (got.isnan() & expected.isnan())).all()


def test_left_tails_are_accurate(kernels: KernelRunner) -> None:
    a = torch.linspace(-12, -3, 1001, dtype=torch.float64).float()
    x = a.double()
    normal = torch.special.erfc(-x / 2**0.5) * x / 2
    argument = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    agree(kernels.run("gelu", [a, {"string": "none"}], [Out("f32", (1001,))])[0], normal.float(), 2)
    agree(
        kernels.run("gelu", [a, {"string": "tanh"}], [Out("f32", (1001,))])[0],
        (x / (1 + torch.exp(-2 * argument))).float(),
        2,
    )
    agree(kernels.run("sigmoid", [a * 8], [Out("f32", (1001,))])[0], (1 / (1 + torch.exp(-8 * x))).float(), 2)
    a = a * 7
    x = a.double()
    agree(kernels.run("silu", [a], [Out("f32", (1001,))])[0], (x / (1 + torch.exp(-x))).float(), 2)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_clamp(kernels: KernelRunner, dtype: str) -> None:
    low, high = (1, 3) if dtype in INTEGERS else (-0.6, 1.7)
    for (a, strides), (minimum, maximum) in itertools.product(
        layouts(dtype, 1), [(low, high), (None, high), (low, None), (high, low)]
    ):
        slots = [{"none": True} if bound is None else number(dtype, bound) for bound in (minimum, maximum)]
        (got,) = kernels.run("clamp", [a, *slots], [Out(dtype, tuple(a.shape), strides)])
        agree(got, torch.clamp(a, minimum, maximum))


@pytest.mark.parametrize("dtype", ALL)
def test_where(kernels: KernelRunner, dtype: str) -> None:
    for (a, strides), (b, _) in zip(layouts(dtype, 1), layouts(dtype, 50), strict=True):
        condition = values("bool", 9, tuple(a.shape))
        (got,) = kernels.run("where.self", [condition, a, b], [Out(dtype, tuple(a.shape), strides)])
        agree(got, torch.where(condition, a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["remainder.Tensor", "div.Tensor_mode"])
def test_integer_division_by_zero_and_minus_one_does_not_trap(kernels: KernelRunner, op: str, dtype: str) -> None:
    info = torch.iinfo(DTYPES[dtype])
    a = torch.tensor([info.min, info.min, 7, info.max], dtype=DTYPES[dtype])
    b = torch.tensor([0, -1 if info.min else 1, 0, -1 if info.min else 1], dtype=DTYPES[dtype])
    for word in [[]] if op == "remainder.Tensor" else [[{"string": "floor"}], [{"string": "trunc"}]]:
        (got,) = kernels.run(op, [a, b, *word], [Out(dtype, (4,))])
        quotient = [info.min, -info.max] if info.min else [0, info.max]
        assert got[1::2].tolist() == ([0, 0] if op == "remainder.Tensor" else quotient)
