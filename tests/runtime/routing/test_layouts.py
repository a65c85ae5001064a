"""Sizes and strides: broadcasting, views of all kinds, memory formats, nothing at all, single elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..layouts import LAYOUTS, REPEATED, buffer
from .check import agree, natively, outcome, refusal, same
from .numbers import values
from .samples import moved

DEVICE = "fl:2"
pytestmark = pytest.mark.usefixtures("devices")


def view(name: str, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A view of the same layout on the CPU and on the device, of [3, 4, 5]."""
    base = buffer(dtype, seed)
    make = {**LAYOUTS, **REPEATED}[name]
    return make(base), make(base.to(DEVICE))


EVERYWHERE: dict[str, Callable[..., Any]] = {
    "exp": torch.exp,
    "neg": torch.neg,
    "isnan": torch.isnan,
    "sum of one": lambda t: t.sum(1),
    "sum of two": lambda t: t.sum((0, 2)),
    "sum of all": lambda t: t.sum(),
    "amax": lambda t: t.amax(0, keepdim=True),
    "argmax": lambda t: t.argmax(2),
    "argmax of all": lambda t: t.argmax(),
    "prod": lambda t: (t / 16).prod(1),
    "any": lambda t: t.any(0),
    "var": lambda t: t.var((0, 1)),
    "cumsum": lambda t: t.cumsum(1),
    "softmax": lambda t: F.softmax(t, 1),
    "log_softmax": lambda t: F.log_softmax(t, 0),
    "layer_norm": lambda t: F.layer_norm(t, (5,)),
    "bmm": lambda t: torch.bmm(t, t.mT),
    "mm": lambda t: torch.mm(t[0], t[1].t()),
    "addmm": lambda t: torch.addmm(t[2, :1, :4], t[0], t[1].t()),
    "cat": lambda t: torch.cat((t, t * 2), 1),
    "flip": lambda t: t.flip(0, 2),
    "pad": lambda t: F.pad(t, (1, 0, 2, -1), value=7),
    "index_select": lambda t: t.index_select(1, torch.tensor([3, 0, 0], device=t.device)),
    "gather": lambda t: t.gather(2, torch.tensor([[[4, 0], [1, 1]]], device=t.device)),
    "embedding": lambda t: F.embedding(torch.tensor([[1, 2], [0, 1]], device=t.device), t[0]),
    "conv1d": lambda t: F.conv1d(t, t[:2, :, :2], padding=1),
}


@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("layout", [*LAYOUTS, *REPEATED])
def test_every_layout(name: str, layout: str) -> None:
    mine, theirs = view(layout, torch.float32)
    agree(natively(lambda: EVERYWHERE[name](theirs)), EVERYWHERE[name](mine), context=(name, layout))


@pytest.mark.parametrize("left", [*LAYOUTS, *REPEATED])
def test_pairs_of_layouts(left: str) -> None:
    for right in (*LAYOUTS, *REPEATED):
        (a, on_a), (b, on_b) = view(left, torch.float32), view(right, torch.float32, 1)
        for function in (torch.add, torch.eq, lambda x, y: torch.where(x > y, x, y)):
            agree(natively(function, on_a, on_b), function(a, b), exact=True, context=(left, right))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_in_every_layout(layout: str) -> None:
    for operand in (*LAYOUTS, *REPEATED):
        base, there = buffer(torch.float32), buffer(torch.float32).to(DEVICE)
        b, on_b = view(operand, torch.float32, 1)
        LAYOUTS[layout](base).add_(b, alpha=2)
        natively(LAYOUTS[layout](there).add_, on_b, alpha=2)
        agree(there, base, exact=True, context=(layout, operand))
        torch.mul(b, 3, out=LAYOUTS[layout](base))
        natively(torch.mul, on_b, 3, out=LAYOUTS[layout](there))
        agree(there, base, exact=True, context=(layout, operand))


SHAPES = [(), (1,), (5,), (4, 1), (4, 5), (1, 1), (3, 1, 5), (3, 4, 5), (0,), (0, 5), (4, 0, 5), (2, 3, 1, 1)]


@pytest.mark.parametrize("left", SHAPES, ids=str)
def test_broadcasting(left: tuple[int, ...]) -> None:
    for right in SHAPES:
        a, b = values(torch.float32, *left), values(torch.float32, *right, seed=1)
        for function in (torch.add, torch.lt, lambda x, y: torch.where(x < y, x, y)):
            expected = outcome(function, a, b)
            got = outcome(natively, function, *moved((a, b), DEVICE))
            if isinstance(expected, type):
                assert got is expected
            else:
                agree(got, expected, exact=True, context=(left, right))


def test_many_dimensions() -> None:
    tensor = values(torch.float32, *([2] * 12))
    same(torch.exp, tensor, device=DEVICE)
    mixed = tensor.permute(3, 1, 0, 2, *range(4, 12))
    same(lambda a, b: a + b, mixed, mixed, device=DEVICE)


FORMATS = {
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "permuted": lambda t: t.permute(2, 0, 3, 1),
    "sliced": lambda t: t[:, :, ::2],
    "contiguous": lambda t: t,
}


@pytest.mark.parametrize("form", FORMATS)
def test_results_have_the_strides_of_stock_torch(form: str) -> None:
    a = FORMATS[form](values(torch.float32, 2, 3, 4, 5))
    for function in (
        torch.exp,
        torch.relu,
        lambda t: t + 1,
        lambda t: t + t,
        lambda t: t * t[:1],
        lambda t: t == t.flip(0),
        lambda t: torch.where(t > 0, t, t * 2),
        lambda t: t.to(torch.float64),
        lambda t: torch.cat((t, t)),
        lambda t: t.sum(1),
        lambda t: F.softmax(t, 1),
        lambda t: F.pad(t, (1, 1)),
        lambda t: t.flip(1),
        lambda t: t.clamp(-1, 1),
        lambda t: t.cumsum(1),
        lambda t: t.clone(),
        lambda t: t.isnan(),
        lambda t: t.logical_not(),
    ):
        same(function, a, device=DEVICE)


JOINED: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "memory formats": (values(torch.float32, 2, 3, 4, 5), FORMATS["channels last"](values(torch.float32, 2, 3, 4, 5))),
    "no element": (torch.empty(0), values(torch.float32, 3, 4)),
    "expanded": (values(torch.float32, 1, 4).expand(3, 4), values(torch.float32, 3, 4)),
    "expanded both": (values(torch.float32, 3, 1).expand(3, 4), values(torch.float32, 1, 4).expand(3, 4)),
    "dtypes": (values(torch.float32, 3, 4), values(torch.float16, 3, 4)),
}


@pytest.mark.parametrize("name", JOINED)
def test_what_is_joined_may_differ(name: str) -> None:
    for tensors in itertools.permutations(JOINED[name]):
        for dim in (0, -1):
            same(lambda *each, dim=dim: torch.cat(each, dim), *tensors, device=DEVICE, exact=True)


@pytest.mark.parametrize("form", ["channels last", "contiguous"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_keeps_the_memory_format(form: str, transposed: bool) -> None:
    function = F.conv_transpose2d if transposed else F.conv2d
    a = FORMATS[form](values(torch.float32, 2, 4, 6, 7))
    weight = values(torch.float32, 4, 4, 3, 3)
    for options in ({}, {"stride": 2, "padding": 1}, {"dilation": (1, 2)}, {"groups": 2}):
        kernel = weight[:, :2] if options.get("groups") else weight
        same(function, a, kernel, device=DEVICE, **options)
        same(
            function,
            a,
            kernel,
            values(torch.float32, kernel.size(1) * 2 if transposed and options.get("groups") else 4),
            device=DEVICE,
            **options,
        )


def test_convolution_of_wrong_shapes_raises_as_on_the_cpu() -> None:
    a, weight = values(torch.float32, 2, 4, 6, 7), values(torch.float32, 6, 3, 3, 3)
    for function in (
        lambda a, w: F.conv2d(a, w),
        lambda a, w: F.conv2d(a, w[:, :2]),
        lambda a, w: F.conv2d(a[:, :3], w, stride=0),
        lambda a, w: F.conv2d(a[:, :3, :2], w),
        lambda a, w: F.conv2d(a[:, :3], w, padding=-1),
    ):
        expected = outcome(function, a, weight)
        assert isinstance(expected, type)
        assert outcome(function, a.to(DEVICE), weight.to(DEVICE)) is expected


ZERO: list[Callable[..., Any]] = [
    lambda t: t + 1,
    torch.exp,
    lambda t: t.sum(),
    lambda t: t.sum(0),
    lambda t: t.sum(1),
    lambda t: t.mean(1),
    lambda t: t.prod(1),
    lambda t: t.any(1),
    lambda t: t.amax(0),
    lambda t: t.amax(1),
    lambda t: t.argmax(0),
    lambda t: t.argmax(1),
    lambda t: t.cumsum(1),
    lambda t: F.softmax(t, 1),
    lambda t: t @ t.t(),
    lambda t: t.t() @ t,
    lambda t: torch.cat((t, t), 1),
    lambda t: torch.cat((t, torch.ones(3, 2, device=t.device)), 1),
    lambda t: torch.cat((torch.ones(0, device=t.device), torch.ones(3, 2, device=t.device))),
    lambda t: t.flip(0),
    lambda t: F.pad(t, (1, 1)),
    lambda t: t.index_select(0, torch.tensor([0], device=t.device)),
    lambda t: t.index_select(0, torch.tensor([], dtype=torch.long, device=t.device)),
    lambda t: t.clone().fill_(3),
    lambda t: t.var(1),
    lambda t: F.layer_norm(t.t(), (3,)),
]


@pytest.mark.parametrize("index", range(len(ZERO)))
def test_without_elements(index: int) -> None:
    tensor = torch.ones(3, 0)
    expected = outcome(ZERO[index], tensor)
    got = outcome(lambda t: natively(lambda: ZERO[index](t)), tensor.to(DEVICE))
    if isinstance(expected, type):
        assert outcome(ZERO[index], tensor.to(DEVICE)) is expected
    else:
        agree(got, expected, exact=True)


SINGLE: list[Callable[..., Any]] = [
    lambda t: t + t,
    lambda t: t.sum(),
    lambda t: t.sum(0),
    lambda t: t.sum(-1, keepdim=True),
    lambda t: t.mean(0),
    lambda t: t.amax(-1),
    lambda t: t.argmax(),
    lambda t: t.argmax(0),
    lambda t: t.prod(0),
    lambda t: t.prod(),
    lambda t: t.any(),
    lambda t: t.any(0),
    lambda t: t.cumsum(0),
    lambda t: t.var(0),
    lambda t: F.softmax(t, 0),
    lambda t: t.flip(()),
    lambda t: t.index_select(0, torch.tensor([0], device=t.device)),
    lambda t: t.gather(0, torch.tensor(0, device=t.device)),
    lambda t: t.scatter_add(0, torch.tensor(0, device=t.device), t),
    lambda t: torch.stack((t, t)),
    lambda t: t.clamp(0, 1),
]


@pytest.mark.parametrize("index", range(len(SINGLE)))
def test_without_dimensions(index: int) -> None:
    same(SINGLE[index], torch.tensor(2.5), device=DEVICE)


WRONG: list[Callable[..., Any]] = [
    lambda t: t.sum(5),
    lambda t: t.sum((0, 0)),
    lambda t: t.amax((0, -3)),
    lambda t: t.cumsum(4),
    lambda t: F.softmax(t, 7),
    lambda t: F.softmax(t, -4),
    lambda t: torch.mm(t, t),
    lambda t: torch.mm(t[0], t[0]),
    lambda t: torch.bmm(t, t),
    lambda t: torch.cat((t, t[0])),
    lambda t: torch.cat((t, t[:, :2])),
    lambda t: torch.cat((t, t), 3),
    lambda t: torch.cat((t, t), -4),
    lambda t: torch.cat((t[0, 0, 0], t[0, 0, 0])),
    lambda t: torch.cat([]),
    lambda t: t.flip((0, 0)),
    lambda t: t.index_select(0, torch.tensor([[0]], device=t.device)),
    lambda t: t.gather(0, torch.tensor([0], device=t.device)),
    lambda t: F.layer_norm(t, (4,)),
    lambda t: F.embedding(t, t[0]),
    lambda t: t + torch.ones(2, device=t.device),
    lambda t: F.pad(t, (1,)),
    lambda t: F.pad(t, (-3, -3)),
    lambda t: F.gelu(t, approximate="maybe"),
    lambda t: torch.div(t, t, rounding_mode="up"),
    lambda t: torch.arange(0, 5, -1, device=t.device),
    lambda t: torch.empty(3, device=t.device).uniform_(3, 2),
    lambda t: torch.empty(3, device=t.device).normal_(0, -1),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_what_torch_refuses(index: int) -> None:
    tensor = values(torch.float32, 3, 4, 5)
    assert refusal(WRONG[index], tensor.to(DEVICE)) == refusal(WRONG[index], tensor)


def test_operands_on_two_devices_are_refused() -> None:
    here, there, host = (values(torch.float32, 4, 4).to(place) for place in (DEVICE, "fl:3", "cpu"))
    for a, b in itertools.permutations((here, there, host), 2):
        for function in (torch.add, torch.mm, lambda x, y: torch.cat((x, y)), lambda x, y: torch.where(x > 0, x, y)):
            with pytest.raises(RuntimeError, match="same device"):
                function(a, b)
