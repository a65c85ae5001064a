"""sum, mean, prod, amax, amin, argmax, any, var and cumsum of the reference library against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, INTEGERS, LAYOUTS, accumulator, assert_within, draw, kappa

ALL = (*FLOATS, *INTEGERS, "bool")
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((1,), (0,)),
    ((0, 3), (0,)),
    ((0, 3), (1,)),
    ((257,), (0,)),
    ((7, 300), (1,)),
    ((300, 17), (0,)),
    ((3, 5, 7), (0, 2)),
    ((2, 3, 65, 4), (1, 2)),
    ((13, 1, 11), (0, 1, 2)),
]


def _widened(dtype: str) -> str:
    return dtype if dtype in FLOATS else "i64"


def _kept(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if d in dims else size for d, size in enumerate(shape))


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    count = 1
    for d in dims:
        count *= shape[d]
    return count


def _reduce(
    kernels: KernelRunner, op: str, x: torch.Tensor, dims: tuple[int, ...], out: str, *more: Any, spread: bool = False
) -> torch.Tensor:
    shape = _kept(tuple(x.shape), dims)
    strides = spread_strides(shape) if spread else None
    return kernels.run(op, [x, {"ints": list(dims)}, *more], [Out(out, shape, strides)])[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALL)
def test_sum(kernels: KernelRunner, dtype: str, layout: str) -> None:
    for seed, (shape, dims) in enumerate(SHAPES):
        x = draw(dtype, shape, layout, seed)
        actual = _reduce(kernels, "sum.dim_IntList", x, dims, _widened(dtype), spread=seed % 2 == 1)
        if dtype not in FLOATS:
            assert torch.equal(actual, x.sum(dims, keepdim=True) if dims else x.long())
            continue
        exact = x.double().sum(dims, keepdim=True) if dims else x.double()
        size = x.double().abs().sum(dims, keepdim=True) if dims else x.double().abs()
        h = _count(shape, dims) if layout == "stride_zero" else kappa(_count(shape, dims))
        assert_within(actual, exact, accumulator(dtype) * h * size, dtype)


def test_sum_of_many_equal_values(kernels: KernelRunner) -> None:
    x = torch.full((100_000,), 0.1)
    actual = _reduce(kernels, "sum.dim_IntList", x, (0,), "f32")
    assert_within(actual, x.double().sum(0, keepdim=True), 1e5 * accumulator("f32") * 1e4, "f32")


def test_half_sums_are_not_accumulated_in_halves(kernels: KernelRunner) -> None:
    actual = _reduce(kernels, "sum.dim_IntList", torch.ones(4096, dtype=torch.float16), (0,), "f16")
    assert actual.item() == 4096  # an f16 accumulator stops at 2048
    actual = _reduce(kernels, "sum.dim_IntList", torch.ones(1024, dtype=torch.bfloat16), (0,), "bf16")
    assert actual.item() == 1024  # a bf16 accumulator stops at 256


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_mean(kernels: KernelRunner, dtype: str, layout: str) -> None:
    for seed, (shape, dims) in enumerate(SHAPES):
        x = draw(dtype, shape, layout, seed)
        actual = _reduce(kernels, "mean.dim", x, dims, dtype)
        n = _count(shape, dims)
        exact = x.double().mean(dims, keepdim=True) if dims else x.double()
        size = x.double().abs().mean(dims, keepdim=True).nan_to_num() if dims else x.double().abs()
        h = n if layout == "stride_zero" else kappa(n)
        assert_within(actual, exact, accumulator(dtype) * (h * size + exact.abs().nan_to_num()), dtype)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("op", ["amax", "amin"])
def test_extremes(kernels: KernelRunner, op: str, dtype: str) -> None:
    for layout in LAYOUTS:
        for seed, (shape, dims) in enumerate(SHAPES):
            if not dims or _count(shape, dims) == 0:
                continue
            x = draw(dtype, shape, layout, seed)
            expected = getattr(torch, op)(x, dims, keepdim=True)
            assert torch.equal(_reduce(kernels, op, x, dims, dtype, spread=seed % 2 == 0), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_hand_nan_on(kernels: KernelRunner, dtype: str) -> None:
    x = draw(dtype, (11, 9), "contiguous", 3)
    x[4, 2] = float("nan")
    x[0, 5] = float("-inf")
    x[10, 5] = float("inf")
    for op in ("amax", "amin"):
        for dims in ((0,), (1,), (0, 1)):
            expected = getattr(torch, op)(x, dims, keepdim=True)
            actual = _reduce(kernels, op, x, dims, dtype)
            assert torch.equal(actual.nan_to_num(nan=77.0), expected.nan_to_num(nan=77.0))
            assert actual.isnan().any()


@pytest.mark.parametrize("op", ["amax", "amin", "argmax"])
def test_extremes_of_nothing_are_refused(kernels: KernelRunner, op: str) -> None:
    slot = {"int": 0} if op == "argmax" else {"ints": [0]}
    out = "i64" if op == "argmax" else "f32"
    with pytest.raises(KernelError) as refused:
        kernels.run(op, [torch.zeros(0, 3), slot], [Out(out, (1, 3))])
    assert (refused.value.step, refused.value.status) == ("plan", 2)
    assert kernels.run(op, [torch.zeros(3, 0), slot], [Out(out, (1, 0))])[0].numel() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_argmax(kernels: KernelRunner, dtype: str, layout: str) -> None:
    for seed, (shape, dim) in enumerate([((), 0), ((1,), 0), ((300,), 0), ((7, 5), 0), ((3, 5, 257), 2)]):
        x = draw(dtype, shape, layout, seed)
        if dtype in FLOATS and x.numel() > 4 and layout == "contiguous":
            x.view(-1)[x.numel() // 2 :: 7] = float("nan")
            x.view(-1)[: x.numel() // 3] = float("inf")
        kept = _kept(shape, (dim,) if shape else ())
        expected = torch.argmax(x, dim, keepdim=True)
        assert torch.equal(kernels.run("argmax", [x, {"int": dim}], [Out("i64", kept)])[0], expected)


def test_argmax_takes_the_first_of_equals(kernels: KernelRunner) -> None:
    x = torch.tensor([[3, 1, 3, 3], [0, 7, 7, 7]], dtype=torch.int32)
    assert kernels.run("argmax", [x, {"int": 1}], [Out("i64", (2, 1))])[0].tolist() == [[0], [1]]
    low = torch.full((4,), float("-inf"))
    assert kernels.run("argmax", [low, {"int": 0}], [Out("i64", (1,))])[0].tolist() == [0]


@pytest.mark.parametrize("dtype", ALL)
def test_prod(kernels: KernelRunner, dtype: str) -> None:
    for seed, (shape, dim) in enumerate([((), 0), ((0, 3), 0), ((9,), 0), ((5, 12), 0), ((3, 10, 4), 1)]):
        x = draw(dtype, shape, LAYOUTS[seed % 3], seed)
        kept = _kept(shape, (dim,) if shape else ())
        actual = kernels.run("prod.dim_int", [x, {"int": dim}], [Out(_widened(dtype), kept)])[0]
        if dtype in FLOATS:
            exact = torch.prod(x.double(), dim, keepdim=True)
            assert_within(actual, exact, 12 * accumulator(dtype) * exact.abs(), dtype)
        else:
            assert torch.equal(actual, torch.prod(x, dim, keepdim=True))


@pytest.mark.parametrize("dtype", ALL)
def test_any(kernels: KernelRunner, dtype: str) -> None:
    out = "u8" if dtype == "u8" else "bool"
    for seed, (shape, dim) in enumerate([((), 0), ((0, 3), 0), ((9,), 0), ((300, 12), 0), ((3, 300, 4), 1)]):
        x = draw(dtype, shape, LAYOUTS[seed % 3], seed).contiguous()
        x = x * (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.004).to(x.dtype)
        if dtype in FLOATS and len(shape) == 2 and shape[0]:
            x[7, 3] = float("nan")
            x[8, 4] = -0.0
        kept = _kept(shape, (dim,) if shape else ())
        actual = kernels.run("any.dim", [x, {"int": dim}], [Out(out, kept)])[0]
        assert torch.equal(actual, torch.any(x, dim, keepdim=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_var(kernels: KernelRunner, dtype: str, layout: str) -> None:
    for seed, (shape, dims) in enumerate(SHAPES):
        if not dims:
            continue
        for correction in (0.0, 1.0, 2.5):
            x = draw(dtype, shape, layout, seed)
            actual = _reduce(kernels, "var.correction", x, dims, dtype, {"float": correction})
            _check_variance(actual, x, dims, correction, dtype, constant=layout == "stride_zero")


def _check_variance(
    actual: torch.Tensor, x: torch.Tensor, dims: tuple[int, ...], correction: float, dtype: str, constant: bool
) -> None:
    n = _count(tuple(x.shape), dims)
    u = accumulator(dtype)
    away = x.double() - x.double().mean(dims, keepdim=True)  # torch.var itself is off by more in f64
    exact = away.square().sum(dims, keepdim=True) / max(n - correction, 0.0)
    size = x.double().abs().mean(dims, keepdim=True).nan_to_num()
    growth = n if constant else kappa(n)
    slack = (u * growth * size) ** 2 * n / max(n - correction, 1)
    assert_within(actual, exact, exact.abs().nan_to_num(posinf=0) * (growth + 3) * u + slack, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_var_far_from_zero(kernels: KernelRunner, dtype: str) -> None:
    sigma = 1.0 if dtype in ("f32", "f64") else 8.0
    base = draw("f64", (5, 2000), "contiguous", 9) * sigma + 1000 * sigma
    x = base.to(DTYPES[dtype])
    for view, dims in ((x, (1,)), (x.t(), (0,))):
        actual = _reduce(kernels, "var.correction", view, dims, dtype, {"float": 1.0})
        _check_variance(actual, view, dims, 1.0, dtype, constant=False)


@pytest.mark.parametrize("dtype", ALL)
def test_cumsum(kernels: KernelRunner, dtype: str) -> None:
    for seed, (shape, dim) in enumerate([((), 0), ((0, 3), 0), ((600,), 0), ((5, 300), 1), ((300, 4), 0)]):
        for layout in LAYOUTS:
            x = draw(dtype, shape, layout, seed)
            out = Out(_widened(dtype), shape, spread_strides(shape) if seed % 2 else None)
            actual = kernels.run("cumsum", [x, {"int": dim}], [out])[0]
            if dtype in FLOATS:
                size = x.double().abs().cumsum(dim)
                length = shape[dim] if shape else 1
                growth = length if layout == "stride_zero" else kappa(length)
                assert_within(actual, x.double().cumsum(dim), accumulator(dtype) * growth * size, dtype)
            else:
                assert torch.equal(actual, x.cumsum(dim))


def test_wrong_calls_are_refused(kernels: KernelRunner) -> None:
    x = torch.ones(3, 4)
    wrong: list[tuple[Any, Out, int]] = [
        ({"int": 0}, Out("f32", (1, 4)), 2),
        ({"ints": [2]}, Out("f32", (1, 4)), 2),
        ({"ints": [-1]}, Out("f32", (3, 1)), 2),
        ({"ints": [0, 0]}, Out("f32", (1, 4)), 2),
        ({"ints": [0]}, Out("f32", (4,)), 2),
        ({"ints": [0]}, Out("f32", (3, 1)), 2),
        ({"ints": [0]}, Out("f64", (1, 4)), 7),
    ]
    for dims, out, status in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run("sum.dim_IntList", [x, dims], [out])
        assert (refused.value.step, refused.value.status) == ("plan", status)
