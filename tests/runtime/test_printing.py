"""Printing a tensor, often the first thing that anybody does with one: torch's text, and no warning without need."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch_fl import _bridge as bridge
from torch_fl import routing
from torch_fl.dtypes import TORCH_DTYPES
from torch_fl.fallback import FallbackWarning
from torch_fl_spec.registry import load_registry

from .layouts import COMPLEX, DTYPES, EIGHT_BITS, UNSIGNED, buffer

pytestmark = pytest.mark.usefixtures("devices")

#: Operators by which torch prints and that the registry lacks: what steps down, to which tier.
LACKING = {
    "aten::masked_select": "computed on the CPU",  # its result's size depends on values
    "aten::min": "composed of other operators",  # amin
    "aten::max": "composed of other operators",  # amax
}

#: Operators that the registry has, but in no row for these dtypes.
WITHOUT_ROW = {
    "aten::cat": UNSIGNED,  # of the edges of a tensor too long to be printed whole
    "aten::_to_copy": EIGHT_BITS,  # to f16, which torch prints in their place
}


@pytest.fixture(autouse=True)
def _warn() -> Iterator[None]:
    bridge.set_on_fallback("warn")
    routing.reset_counters()
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


def test_the_registry_lacks_what_is_said_to_be_lacking() -> None:
    known = {operator.op: operator for operator in load_registry()}
    assert not LACKING.keys() & known.keys()
    for op, dtypes in WITHOUT_ROW.items():
        assert {TORCH_DTYPES[dtype] for row in known[op].rows for dtype in row}.isdisjoint(dtypes)


@pytest.mark.parametrize("device", ["fl:0", "fl:2"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_every_dtype(dtype: torch.dtype, device: str) -> None:
    for tensor in tensors(dtype):
        there = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        routing.reset_counters()  # warnings come again
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "ComplexHalf support")
            for op, tier in LACKING.items():
                warnings.filterwarnings("ignore", rf"{op}\(.*is {tier}: it is not an operator", FallbackWarning)
            for op, dtypes in WITHOUT_ROW.items():
                if dtype in dtypes:
                    warnings.filterwarnings("ignore", rf"{op}\(.*is computed on the CPU", FallbackWarning)
            text = repr(there)
        without_device = re.sub(rf",\s+device='{device}'", "", text)
        assert without_device.split() == repr(tensor).split(), text


def test_integers_and_booleans_are_printed_by_no_other_tier() -> None:
    for dtype in set(DTYPES) - {*COMPLEX, *UNSIGNED} - {each for each in DTYPES if each.is_floating_point}:
        for tensor in tensors(dtype):
            there = tensor.to("fl:0")
            with routing.wishes(generic=False, cpu=False):
                assert "device='fl:0'" in repr(there)
