"""In-place and out= calls whose tensors share memory: right where torch allows them, refused where it refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_fl import routing

from .check import agree, natively, outcome, steps
from .numbers import values

DEVICE = "fl:2"
pytestmark = pytest.mark.usefixtures("devices")

Change = Callable[[torch.Tensor], Any]


def check_change(change: Change, source: torch.Tensor, exact: bool = True) -> None:
    """The same change of the same memory on the CPU and on the device, or the same class of exception."""
    mine, theirs = source.clone(), source.to(DEVICE)
    expected = outcome(change, mine)
    got = outcome(lambda t: natively(lambda: change(t)), theirs)
    if isinstance(expected, type):
        assert got is expected
    else:
        assert not isinstance(got, type), got
    agree(theirs, mine, exact)


ALLOWED: dict[str, Change] = {
    "itself": lambda t: t.add_(t),
    "the same view": lambda t: t.view(-1).mul_(t.view(-1)),
    "a view of another object": lambda t: t.sub_(t[:]),
    "other half": lambda t: t[:, :2].add_(t[:, 2:]),
    "every second": lambda t: t[:, ::2].add_(t[:, 1::2]),
    "reversed roles": lambda t: torch.sub(t[:, :2], t[:, 2:], out=t[:, 2:]),
    "one row into all": lambda t: t[1:].add_(t[:1]),
    "alpha": lambda t: t.add_(t, alpha=-3),
    "unary": lambda t: torch.exp(t, out=t),
    "unary view": lambda t: torch.neg(t[:, 1:], out=t[:, 1:]),
    "where": lambda t: torch.where(t > 0, t, t * 2, out=t),
    "comparison": lambda t: t.gt_(0.5),
    "clamp": lambda t: t.clamp_(-1, 1),
    "cumsum": lambda t: t.cumsum_(0),
    "scatter_add": lambda t: t.scatter_add_(1, torch.zeros(4, 4, dtype=torch.long, device=t.device), t.clone()),
    "addmm": lambda t: t.addmm_(t.clone(), t.clone()),
    "flip into itself": lambda t: t.copy_(t.flip(1)),
    "transposed copy": lambda t: t.copy_(t.t().clone()),
    "fill a column": lambda t: t[:, 1].fill_(5),
    "fill expanded": lambda t: t[1:3, :1].expand(2, 3).fill_(5),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_shared_memory(name: str) -> None:
    before = routing.counters()
    check_change(ALLOWED[name], values(torch.float32, 4, 4), exact=name != "unary")
    assert steps(before, routing.counters(), "generic", "cpu", "errors") == 0


REFUSED: dict[str, Change] = {
    "expanded output": lambda t: t[:1].expand(4, 4).add_(1),
    "expanded output of a unary": lambda t: t[0, 0].expand(3).exp_(),
    "expanded out=": lambda t: torch.add(t, t, out=t[:1].expand(4, 4)),
    "expanded random": lambda t: t[:1].expand(4, 4).uniform_(),
    "shifted": lambda t: t.view(-1)[1:].add_(t.view(-1)[:-1]),
    "transposed": lambda t: t.add_(t.t()),
    "shifted unary": lambda t: torch.exp(t.view(-1)[:-1], out=t.view(-1)[1:]),
    "cat into an operand": lambda t: torch.cat((t[:2], t[2:]), out=t),
    "gather into its source": lambda t: torch.gather(t, 0, torch.zeros(4, 4, dtype=torch.long, device=t.device), out=t),
    "index_select into its source": lambda t: torch.index_select(t, 0, torch.arange(4, device=t.device), out=t),
    "sizes": lambda t: t[:1].add_(t),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses(name: str) -> None:
    source = values(torch.float32, 4, 4)
    assert isinstance(outcome(REFUSED[name], source.clone()), type)
    check_change(REFUSED[name], source)


def test_a_product_into_one_of_its_operands() -> None:
    source = values(torch.float32, 4, 4)
    there = source.to(DEVICE)
    natively(lambda: torch.mm(there, there.t(), out=there))
    agree(there, torch.mm(source, source.t()))


def test_views_stay_views() -> None:
    base = torch.zeros(4, 6, device=DEVICE)
    base.view(6, 4).t()[1].add_(3)
    base[::2, 1:3].mul_(0).sub_(1)
    base.narrow(1, 4, 2).exp_()
    mine = torch.zeros(4, 6)
    mine.view(6, 4).t()[1].add_(3)
    mine[::2, 1:3].mul_(0).sub_(1)
    mine.narrow(1, 4, 2).exp_()
    agree(base, mine)


def _multiply_columns(step: int, t: torch.Tensor) -> torch.Tensor:
    return t[::step, ::2].mul_(t[::step, 1::2])


def test_a_partly_shared_operand_is_copied_not_misread() -> None:
    for step in (1, 2, 3):
        check_change(functools.partial(_multiply_columns, step), values(torch.float32, 6, 8))
