"""Asking changes nothing, and computes nothing."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch_fl
from torch import Tensor, nn
from torch_fl import fl

from .models import CASES, Case, normalised

pytestmark = pytest.mark.usefixtures("devices")


class Remembering(nn.Module):
    """Keeps what it has seen, as a cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = normalised().model
        self.seen = 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Of normalised()."""
        self.seen += 1
        self.last = self.inner(x)
        return self.last


def _state(model: nn.Module) -> list[tuple[str, int, torch.device, Tensor]]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(name, id(tensor), tensor.device, tensor.detach().cpu().clone()) for name, tensor in named]


@pytest.mark.parametrize("place", ["cpu", "fl:1"])
def test_model_inputs_and_random_numbers_stay_what_they_were(place: str) -> None:
    model = Remembering().to(place)
    x = torch.rand(4, 8, device=place, requires_grad=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    gradients = [parameter.grad for parameter in model.parameters()]
    before, training = _state(model), [module.training for module in model.modules()]
    host, device, counters = torch.get_rng_state(), fl.get_rng_state(0), copy.deepcopy(torch_fl.counters())
    used = fl.memory_allocated(0)

    coverage = torch_fl.coverage(model, x, "fl:0")

    assert coverage.calls_of("native") > 0
    assert torch_fl.counters() == counters
    assert fl.memory_allocated(0) == used
    assert torch.equal(torch.get_rng_state(), host)
    assert torch.equal(fl.get_rng_state(0), device)
    after = _state(model)
    assert [entry[:3] for entry in after] == [entry[:3] for entry in before]
    assert all(torch.equal(now[3], then[3]) for now, then in zip(after, before, strict=True))
    assert all(p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True))
    assert (x.grad, model.seen, model.last) == (None, 0, None)
    assert [module.training for module in model.modules()] == training
    assert torch.is_grad_enabled()


def test_tensors_of_the_device_that_a_function_finds_are_not_computed_with() -> None:
    held = torch.rand(3, 4).to("fl:0")
    counters = copy.deepcopy(torch_fl.counters())
    coverage = torch_fl.coverage(
        lambda x: x @ held.t() + held.sum() + held.mul_(2).mean(), torch.rand(2, 4), backward=False
    )
    assert {row.operator for row in coverage.missing} == set()
    assert torch_fl.counters() == counters


def test_nothing_stays_behind_a_model_that_raises() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.new_zeros(3, 3)

    with pytest.raises(torch_fl.CoverageError, match="cannot be followed to its end"):
        torch_fl.coverage(Broken(), torch.rand(2, 2))
    assert isinstance(torch.rand(2) + 1, Tensor)
    assert type(torch.ones(2)) is Tensor


def test_threads_may_ask_one_after_another() -> None:
    case: Case = CASES["perceptron"]()
    found = []
    thread = threading.Thread(target=lambda: found.append(torch_fl.coverage(case.model, case.inputs)))
    thread.start()
    thread.join()
    assert found == [torch_fl.coverage(case.model, case.inputs)]
