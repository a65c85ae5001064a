"""Batch norm of the reference library, forward and backward, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .kernel_runner import KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, LAYOUTS, accumulator, assert_within, draw

aten = torch.ops.aten
EPS, MOMENTUM = 1e-5, 0.1
SHAPES: list[tuple[int, ...]] = [(2, 3), (300, 70), (4, 3, 5), (2, 9, 4, 150), (3, 2, 2, 3, 2)]


def _parameters(channels: int, dtype: str, seed: int) -> dict[str, torch.Tensor]:
    """weight, bias, running_mean and running_var, in layouts of their own."""
    names = ("weight", "bias", "running_mean", "running_var")
    made = {name: draw(dtype, (channels,), LAYOUTS[place % 2], seed + place) for place, name in enumerate(names)}
    return {**made, "running_var": made["running_var"].abs()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_norm(kernels: KernelRunner, dtype: str, whole: bool, training: bool) -> None:
    """whole: with weight, bias and running statistics; the latter are there without training, too."""
    u, second = accumulator(dtype), "f64" if dtype == "f64" else "f32"
    for seed, shape in enumerate(SHAPES):
        x, channels = draw(dtype, shape, LAYOUTS[seed % 3], seed), shape[1]
        given = _parameters(channels, second, seed + 20)
        tensors = [given[name] if whole else None for name in ("weight", "bias")]
        tensors += [given[name] if whole or not training else None for name in ("running_mean", "running_var")]
        wide = [None if tensor is None else tensor.double().clone() for tensor in tensors]
        expected = aten.native_batch_norm(x.double(), *wide, training, MOMENTUM, EPS)
        sizes = [channels if training else 0] * 2 + [channels if training and whole else 0] * 2
        outs = [Out(dtype, shape, spread_strides(shape)), *(Out(second, (size,)) for size in sizes)]
        numbers = [{"bool": training}, {"float": MOMENTUM}, {"float": EPS}]
        got = kernels.run("native_batch_norm", [x, *tensors, *numbers], outs)
        n = x.numel() // channels
        assert_within(got[0], expected[0], u * (40 * n**0.5 + 40) * (1 + expected[0].abs()), dtype)
        if training:
            for actual, reference in zip(got[1:3], expected[1:3], strict=True):
                assert_within(actual, reference, u * (20 + n) * (1 + reference.abs()), second)
        if training and whole:
            for actual, updated in zip(got[3:], wide[2:], strict=True):
                assert updated is not None
                assert_within(actual, updated, u * (20 + n) * (1 + updated.abs()), second)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_norm_gives_back(kernels: KernelRunner, dtype: str, weighted: bool, train: bool) -> None:
    """Every choice of wanted gradients gives the same ones."""
    u, second = accumulator(dtype), "f64" if dtype == "f64" else "f32"
    for seed, shape in enumerate(SHAPES):
        channels = shape[1]
        x, grad = draw(dtype, shape, LAYOUTS[seed % 3], seed), draw(dtype, shape, LAYOUTS[(seed + 1) % 3], seed + 7)
        given = _parameters(channels, second, seed + 20)
        saved = aten.native_batch_norm(x.double(), None, None, None, None, True, MOMENTUM, EPS)[1:]
        statistics = [None, None, *(value.to(given["weight"].dtype) for value in saved)] if train else None
        statistics = statistics or [given["running_mean"], given["running_var"], None, None]
        arguments = [grad, x, given["weight"] if weighted else None, *statistics]
        wide = [None if tensor is None else tensor.double() for tensor in arguments]
        expected = aten.native_batch_norm_backward(*wide, train, EPS, [True] * 3)
        n = x.numel() // channels
        size = float(expected[0].abs().max()) + 1
        for wanted in ((1, 1, 1), (1, 0, 0), (0, 1, 1), (0, 0, 1)):
            shapes: list[tuple[int, ...]] = [shape, (channels,), (channels,)]
            outs = [
                Out(name, own if asked else (0,), spread_strides(own) if asked else None)
                for name, own, asked in zip((dtype, second, second), shapes, wanted, strict=True)
            ]
            got = kernels.run("native_batch_norm_backward", [*arguments, {"bool": train}, {"float": EPS}], outs)
            for actual, reference, out, asked in zip(got, expected, outs, wanted, strict=True):
                if asked:
                    assert_within(actual, reference, u * 60 * (n + 1) ** 0.5 * (size + reference.abs()) * 8, out.dtype)


def test_wrong_batch_norms_are_refused(kernels: KernelRunner) -> None:
    x, one = torch.ones(2, 3, 2), torch.ones(3)
    numbers: list[Any] = [{"bool": True}, {"float": MOMENTUM}, {"float": EPS}]
    outs = [Out("f32", (2, 3, 2)), *[Out("f32", (3,))] * 4]
    without = [Out("f32", (2, 3, 2)), *[Out("f32", (0,))] * 4]
    running = [{"bool": False}, *numbers[1:]]
    wrong = [
        ([x, torch.ones(2), None, one, one, *numbers], outs, 2),
        ([x, None, None, None, None, *numbers], outs, 2),
        ([x, None, None, one, one, *running], outs, 2),
        ([x, None, None, one, None, *running], without, 2),
        ([torch.ones(3), None, None, one, one, *numbers], [Out("f32", (3,)), *outs[1:]], 2),
        ([x, None, None, one.double(), one, *numbers], outs, 7),
    ]
    for arguments, given, status in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run("native_batch_norm", arguments, given)
        assert (refused.value.step, refused.value.status) == ("plan", status)
    with pytest.raises(KernelError):
        kernels.run(
            "native_batch_norm_backward",
            [x, x, None, one, one, None, None, {"bool": True}, {"float": EPS}],
            [outs[0], outs[1], outs[1]],
        )
