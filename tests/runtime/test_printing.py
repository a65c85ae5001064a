"""Printing a tensor, often the first thing that anybody does with one: torch's text, and no tier's business."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch_fl import _bridge as bridge
from torch_fl import routing

from .layouts import DTYPES, EIGHT_BITS, buffer

pytestmark = pytest.mark.usefixtures("devices")


@pytest.fixture(autouse=True)
def _no_tier_but_native() -> Iterator[None]:
    """Where steps down raise, too: a debugger must be able to show what is there."""
    bridge.set_on_fallback("error")
    yield
    bridge.set_on_fallback("ignore")


def tensors(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """On the CPU: of several sizes and layouts, integral and not, with a gradient, beyond what is printed whole."""
    numbers = buffer(dtype)
    yield from (numbers[3], numbers[:0], numbers[:7], numbers[:60].view(3, 4, 5)[:, ::2], numbers[:20].view(4, 5).t())
    yield from (numbers.repeat(8), numbers.repeat(64).view(128, 128))
    if dtype.is_floating_point and dtype not in EIGHT_BITS:
        yield numbers[:9] / 7
        yield torch.tensor([1e-5, 1.5, float("nan"), float("-inf"), -0.0], dtype=dtype)
        yield (numbers[:4] / 3).requires_grad_()
    if dtype in (torch.complex64, torch.complex128):
        yield numbers[:9] / 7
        yield numbers[:4].conj()


@pytest.mark.parametrize("device", ["fl:0", "fl:2"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_every_dtype(dtype: torch.dtype, device: str) -> None:
    for tensor in tensors(dtype):
        there = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        with routing.wishes(generic=False, cpu=False):
            text = repr(there)
        without_device = re.sub(rf",\s+device='{device}'", "", text)
        assert without_device.split() == repr(tensor).split(), text


def test_what_a_result_says_of_itself_stays() -> None:
    x = torch.ones(3, device="fl:0", requires_grad=True)
    assert repr(x * 2) == "tensor([2., 2., 2.], device='fl:0', grad_fn=<MulBackward0>)"
    assert f"{(x.sum() / 7).detach():.3f}" == "0.429"
