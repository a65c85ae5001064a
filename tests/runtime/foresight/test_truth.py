"""What coverage foretells is what counters show afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch_fl
from torch import nn
from torch_fl import routing
from torch_fl.foresight.record import Coverage

from ..processes import prints
from .models import CASES, Attention, Case
from .really import counted, foretold, step_of

DEVICE = "fl:0"

pytestmark = pytest.mark.usefixtures("devices")


def foreseen(case: Case, *, backward: bool = True) -> Coverage:
    return torch_fl.coverage(case.model, case.inputs, DEVICE, backward=backward, loss=case.loss, targets=case.targets)


@pytest.mark.parametrize("name", CASES)
def test_a_training_step_goes_as_foretold(name: str) -> None:
    case = CASES[name]()
    coverage = foreseen(case)
    assert coverage.calls_of("native") > 0
    if not coverage.calls_of("error"):
        assert foretold(coverage) == counted(DEVICE, step_of(case, DEVICE))
        return
    with pytest.raises(NotImplementedError):
        step_of(case, DEVICE)()
    forward = foreseen(case, backward=False)
    assert foretold(forward) == counted(DEVICE, step_of(case, DEVICE, backward=False))


@pytest.mark.parametrize("name", ["perceptron", "attention"])
def test_a_forward_pass_alone(name: str) -> None:
    case = CASES[name]()
    with torch.no_grad():
        coverage = foreseen(case, backward=False)
        assert foretold(coverage) == counted(DEVICE, step_of(case, DEVICE, backward=False))
    assert all(row.backward == 0 for row in coverage.rows)


@pytest.fixture
def _softmax_is_distrusted() -> Iterator[None]:
    routing.disable("aten::_softmax", 0)
    yield
    routing.disable("aten::_softmax", 0, False)


@pytest.mark.usefixtures("_softmax_is_distrusted")
def test_a_disabled_operator_steps_down() -> None:
    case = CASES["attention"]()
    coverage = foreseen(case)
    (row,) = (row for row in coverage.rows if row.operator == "aten::_softmax")
    assert (row.tier, row.reason) == ("generic", "the device has no kernel for it")
    assert foretold(coverage) == counted(DEVICE, step_of(case, DEVICE))


@pytest.mark.parametrize("switched_off", [("native",), ("generic",), ("native", "generic")])
def test_tiers_that_are_switched_off_serve_nothing(switched_off: tuple[str, ...]) -> None:
    case = CASES["perceptron"]()
    with routing.wishes(**dict.fromkeys(switched_off, False)):
        coverage = foreseen(case)
        assert foretold(coverage) == counted(DEVICE, step_of(case, DEVICE))
    assert not {row.tier for row in coverage.rows} & set(switched_off)


def test_what_no_tier_serves_is_told_with_all_that_comes_after_it() -> None:
    class TopOfThem(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.sort(-1).values.flip(0) * 2).sum()

    x = torch.rand(3, 4)
    with routing.wishes(cpu=False):
        coverage = torch_fl.coverage(TopOfThem(), x, DEVICE, backward=False)
        with pytest.raises(NotImplementedError, match="CPU tier is switched off"):
            TopOfThem()(x.to(DEVICE))
    (error,) = (row for row in coverage.rows if row.tier == "error")
    assert error.operator.startswith("aten::sort")
    assert error.reason is not None
    assert "the CPU tier is switched off" in error.reason
    assert {"aten::flip", "aten::mul.Tensor", "aten::sum.dim_IntList"} <= {row.operator for row in coverage.rows}


def _copies_of_other_strides(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().double().to(torch.int64) + x.t().long()


def _forms(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().clamp_min_(0.25).floor_divide(0.5)
    torch.mul(y, 3, out=y)
    return (y % 2).pow(2).add_(1) > torch.maximum(x, y).round_()


def _numbers_and_random(x: torch.Tensor) -> torch.Tensor:
    drawn = torch.empty_like(x).uniform_() + torch.normal(0.0, x.abs()) + 2.0**x
    return torch.where(drawn > 0.5, drawn, 0.0) + torch.arange(4, device=x.device).remainder(3)


def _indices(x: torch.Tensor) -> torch.Tensor:
    rows = torch.zeros(2, dtype=torch.int64, device=x.device)
    return x[rows].gather(1, rows.unsqueeze(1)).max() + x.index_select(0, rows).cumsum(1).prod() + x.any() + x.argmax()


@pytest.mark.parametrize("function", [_copies_of_other_strides, _forms, _numbers_and_random, _indices])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_forms_casts_and_copies(function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = torch.rand(4, 4, dtype=dtype)
    on_device = x.to(DEVICE)
    with torch.no_grad():
        coverage = torch_fl.coverage(function, x, DEVICE, backward=False)
        assert foretold(coverage) == counted(DEVICE, lambda: function(on_device))


def test_another_device_is_asked_for_its_own_kernels() -> None:
    routing.disable("aten::addmm", 1)
    try:
        case = CASES["perceptron"]()
        tiers = {}
        for device in ("fl:0", torch.device("fl", 1)):
            rows = torch_fl.coverage(case.model, case.inputs, device).rows
            tiers[str(device)] = {row.tier for row in rows if row.operator == "aten::addmm"}
        assert tiers == {"fl:0": {"native"}, "fl:1": {"generic"}}
    finally:
        routing.disable("aten::addmm", 1, False)


def test_a_model_without_memory_is_enough() -> None:
    with torch.device("meta"):
        model, x = Attention(), torch.rand(2, 5, 8)
    assert torch_fl.coverage(model, x).rows == torch_fl.coverage(Attention(), torch.rand(2, 5, 8)).rows


def test_settings_that_make_a_step_down_an_error() -> None:
    told = prints(
        """
        import torch, torch_fl
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU())
        for row in torch_fl.coverage(model, torch.rand(4, 3)).missing:
            print(row.operator, row.tier, row.reason)
        try:
            model.to("fl:0")(torch.rand(4, 3).to("fl:0")).sum().backward()
        except NotImplementedError as error:
            print(str(error).split("(")[0])
        """,
        TORCH_FL_ON_FALLBACK="error",
    )
    operator = "aten::gelu_backward.grad_input"
    reason = "it is not an operator of the vendor interface; fallback.on_fallback is 'error'"
    assert told == [f"{operator} error {reason}", operator]
