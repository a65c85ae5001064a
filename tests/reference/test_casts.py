"""Casts and fills of the reference vendor, and what its kernels refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .pointwise_values import ALL, FLOATS, INTEGERS, SHAPE, agree, layouts, number


@pytest.mark.parametrize("dtype", ALL)
def test_fill(kernels: KernelRunner, dtype: str) -> None:
    value = 0.1 if dtype in FLOATS else 1
    for shape, strides in [(SHAPE, None), (SHAPE, spread_strides(SHAPE)), ((), None), ((0, 2), None)]:
        (got,) = kernels.run("fill.Scalar", [number(dtype, value)], [Out(dtype, shape, strides)])
        agree(got, torch.full(shape, value, dtype=DTYPES[dtype]))


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_to_copy(kernels: KernelRunner, source: str, target: str) -> None:
    for a, strides in layouts(source, 1):
        if source in FLOATS and target in INTEGERS:
            low, high = (0, 100) if target == "u8" else (-100, 100)
            a = torch.nan_to_num(a, 0, 7, 7).clamp(low, high)
        (got,) = kernels.run("_to_copy", [a], [Out(target, tuple(a.shape), strides)])
        expected = a.to(DTYPES[target])
        if source == "i64" and target in ("f16", "bf16", "f32"):
            agree(got, a.double().to(DTYPES[target]), 1)  # torch rounds twice on some of these ways
        else:
            agree(got, expected)


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("source", ["i64", "i32", "f64"])
def test_narrowing_to_halves_rounds_once(kernels: KernelRunner, source: str, target: str) -> None:
    """Values just beside a tie of the target, where a first rounding to f32 or f64 would land on the tie."""
    bits = 11 if target == "f16" else 8
    exponent = {"i64": 62, "i32": 30, "f64": 40}[source] if target == "bf16" else 14
    tie = 2.0**exponent * (1 + 2.0**-bits)
    beside = 2.0**-20 if source == "f64" and target == "f16" else 1 if target == "bf16" else 0
    if source == "f64":
        a = torch.tensor([tie + beside, tie - beside, tie], dtype=torch.float64)
    else:
        whole = int(tie)
        a = torch.tensor([whole + beside, whole - beside, whole], dtype=DTYPES[source])
    (got,) = kernels.run("_to_copy", [a], [Out(target, (3,))])
    up, even = 2.0**exponent * (1 + 2.0 ** (1 - bits)), 2.0**exponent
    expected = [up, even, even] if beside else [even, even, even]
    assert got.tolist() == expected


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_casts_out_of_range_do_not_trap(kernels: KernelRunner, source: str, target: str) -> None:
    a = torch.tensor([float("nan"), float("inf"), float("-inf"), 3e4, -3e4], dtype=DTYPES[source])
    (got,) = kernels.run("_to_copy", [a], [Out(target, (5,))])
    assert got.shape == a.shape


@pytest.mark.parametrize(
    ("op", "args", "out", "status"),
    [
        ("add.Tensor", [{"int": 1}, torch.ones(2), {"float": 1.0}], Out("f32", (2,)), 2),
        ("add.Tensor", [torch.ones(2), torch.ones(2), {"int": 1}], Out("f32", (2,)), 2),
        ("add.Tensor", [torch.ones(2), torch.ones(2), None], Out("f32", (2,)), 2),
        ("add.Tensor", [torch.ones(2), torch.ones(2)], Out("f32", (2,)), 2),
        ("add.Tensor", [torch.ones(2), torch.ones(3), {"float": 1.0}], Out("f32", (2,)), 2),
        ("add.Tensor", [torch.ones(2), torch.ones(2).double(), {"float": 1.0}], Out("f32", (2,)), 7),
        ("maximum", [torch.ones(2), {"float": 1.0}], Out("f32", (2,)), 2),
        ("exp", [torch.ones(2, dtype=torch.int64)], Out("i64", (2,)), 7),
        ("exp", [torch.ones([1] * 9)], Out("f32", (1,) * 9), 7),
        ("gelu", [torch.ones(2), {"string": "tan"}], Out("f32", (2,)), 2),
        ("where.self", [torch.ones(2), torch.ones(2), torch.ones(2)], Out("f32", (2,)), 7),
    ],
)
def test_refusals_come_from_plan(kernels: KernelRunner, op: str, args: Sequence[Any], out: Out, status: int) -> None:
    with pytest.raises(KernelError) as caught:
        kernels.run(op, args, [out])
    assert (caught.value.step, caught.value.status) == ("plan", status)
