"""Random numbers: seeds, offsets, ranges; equal over vendors whose rows promise the bits of Philox."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_fl import routing

from .check import natively, outcome, steps

DEVICES = ("fl:0", "fl:2")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
pytestmark = pytest.mark.usefixtures("devices")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("draw", [torch.rand, torch.randn], ids=["rand", "randn"])
def test_equal_seeds_give_equal_numbers(device: str, draw: Callable[..., torch.Tensor]) -> None:
    generator = torch.Generator(device)
    first, second, third = (
        natively(draw, 7, 9, device=device, generator=generator.manual_seed(seed)).cpu() for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_both_personalities_draw_the_same(dtype: torch.dtype) -> None:
    for change in (
        lambda t, g: t.uniform_(generator=g),
        lambda t, g: t.uniform_(-2, 5, generator=g),
        lambda t, g: t.normal_(generator=g),
        lambda t, g: t.normal_(3, 0.5, generator=g),
    ):
        drawn = [
            natively(change, torch.empty(33, 5, dtype=dtype, device=d), torch.Generator(d).manual_seed(1)).cpu()
            for d in DEVICES
        ]
        assert torch.equal(drawn[0], drawn[1])


def test_no_counter_is_used_twice() -> None:
    for count in (1, 3, 4, 5, 1000):
        generator = torch.Generator("fl:2").manual_seed(5)
        parts = [torch.rand(count, device="fl:2", generator=generator).cpu() for _ in range(3)]
        assert not torch.equal(parts[0], parts[1])
        generator.manual_seed(5)
        whole = torch.rand(3 * 4 * -(-count // 4), device="fl:2", generator=generator).cpu().view(3, -1)[:, :count]
        assert torch.equal(torch.stack(parts), whole)  # each call used ceil(count / 4) counters


def test_state_is_saved_and_restored() -> None:
    generator = torch.Generator("fl:2").manual_seed(8)
    torch.randn(5, device="fl:2", generator=generator)
    state = generator.get_state()
    first = torch.randn(5, device="fl:2", generator=generator).cpu()
    generator.set_state(state)
    assert torch.equal(torch.randn(5, device="fl:2", generator=generator).cpu(), first)


def test_ranges_and_moments() -> None:
    torch.manual_seed(0)
    drawn = torch.empty(100_000, device="fl:2").uniform_(2, 4).cpu()
    assert drawn.min() >= 2
    assert drawn.max() < 4
    assert abs(drawn.mean() - 3) < 0.02
    normal = torch.empty(100_000, device="fl:2").normal_(1, 2).cpu()
    assert abs(normal.mean() - 1) < 0.05
    assert abs(normal.std() - 2) < 0.05


def test_strided_outputs_get_the_numbers_of_their_places() -> None:
    whole = torch.rand(4, 6, device="fl:2", generator=torch.Generator("fl:2").manual_seed(2)).cpu()
    base = torch.zeros(6, 8, device="fl:2")
    base.t()[2:6].uniform_(generator=torch.Generator("fl:2").manual_seed(2))
    assert torch.equal(base.t()[2:6].cpu(), whole)
    assert base.t()[:2].abs().sum() == 0


def test_means_and_deviations_as_tensors() -> None:
    before = routing.counters()
    torch.manual_seed(0)
    mean, std = torch.tensor([1.0, 100.0], device="fl:2"), torch.tensor([0.0, 0.5], device="fl:2")
    for drawn in (torch.normal(mean, std), torch.normal(mean, 0.0), torch.normal(1.0, std)):
        assert drawn[0] == 1
    assert torch.normal(mean, std.expand(3, 2)).shape == (3, 2)
    assert outcome(torch.normal, mean, -std) is RuntimeError
    assert steps(before, routing.counters(), "cpu", "errors") == 0
