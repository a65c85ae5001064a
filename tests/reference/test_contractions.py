"""mm, bmm, addmm and convolution of the reference library against torch in float64 and wrapping integers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .convolution_arguments import arguments
from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, INTEGERS, LAYOUTS, accumulator, assert_within, draw, kappa

# m, k, n: nothing, ones, primes, the edges of panels (6, 8, 16) and of blocks (96, 256), and past them.
SHAPES = [
    (0, 3, 2),
    (3, 0, 2),
    (2, 3, 0),
    (1, 1, 1),
    (7, 5, 3),
    (6, 16, 16),
    (13, 17, 19),
    (97, 257, 31),
    (5, 300, 259),
]


def _check_product(
    actual: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dtype: str, alpha: float = 1.0, rest: Any = 0
) -> None:
    """actual is alpha * (a @ b) + rest; rest is exact in float64 or integers."""
    if dtype not in FLOATS:
        expected = int(alpha) * torch.matmul(a.long(), b.long()) + rest
        assert torch.equal(actual, expected.to(DTYPES[dtype]))
        return
    u = accumulator(dtype)
    exact = alpha * torch.matmul(a.double(), b.double()) + rest
    size = abs(alpha) * torch.matmul(a.double().abs(), b.double().abs()) + abs(rest)
    # Inputs with stride 0 repeat: no root. 2 factors more for alpha and beta.
    growth = a.shape[-1] + 3 if 0 in (*a.stride(), *b.stride()) else kappa(a.shape[-1] + 3)
    assert_within(actual, exact, u * growth * size, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_mm(kernels: KernelRunner, dtype: str, layout: str) -> None:
    for seed, (m, k, n) in enumerate(SHAPES):
        a = draw(dtype, (m, k), layout, seed)
        b = draw(dtype, (k, n), LAYOUTS[(LAYOUTS.index(layout) + seed) % 4], seed + 100)
        strides = spread_strides((m, n)) if seed % 2 else None
        _check_product(kernels.run("mm", [a, b], [Out(dtype, (m, n), strides)])[0], a, b, dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_bmm(kernels: KernelRunner, dtype: str) -> None:
    for seed, (m, k, n) in enumerate(SHAPES):
        for batch, layout in ((3, LAYOUTS[seed % 4]), (0, "contiguous")):
            a = draw(dtype, (batch, m, k), layout if batch else "contiguous", seed)
            b = draw(dtype, (batch, k, n), "contiguous", seed + 100)
            strides = spread_strides((batch, m, n)) if seed % 2 else None
            _check_product(kernels.run("bmm", [a, b], [Out(dtype, (batch, m, n), strides)])[0], a, b, dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_addmm(kernels: KernelRunner, dtype: str) -> None:
    factors = [(1.0, 1.0), (0.0, 2.0), (-3.0, 0.0), (2.0, -1.0)]
    for seed, (m, k, n) in enumerate(SHAPES):
        a = draw(dtype, (m, k), LAYOUTS[seed % 3], seed)
        b = draw(dtype, (k, n), LAYOUTS[(seed + 1) % 3], seed + 100)
        bias = draw(dtype, (n,), "contiguous", seed + 200).expand(m, n)
        for beta, alpha in factors:
            kind = "float" if dtype in FLOATS else "int"
            numbers = [{kind: beta if dtype in FLOATS else int(beta)}, {kind: alpha if dtype in FLOATS else int(alpha)}]
            actual = kernels.run("addmm", [bias, a, b, *numbers], [Out(dtype, (m, n))])[0]
            rest = beta * bias.double() if dtype in FLOATS else int(beta) * bias.long()
            _check_product(actual, a, b, dtype, alpha, rest)


@pytest.mark.parametrize("dtype", FLOATS)
def test_addmm_beta_zero_ignores_nan(kernels: KernelRunner, dtype: str) -> None:
    bias = torch.full((2, 3), float("nan"), dtype=DTYPES[dtype])
    a = torch.ones(2, 4, dtype=DTYPES[dtype])
    b = torch.ones(4, 3, dtype=DTYPES[dtype])
    numbers = [{"float": 0.0}, {"float": 0.5}]
    assert (kernels.run("addmm", [bias, a, b, *numbers], [Out(dtype, (2, 3))])[0] == 2).all()
    numbers = [{"float": 1.0}, {"float": 0.5}]
    assert kernels.run("addmm", [bias, a, b, *numbers], [Out(dtype, (2, 3))])[0].isnan().all()


def test_halves_are_accumulated_in_f32(kernels: KernelRunner) -> None:
    for dtype, k in (("f16", 4096), ("bf16", 1024)):
        a = torch.ones(1, k, dtype=DTYPES[dtype])
        assert kernels.run("mm", [a, a.t()], [Out(dtype, (1, 1))])[0].item() == k


def test_wrong_matrices_are_refused(kernels: KernelRunner) -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    wrong: list[tuple[str, list[Any], Out, int]] = [
        ("mm", [a, b.t()], Out("f32", (2, 3)), 2),
        ("mm", [a, b], Out("f32", (4, 2)), 2),
        ("mm", [a, b.double()], Out("f32", (2, 4)), 7),
        ("mm", [a.bool(), b.bool()], Out("bool", (2, 4)), 7),
        ("bmm", [a, b], Out("f32", (2, 4)), 2),
        ("addmm", [torch.ones(2, 4), a, b, {"int": 1}, {"float": 1.0}], Out("f32", (2, 4)), 2),
        ("addmm", [torch.ones(4), a, b, {"float": 1.0}, {"float": 1.0}], Out("f32", (2, 4)), 2),
    ]
    for op, args, out, status in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run(op, args, [out])
        assert (refused.value.step, refused.value.status) == ("plan", status)


# batch, in channels, spatial sizes, out channels, kernel, stride, padding, dilation, output padding, groups
CONVOLUTIONS: list[dict[str, Any]] = [
    {"x": (2, 3, 11), "w": (4, 3, 3)},
    {"x": (1, 1, 1), "w": (1, 1, 1)},
    {"x": (0, 2, 5), "w": (3, 2, 3)},
    {"x": (2, 4, 300), "w": (6, 2, 5), "stride": (2,), "padding": (3,), "dilation": (2,), "groups": 2},
    {"x": (2, 3, 9, 8), "w": (5, 3, 3, 2)},
    {"x": (3, 4, 17, 13), "w": (6, 2, 3, 5), "stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 2},
    {"x": (1, 6, 7, 7), "w": (12, 1, 3, 3), "padding": (1, 1), "groups": 6},
    {"x": (2, 40, 20, 19), "w": (100, 40, 3, 3), "padding": (1, 1)},
    {"x": (1, 2, 4, 5), "w": (3, 2, 1, 1), "padding": (2, 0), "stride": (3, 1)},
]
TRANSPOSED: list[dict[str, Any]] = [
    {"x": (2, 3, 5), "w": (3, 4, 3)},
    {"x": (2, 4, 30), "w": (4, 3, 5), "stride": (3,), "padding": (2,), "output_padding": (2,), "groups": 2},
    {"x": (0, 3, 5), "w": (3, 4, 3)},
    {"x": (2, 3, 4, 5), "w": (3, 2, 3, 3), "stride": (2, 1), "padding": (1, 1), "output_padding": (1, 0)},
    {"x": (1, 6, 5, 7), "w": (6, 2, 3, 2), "stride": (2, 3), "dilation": (2, 3), "output_padding": (1, 2), "groups": 3},
    {"x": (1, 20, 17, 18), "w": (20, 30, 2, 2), "stride": (2, 2)},
]


def _check_convolution(kernels: KernelRunner, case: dict[str, Any], transposed: bool, dtype: str, seed: int) -> None:
    plain, slots = arguments(case, transposed)
    x = draw(dtype, case["x"], LAYOUTS[seed % 3] if 0 not in case["x"] else "contiguous", seed)
    w = draw(dtype, case["w"], LAYOUTS[(seed + 1) % 3], seed + 50)
    channels = case["w"][1] * case.get("groups", 1) if transposed else case["w"][0]
    bias = draw(dtype, (channels,), "gaps", seed + 70) if seed % 2 else None
    b64 = None if bias is None else bias.double()
    exact = torch.ops.aten.convolution(x.double(), w.double(), b64, *plain)
    size = torch.ops.aten.convolution(x.double().abs(), w.double().abs(), None if b64 is None else b64.abs(), *plain)
    strides = spread_strides(exact.shape) if seed % 3 == 1 else None
    actual = kernels.run("convolution", [x, w, bias, *slots], [Out(dtype, tuple(exact.shape), strides)])[0]
    terms = w.numel() // max(w.shape[1 if transposed else 0], 1)
    assert_within(actual, exact, accumulator(dtype) * kappa(terms + 2) * size, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolution(kernels: KernelRunner, number: int, dtype: str) -> None:
    for seed in range(number, number + 2):
        _check_convolution(kernels, CONVOLUTIONS[number], False, dtype, seed)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(TRANSPOSED)))
def test_transposed_convolution(kernels: KernelRunner, number: int, dtype: str) -> None:
    for seed in range(number, number + 2):
        _check_convolution(kernels, TRANSPOSED[number], True, dtype, seed)


def test_convolution_channels_last(kernels: KernelRunner) -> None:
    x = draw("f32", (2, 5, 6, 7), "contiguous", 1).contiguous(memory_format=torch.channels_last)
    w = draw("f32", (4, 5, 3, 3), "contiguous", 2).contiguous(memory_format=torch.channels_last)
    plain, slots = arguments({"x": x.shape, "padding": (1, 1)}, False)
    exact = torch.ops.aten.convolution(x.double(), w.double(), None, *plain)
    size = torch.ops.aten.convolution(x.double().abs(), w.double().abs(), None, *plain)
    actual = kernels.run("convolution", [x, w, None, *slots], [Out("f32", (2, 4, 6, 7), (168, 1, 28, 4))])[0]
    assert_within(actual, exact, accumulator("f32") * kappa(46) * size, "f32")


def test_padding_multiplies_by_zero_and_transposing_does_not(kernels: KernelRunner) -> None:
    """As in ATen: an infinite weight meets padding as 0 * inf, but no position outside a transposed input."""
    x = torch.ones(1, 1, 3)
    w = torch.full((1, 1, 3), float("inf"))
    _, slots = arguments({"x": x.shape, "padding": (1,)}, False)
    padded = kernels.run("convolution", [x, w, None, *slots], [Out("f32", (1, 1, 3))])[0]
    assert padded.isnan().tolist() == [[[True, False, True]]]
    _, slots = arguments({"x": x.shape, "stride": (2,), "output_padding": (1,)}, True)
    widened = kernels.run("convolution", [x, w, None, *slots], [Out("f32", (1, 1, 8))])[0]
    assert widened[0, 0].tolist() == [float("inf")] * 7 + [0.0]


def test_wrong_convolutions_are_refused(kernels: KernelRunner) -> None:
    x, w = torch.ones(1, 4, 9), torch.ones(6, 2, 3)
    good = {"x": x.shape, "groups": 2}
    wrong: list[tuple[dict[str, Any], tuple[int, ...], int]] = [
        ({**good, "groups": 3}, (1, 6, 7), 2),
        ({**good, "groups": 0}, (1, 6, 7), 2),
        ({**good, "stride": (0,)}, (1, 6, 7), 2),
        ({**good, "padding": (-1,)}, (1, 6, 5), 2),
        ({**good, "stride": (1, 1)}, (1, 6, 7), 2),
        ({**good, "dilation": (5,)}, (1, 6, 0), 2),
        (good, (1, 6, 8), 2),
        ({**good, "padding": (2**40,)}, (1, 6, 7), 7),
    ]
    for case, shape, status in wrong:
        _, slots = arguments(case, False)
        with pytest.raises(KernelError) as refused:
            kernels.run("convolution", [x, w, None, *slots], [Out("f32", shape)])
        assert (refused.value.step, refused.value.status) == ("plan", status)
    cube = torch.ones(1, 1, 3, 3, 3)
    _, slots = arguments({"x": cube.shape}, False)
    with pytest.raises(KernelError) as refused:
        kernels.run("convolution", [cube, cube, None, *slots], [Out("f32", (1, 1, 1, 1, 1))])
    assert (refused.value.step, refused.value.status) == ("plan", 7)
