"""softmax, log_softmax and layer norm of the reference library against torch in float64."""

from __future__ import annotations

import pytest
import torch

from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, LAYOUTS, accumulator, assert_within, draw, kappa

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((), 0),
    ((1,), 0),
    ((0, 4), 1),
    ((4, 0), 1),
    ((600,), 0),
    ((5, 257), 1),
    ((31, 7), 0),
    ((3, 11, 5), 1),
]


def _softmax_bound(x: torch.Tensor, dim: int, dtype: str, logarithm: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact result and bound: Blanchard, Higham and Higham 2021, shifted form, with the error of exp explicit."""
    x = x.double()
    u = accumulator(dtype)
    exact = torch.log_softmax(x, dim) if logarithm else torch.softmax(x, dim)
    if x.numel() == 0:
        return exact, exact
    away = (x - x.amax(dim, keepdim=True)).abs()
    n = x.shape[dim] if x.dim() else 1
    spread = (torch.softmax(x, dim) * away).sum(dim, keepdim=True)
    if logarithm:
        return exact, u * (float(n) + spread + 6 + away + exact.abs()) + 6 * u
    return exact, exact * u * (away + spread + float(n) + 14) + 2.0**-126


@pytest.mark.parametrize("op", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(kernels: KernelRunner, dtype: str, scale: float, op: str) -> None:
    for seed, (shape, dim) in enumerate(SHAPES):
        for layout in LAYOUTS:
            if layout == "stride_zero" and 0 in shape:
                continue
            x = draw(dtype, shape, layout, seed, scale)
            out = Out(dtype, shape, spread_strides(shape) if seed % 2 else None)
            actual = kernels.run(op, [x, {"int": dim}, {"bool": False}], [out])[0]
            exact, bound = _softmax_bound(x, dim, dtype, op == "_log_softmax")
            assert_within(actual, exact, bound, dtype)


@pytest.mark.parametrize("op", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_infinities(kernels: KernelRunner, dtype: str, op: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, -inf, -inf], [-inf, 1.0, 2.0], [inf, 1.0, 2.0], [nan, 1.0, 2.0]], dtype=DTYPES[dtype])
    actual = kernels.run(op, [x, {"int": 1}, {"bool": False}], [Out(dtype, (4, 3))])[0]
    expected = (torch.softmax if op == "_softmax" else torch.log_softmax)(x.double(), 1)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-2, atol=0, equal_nan=True)


def test_half_to_float_is_not_offered(kernels: KernelRunner) -> None:
    x = torch.ones(2, 3, dtype=torch.float16)
    for out, status in (("f16", 7), ("f32", 7)):
        with pytest.raises(KernelError) as refused:
            kernels.run("_softmax", [x, {"int": 1}, {"bool": True}], [Out(out, (2, 3))])
        assert (refused.value.step, refused.value.status) == ("plan", status)


# shape, normalised dimensions
NORMS: list[tuple[tuple[int, ...], int]] = [
    ((1,), 1),
    ((300,), 1),
    ((0, 4), 1),
    ((3, 0), 1),
    ((7, 257), 1),
    ((4, 3, 5), 2),
    ((2, 3, 4, 150), 2),
]
EPS = 1e-5


def _check_norm(
    kernels: KernelRunner, x: torch.Tensor, dims: int, dtype: str, seed: int, weighted: bool, biased: bool
) -> None:
    shape = tuple(x.shape)
    normal = shape[len(shape) - dims :]
    weight = draw(dtype, normal, LAYOUTS[seed % 3], seed + 30) if weighted else None
    bias = draw(dtype, normal, LAYOUTS[(seed + 1) % 3], seed + 60) if biased else None
    stats = shape[: len(shape) - dims] + (1,) * dims
    stats_dtype = "f64" if dtype == "f64" else "f32"
    strides = spread_strides(shape) if seed % 2 else None
    outs = [Out(dtype, shape, strides), Out(stats_dtype, stats), Out(stats_dtype, stats)]
    args = [x, {"ints": list(normal)}, weight, bias, {"float": EPS}]
    out, mean, rstd = kernels.run("native_layer_norm", args, outs)
    if x.numel() == 0:
        expected = torch.native_layer_norm(x.float(), normal, None, None, EPS)
        assert torch.equal(mean.float(), expected[1])
        assert torch.equal(rstd.isnan(), expected[2].isnan())
        return
    u, n, over = accumulator(dtype), x[(0,) * (x.dim() - dims)].numel(), tuple(range(len(shape) - dims, len(shape)))
    x64 = x.double()
    mu = x64.mean(over, keepdim=True)
    size = x64.abs().mean(over, keepdim=True)
    away = (x64 - mu).abs()
    s = (away.square().mean(over, keepdim=True) + EPS).sqrt()
    w64 = torch.ones(normal, dtype=torch.float64) if weight is None else weight.double()
    b64 = torch.zeros(normal, dtype=torch.float64) if bias is None else bias.double()
    exact = (x64 - mu) / s * w64 + b64
    delta = u * (kappa(n) + 1) * size
    relative = 0.5 * (kappa(n) + 3) * u + 0.5 * (delta / s).square() + 4 * u
    bound = w64.abs() / s * (delta + u * away) + w64.abs() * away / s * relative + u * exact.abs()
    assert_within(out, exact, bound, dtype)
    assert_within(mean, mu, delta, stats_dtype)
    assert_within(rstd, 1 / s, relative / s, stats_dtype)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(kernels: KernelRunner, dtype: str, biased: bool, weighted: bool) -> None:
    for seed, (shape, dims) in enumerate(NORMS):
        x = draw(dtype, shape, LAYOUTS[seed % 3] if 0 not in shape else "contiguous", seed)
        _check_norm(kernels, x, dims, dtype, seed, weighted, biased)


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_far_from_zero(kernels: KernelRunner, dtype: str) -> None:
    sigma = 1.0 if dtype in ("f32", "f64") else 8.0
    x = (draw("f64", (5, 700), "contiguous", 4) * sigma + 1000 * sigma).to(DTYPES[dtype])
    _check_norm(kernels, x, 1, dtype, 0, True, True)
    _check_norm(kernels, (x / (1000 * sigma) * 1e-3).to(DTYPES[dtype]), 1, dtype, 1, False, True)


def test_wrong_layer_norms_are_refused(kernels: KernelRunner) -> None:
    x = torch.ones(2, 3)
    good = [Out("f32", (2, 3)), Out("f32", (2, 1)), Out("f32", (2, 1))]
    wrong = [
        ([x, {"ints": [2]}, None, None, {"float": EPS}], good, 2),
        ([x, {"ints": []}, None, None, {"float": EPS}], good, 2),
        ([x, {"ints": [3]}, torch.ones(2), None, {"float": EPS}], good, 2),
        ([x, {"ints": [3]}, None, torch.ones(3, 1), {"float": EPS}], good, 2),
        ([x, {"ints": [3]}, None, None, {"int": 0}], good, 2),
        ([x, {"ints": [3]}, None, None, {"float": EPS}], [*good[:2], Out("f32", (2,))], 2),
        ([x, {"ints": [3]}, torch.ones(3).double(), None, {"float": EPS}], good, 7),
    ]
    for args, outs, status in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run("native_layer_norm", args, outs)
        assert (refused.value.step, refused.value.status) == ("plan", status)
