"""nll_loss, and what losses and softmax give back, of the reference library against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, LAYOUTS, accumulator, assert_within, draw

aten = torch.ops.aten

# batch and classes; no batch: self has one dimension
SHAPES: list[tuple[int, ...]] = [(1, 1), (0, 4), (5, 3), (7, 13), (600, 10), (3, 1000), (6,)]
IGNORES = (-100, 1, -3)


def _targets(shape: tuple[int, ...], ignore: int, seed: int) -> torch.Tensor:
    """A third of the targets is to be ignored."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, shape[-1], shape[:-1], generator=generator)
    return torch.where(torch.rand(shape[:-1], generator=generator) < 0.3, ignore, target)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nll_loss(kernels: KernelRunner, dtype: str, weighted: bool, reduction: int) -> None:
    u = accumulator(dtype)
    for seed, shape in enumerate(SHAPES):
        x = draw(dtype, shape, LAYOUTS[seed % 3], seed)
        ignore = IGNORES[seed % 3]
        target = _targets(shape, ignore, seed)
        weight = draw(dtype, shape[-1:], LAYOUTS[seed % 2], seed + 9).abs() if weighted else None
        w64 = weight.double() if weight is not None else None
        loss, total = aten.nll_loss_forward(x.double(), target, w64, reduction, ignore)
        outs = [Out(dtype, tuple(loss.shape), spread_strides(loss.shape)), Out(dtype, ())]
        arguments = [target, weight, {"int": reduction}, {"int": ignore}]
        got_loss, got_total = kernels.run("nll_loss_forward", [x, *arguments], outs)
        n = max(target.numel(), 1)
        size = aten.nll_loss_forward(-x.double().abs(), target, w64, reduction, ignore)[0]
        assert_within(got_loss, loss, (2 * n + 3) * u * size.nan_to_num(), dtype)
        assert_within(got_total, total, n * u * total, dtype)

        grad = draw(dtype, tuple(loss.shape), "contiguous", seed + 20)
        total = total.to(DTYPES[dtype])
        back = aten.nll_loss_backward(grad.double(), x.double(), target, w64, reduction, ignore, total.double())
        out = Out(dtype, shape, spread_strides(shape))
        got = kernels.run("nll_loss_backward", [grad, x, *arguments, total], [out])[0]
        assert_within(got, back, 2 * u * back.abs(), dtype)


def test_what_does_not_count_is_not_read(kernels: KernelRunner) -> None:
    """NaN of an ignored element, and targets that are no class: neither read nor written for (FL-KERNEL-013)."""
    x = torch.tensor([[-1.0, -2.0], [float("nan"), float("nan")], [-3.0, -4.0]])
    target = torch.tensor([0, 1, 1])
    arguments = [x, target, torch.tensor([1.0, 3.0]), {"int": 1}, {"int": 1}]
    loss, total = kernels.run("nll_loss_forward", arguments, [Out("f32", ()), Out("f32", ())])
    assert (loss.item(), total.item()) == (1.0, 1.0)
    far = torch.tensor([2, -1, 2**62])
    kernels.run("nll_loss_forward", [x, far, None, {"int": 2}, {"int": -100}], [Out("f32", ()), Out("f32", ())])
    one = torch.ones(())
    arguments = [one, x, far, None, {"int": 2}, {"int": -100}, one]
    assert not kernels.run("nll_loss_backward", arguments, [Out("f32", (3, 2))])[0].any()


def test_wrong_losses_are_refused(kernels: KernelRunner) -> None:
    x, target, good = torch.ones(3, 2), torch.zeros(3, dtype=torch.int64), [Out("f32", ()), Out("f32", ())]
    reduction, ignore = {"int": 1}, {"int": -100}
    wrong: list[tuple[list[Any], list[Out], int]] = [
        ([x, target[:2], None, reduction, ignore], good, 2),
        ([x, target, torch.ones(3), reduction, ignore], good, 2),
        ([x, target, None, {"int": 3}, ignore], good, 2),
        ([x, target, None, {"int": 0}, ignore], good, 2),
        ([x, target, None, reduction, ignore], [Out("f32", (3,)), good[1]], 2),
        ([x, target, None, reduction, ignore], [good[0], Out("f32", (1,))], 2),
        ([x[None], target, None, reduction, ignore], good, 2),
        ([x, target.int(), None, reduction, ignore], good, 7),
    ]
    for arguments, outs, status in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run("nll_loss_forward", arguments, outs)
        assert (refused.value.step, refused.value.status) == ("plan", status)
    with pytest.raises(KernelError):
        kernels.run(
            "nll_loss_backward",
            [torch.ones(3), x, target, None, reduction, ignore, torch.ones(())],
            [Out("f32", (3, 2))],
        )


@pytest.mark.parametrize("op", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_gives_back(kernels: KernelRunner, dtype: str, op: str) -> None:
    u, log = accumulator(dtype), op == "_log_softmax"
    shapes: list[tuple[tuple[int, ...], int]] = [
        ((), 0),
        ((1,), 0),
        ((0, 4), 1),
        ((600,), 0),
        ((31, 7), 0),
        ((3, 11, 5), 1),
    ]
    for seed, (shape, dim) in enumerate(shapes):
        grad = draw(dtype, shape, LAYOUTS[seed % 3], seed)
        output = getattr(aten, op)(draw(dtype, shape, LAYOUTS[(seed + 1) % 3], seed + 9), dim, False)
        out = Out(dtype, shape, spread_strides(shape))
        got = kernels.run(f"{op}_backward_data", [grad, output, {"int": dim}], [out])[0]
        g, y = grad.double(), output.double()
        exact = getattr(aten, f"{op}_backward_data")(g, y, dim, torch.float64)
        n = shape[dim] if shape else 1
        p = y.exp() if log else y
        size = (g if log else g * y).abs().sum(dim, keepdim=True)
        assert_within(got, exact, u * (p * (float(n) + 8) * size + p * g.abs() + 2 * exact.abs()), dtype)
