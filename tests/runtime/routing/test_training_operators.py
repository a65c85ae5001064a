"""What the operators of training do beside their rows: outputs that nobody asked for, statistics, chance, layouts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch_fl import routing

from .check import agree, natively, same
from .numbers import values
from .samples import moved, overload
from .training_samples import MAKE

INLINE = "fl:2"
TYPES = {"T": torch.float32, "S": torch.float32}
MASKS = list(itertools.product((True, False), repeat=3))
pytestmark = pytest.mark.usefixtures("devices")


# ---- Gradients that nobody asked for ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aten::convolution_backward", "aten::native_batch_norm_backward"])
@pytest.mark.parametrize("mask", MASKS[:-1], ids=str)
def test_only_wanted_gradients_come_back(name: str, mask: tuple[bool, ...]) -> None:
    *arguments, _ = MAKE[name](TYPES)
    expected = overload(name)(*arguments, [True, True, True])
    got = natively(overload(name), *moved(arguments, INLINE), list(mask))
    for wanted, mine, theirs in zip(mask, got, expected, strict=True):
        if wanted:
            agree(mine, theirs)
        else:
            assert mine is None


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("spatial", [1, 2])
def test_gradients_of_convolutions(spatial: int, transposed: bool) -> None:
    layer: Any = getattr(F, f"conv{'_transpose' if transposed else ''}{spatial}d")
    sizes = [9, 8][:spatial]
    weight = values(torch.float32, 4, 2, *[3, 2][:spatial])
    channels = weight.shape[0] if transposed else weight.shape[1] * 2
    given = (values(torch.float32, 2, channels, *sizes), weight, values(torch.float32, 4, seed=1))

    def gradients(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        leaves = [each.clone().requires_grad_() for each in (x, w, b)]
        layer(*leaves, stride=2, padding=1, dilation=1, groups=2).square().sum().backward()
        return [each.grad for each in leaves if each.grad is not None]

    same(gradients, *given, device=INLINE)


def test_channels_last_stays() -> None:
    x = values(torch.float32, 2, 4, 6, 7).contiguous(memory_format=torch.channels_last)
    grad, _, weight, *rest = MAKE["aten::convolution_backward"](TYPES)
    got = same(torch.ops.aten.convolution_backward, grad, x, weight, *rest, device=INLINE)
    assert got[0].is_contiguous(memory_format=torch.channels_last)
    statistics = (values(torch.float32, 4), values(torch.float32, 4), None, None, True, 0.1, 1e-5)
    normed = same(torch.ops.aten.native_batch_norm, x, *statistics, device=INLINE)
    assert normed[0].is_contiguous(memory_format=torch.channels_last)


# ---- Batch norm ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_keeps_its_statistics(training: bool, affine: bool) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        layer = torch.nn.BatchNorm2d(3, affine=affine, momentum=0.25, device=x.device).train(training)
        first, second = layer(x), layer(x + 2)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        return first.detach(), second.detach(), layer.running_mean, layer.running_var

    same(run, values(torch.float32, 4, 3, 5, 2), device=INLINE)


@pytest.mark.parametrize("device", ["fl:0", INLINE])
@pytest.mark.parametrize("wishes", [{"native": False}, {"native": False, "generic": False}], ids=["generic", "cpu"])
def test_batch_norm_without_kernels_keeps_its_statistics(wishes: dict[str, bool], device: str) -> None:
    """The schema of native_batch_norm does not say that it writes them."""

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        layer = torch.nn.BatchNorm1d(3, momentum=0.25, device=x.device)
        out = layer(x)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        return out.detach(), layer.running_mean, layer.running_var

    x = values(torch.float32, 6, 3)
    with routing.wishes(**wishes):
        got = run(x.to(device))
    agree(got, run(x))


@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_batch_norm(training: bool) -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        layer = torch.nn.BatchNorm1d(3, device=x.device).train(training)
        leaf = x.clone().requires_grad_()
        layer(leaf).pow(3).sum().backward()
        return [each.grad for each in (leaf, *layer.parameters()) if each.grad is not None]

    assert len(same(run, values(torch.float32, 6, 3), device=INLINE)) == 3


# ---- Pooling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 9, 8)], ids=["batch", "one image"])
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_windows_by_one_number(pool: Any, ceil: bool, shape: tuple[int, ...]) -> None:
    """One number stands for both dimensions, and no stride for the window's size."""

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.clone().requires_grad_()
        out = pool(leaf, 2, ceil_mode=ceil)
        (out * out).sum().backward()
        assert leaf.grad is not None
        return out.detach(), leaf.grad

    same(run, torch.randn(shape, generator=torch.Generator().manual_seed(1)), device=INLINE)


# ---- Dropout ---------------------------------------------------------------------------------------------------------


def test_dropout_keeps_a_share_and_scales_it() -> None:
    torch.manual_seed(3)
    x = values(torch.float32, 100, 100).to(INLINE)
    out, mask = natively(torch.ops.aten.native_dropout, x, 0.25, True)
    assert abs(mask.float().mean().item() - 0.75) < 5 * (0.25 * 0.75 / 10_000) ** 0.5
    torch.testing.assert_close(out.cpu(), x.cpu() * mask.cpu() / 0.75)
    torch.manual_seed(3)
    again, _ = natively(torch.ops.aten.native_dropout, x, 0.25, True)
    assert torch.equal(out.cpu(), again.cpu())
    other, _ = natively(torch.ops.aten.native_dropout, x, 0.25, True)
    assert not torch.equal(out.cpu(), other.cpu())


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (1.0, True), (0.5, False), (1.0, None)])
def test_dropout_without_chance(p: float, train: bool | None) -> None:
    same(torch.ops.aten.native_dropout, values(torch.float32, 4, 5), p, train, device=INLINE)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("native", [True, False])
def test_dropout_keeps_the_layout(p: float, native: bool) -> None:
    x = values(torch.float32, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    with routing.wishes(native=native):
        got = torch.native_dropout(x.to(INLINE), p, True)
    assert [each.stride() for each in got] == [each.stride() for each in torch.native_dropout(x, p, True)]


@pytest.mark.parametrize("p", [-0.5, 1.5, float("nan")])
@pytest.mark.parametrize("device", ["cpu", INLINE])
def test_dropout_by_what_is_no_probability(p: float, device: str) -> None:
    with pytest.raises(RuntimeError):
        torch.native_dropout(values(torch.float32, 4, 5).to(device), p, True)
    torch.native_dropout(values(torch.float32, 4, 5).to(device), p, False)


def test_dropout_in_a_network() -> None:
    x = torch.ones(50, 50, device=INLINE, requires_grad=True)
    out = natively(F.dropout, x, 0.5)
    natively(out.sum().backward)
    assert torch.equal(x.grad.cpu(), out.detach().cpu())  # type: ignore[union-attr]


# ---- Losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy(reduction: str, weighted: bool) -> None:
    target = torch.tensor([0, 4, -100, 2, 1, 1])

    def run(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        loss = F.cross_entropy(leaf, target, weight, reduction=reduction)
        (loss * loss).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return [loss.detach(), leaf.grad]

    weight = values(torch.float32, 5, positive=True) if weighted else None
    same(run, values(torch.float32, 6, 5), target, weight, device=INLINE)
