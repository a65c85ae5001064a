"""Gradients of convolutions of the reference library against torch's on the CPU, in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from .convolution_arguments import arguments
from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, LAYOUTS, accumulator, assert_within, draw, kappa

CASES: list[dict[str, Any]] = [
    {"x": (2, 3, 11), "w": (4, 3, 3)},
    {"x": (1, 1, 1), "w": (1, 1, 1)},
    {"x": (2, 4, 300), "w": (6, 2, 5), "stride": (2,), "padding": (3,), "dilation": (2,), "groups": 2},
    {"x": (2, 3, 9, 8), "w": (5, 3, 3, 2)},
    {"x": (3, 4, 17, 13), "w": (6, 2, 3, 5), "stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 2},
    {"x": (1, 6, 7, 7), "w": (12, 1, 3, 3), "padding": (1, 1), "groups": 6},
    {"x": (2, 40, 20, 19), "w": (100, 40, 3, 3), "padding": (1, 1)},
    {"x": (1, 2, 4, 5), "w": (3, 2, 1, 1), "padding": (2, 0), "stride": (3, 1)},
    {"x": (0, 2, 5), "w": (3, 2, 3)},
    {"x": (2, 3, 5), "w": (3, 4, 3), "transposed": True},
    {"x": (2, 4, 30), "w": (4, 3, 5), "stride": (3,), "padding": (2,), "output_padding": (2,), "groups": 2,
     "transposed": True},
    {"x": (2, 3, 4, 5), "w": (3, 2, 3, 3), "stride": (2, 1), "padding": (1, 1), "output_padding": (1, 0),
     "transposed": True},
    {"x": (1, 6, 5, 7), "w": (6, 2, 3, 2), "dilation": (2, 3), "output_padding": (1, 2), "groups": 3,
     "transposed": True},
    {"x": (0, 3, 5), "w": (3, 4, 3), "transposed": True},
]  # fmt: skip


def _gradients(
    grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, channels: int, plain: list[Any]
) -> list[torch.Tensor]:
    """Torch's: grad_input, grad_weight, grad_bias. Not by autograd, which looks for devices of every kind."""
    tensors = (grad.double(), x.double(), w.double())
    return list(torch.ops.aten.convolution_backward(*tensors, [channels], *plain, [True, True, True]))


def _check(kernels: KernelRunner, case: dict[str, Any], dtype: str, seed: int, wanted: tuple[bool, ...]) -> None:
    plain, slots = arguments(case, case.get("transposed", False))
    layouts = [LAYOUTS[(seed + place) % 3] if 0 not in case["x"] else "contiguous" for place in range(3)]
    x, w = draw(dtype, case["x"], layouts[0], seed), draw(dtype, case["w"], layouts[1], seed + 50)
    channels = case["w"][1] * case.get("groups", 1) if case.get("transposed") else case["w"][0]
    shape = torch.ops.aten.convolution(x.double(), w.double(), None, *plain).shape
    grad = draw(dtype, shape, layouts[2], seed + 70)
    exact = _gradients(grad, x, w, channels, plain)
    sizes = _gradients(grad.abs(), x.abs(), w.abs(), channels, plain)
    outs = []
    for want, value in zip(wanted, exact, strict=True):
        made = tuple(value.shape) if want else (0,)
        outs.append(Out(dtype, made, spread_strides(made) if seed % 2 else None))
    actual = kernels.run("convolution_backward", [grad, x, w, *slots], outs)
    narrow = x if case.get("transposed") else grad
    sums = grad.numel() // channels
    terms = (grad.shape[1] // plain[-1] * w[0, 0].numel(), narrow.numel() // narrow.shape[1], sums)
    for want, got, value, size, n in zip(wanted, actual, exact, sizes, terms, strict=True):
        if want:
            assert_within(got, value, accumulator(dtype) * kappa(n + 1) * size, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradients_are_torchs(kernels: KernelRunner, number: int, dtype: str) -> None:
    for seed in range(number, number + 2):
        _check(kernels, CASES[number], dtype, seed, (True, True, True))


@pytest.mark.parametrize("wanted", list(product((True, False), repeat=3)))
def test_unwanted_gradients_are_left_alone(kernels: KernelRunner, wanted: tuple[bool, ...]) -> None:
    for number in (4, 10):
        _check(kernels, CASES[number], "f32", number, wanted)


def test_channels_last(kernels: KernelRunner) -> None:
    case = {"x": (2, 5, 6, 7), "w": (4, 5, 3, 3), "padding": (1, 1)}
    plain, slots = arguments(case, False)
    last = torch.channels_last
    x, w, grad = (
        draw("f32", shape, "contiguous", place).contiguous(memory_format=last)
        for place, shape in enumerate((case["x"], case["w"], (2, 4, 6, 7)))
    )
    exact, sizes = (_gradients(*args, 4, plain) for args in ((grad, x, w), (grad.abs(), x.abs(), w.abs())))
    outs = [Out("f32", (2, 5, 6, 7), (210, 1, 35, 5)), Out("f32", (4, 5, 3, 3), (45, 1, 15, 5)), Out("f32", (4,))]
    actual = kernels.run("convolution_backward", [grad, x, w, *slots], outs)
    for got, value, size, n in zip(actual, exact, sizes, (36, 84, 84), strict=True):
        assert_within(got, value, accumulator("f32") * kappa(n + 1) * size, "f32")


def test_sums_of_halves_are_kept_in_f32(kernels: KernelRunner) -> None:
    """4096 ones in f16 and 1024 in bf16: one more would be lost in the type itself."""
    for dtype, n in (("f16", 4096), ("bf16", 1024)):
        x = torch.ones(2, 1, n // 2, dtype=DTYPES[dtype])
        w = torch.ones(1, 1, 1, dtype=DTYPES[dtype])
        _, slots = arguments({"x": x.shape}, False)
        outs = [Out(dtype, (0,)), Out(dtype, (1, 1, 1)), Out(dtype, (1,))]
        results = kernels.run("convolution_backward", [x, x, w, *slots], outs)
        assert [value.tolist() for value in results[1:]] == [[[[n]]], [n]]


def test_gradients_of_wrong_shapes_are_refused(kernels: KernelRunner) -> None:
    x, w, grad = torch.ones(1, 4, 9), torch.ones(6, 2, 3), torch.ones(1, 6, 7)
    _, slots = arguments({"x": x.shape, "groups": 2}, False)
    good = [Out("f32", (1, 4, 9)), Out("f32", (6, 2, 3)), Out("f32", (6,))]
    kernels.run("convolution_backward", [grad, x, w, *slots], good)
    wrong = [(grad[:, :, 1:], good), (grad, [Out("f32", (1, 4, 8)), *good[1:]]), (grad, [*good[:2], Out("f32", (5,))])]
    wrong += [(grad, [good[0], Out("f32", (6, 2, 0)), good[2]]), (grad, [good[0], Out("f32", (2, 6, 3)), good[2]])]
    for gradient, outs in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run("convolution_backward", [gradient, x, w, *slots], outs)
        assert (refused.value.step, refused.value.status) == ("plan", 2)
