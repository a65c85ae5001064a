"""Each operator of the registry with its native rows switched off: another tier serves it, as right as they are."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch_fl import routing
from torch_fl_conformance.compare import judge
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.expectation import budget_of, elements, expected
from torch_fl_conformance.problem import Claim, Problem, Recipe
from torch_fl_conformance.strategies import draw_problem
from torch_fl_spec.registry import load_registry
from torch_fl_spec.vocabulary import FLOATS

from tests.conformance.torch_device import call, from_torch, inputs

from .check import agree, steps, without
from .samples import CPU_IS_OFF, OPERATORS, ROWS, is_exact, moved, seed
from .test_forms import INPLACE, OUT, identifier, inplace_sample, out_sample, row_of

ASYNC, INLINE = "fl:0", "fl:2"
pytestmark = pytest.mark.usefixtures("devices")

#: What torch's composites and decompositions express by other operators. All others are the CPU's, but for
#: div.Tensor_mode, which is composed where it truncates floats.
GENERIC = {
    *("aten::addmm", "aten::embedding", "aten::constant_pad_nd", "aten::_softmax", "aten::_log_softmax"),
    *("aten::native_layer_norm", "aten::clamp", "aten::isnan", "aten::logical_and", "aten::logical_or"),
    *("aten::logical_not", "aten::sigmoid", "aten::silu", "aten::gelu", "aten::relu", "aten::mean.dim"),
    *("aten::any.dim", "aten::cumsum", "aten::addcmul", "aten::addcdiv", "aten::lerp.Scalar", "aten::lerp.Tensor"),
    *("aten::nll_loss_forward", "aten::_softmax_backward_data", "aten::_log_softmax_backward_data"),
    *("aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward", "aten::_adaptive_avg_pool2d"),
    *("aten::native_batch_norm", "aten::native_batch_norm_backward"),
    *("aten::threshold_backward", "aten::sigmoid_backward", "aten::tanh_backward", "aten::native_dropout_backward"),
}

#: What the registry's budgets don't admit of torch's own CPU kernels, and so of the lower tiers: these round to
#: half on the way.
CPU_MISSES = CPU_IS_OFF | dict.fromkeys(
    (
        "aten::add.Tensor",
        "aten::sub.Tensor",
        "aten::rsqrt",
        "aten::prod.dim_int",
        "aten::convolution_backward",
        "aten::native_dropout_backward",
        "aten::_adaptive_avg_pool2d_backward",
        "aten::nll_loss_forward",
        "aten::native_batch_norm_backward",
    ),
    ("f16", "bf16"),
)


def problem_of(name: str, row: tuple[str, ...]) -> Problem:
    """A call of moderate size with ordinary numbers, the same on every run."""
    operator = OPERATORS[name]
    regimes = operator.regimes_for(row)
    recipe = Recipe("tail", "normal" if "normal" in regimes or not regimes else regimes[0])
    claim = Claim(name, operator.revision, "none", row)
    return draw_problem(Draw(chance=random.Random(seed(name))), operator, claim, recipe)


def taken(device: str, *names: str) -> dict[str, int]:
    """How often the operators went each way since the last reset."""
    ways = dict.fromkeys(("native", "generic", "cpu", "errors"), 0)
    for name in names:
        for way, count in routing.counters().get(device, {}).get(name, {}).items():
            if way in ways:
                ways[way] += count
    return ways


def tier_of(problem: Problem) -> str | None:
    """Which one is left without the native kernels; None where none is needed."""
    name, row = problem.claim.op, problem.claim.dtypes
    if name == "aten::_to_copy" and row[0] == row[1]:
        return None  # bytes are moved
    truncates = problem.structure.params.get("rounding_mode") == "trunc" and row[0] in FLOATS
    return "generic" if name in GENERIC or truncates else "cpu"


def test_every_operator_is_here() -> None:
    """Those that draw random numbers have a test of their own."""
    rest = {operator.op for operator in load_registry()} - OPERATORS.keys()
    assert rest == {"aten::uniform", "aten::normal_functional", "aten::native_dropout"}
    assert {name for name, _ in ROWS} == OPERATORS.keys()
    assert OPERATORS.keys() > GENERIC


@pytest.mark.parametrize(
    ("name", "row"), ROWS, ids=lambda part: part.removeprefix("aten::") if isinstance(part, str) else "-".join(part)
)
def test_row(name: str, row: tuple[str, ...]) -> None:
    problem = problem_of(name, row)
    precision = problem.claim.precision(problem.operator)
    values = elements(problem)
    answers = expected(problem, values, precision)
    budgets = {out: budget_of(problem, out, answer, precision).values for out, answer in answers.items()}
    arguments = inputs(problem, values)
    on_cpu = call(problem, arguments)
    tier = tier_of(problem)
    counted_as = {name, "aten::fill_.Scalar"} if name == "aten::fill.Scalar" else {name}
    for device in (ASYNC, INLINE):
        given = moved(arguments, device)
        with without(name):
            routing.reset_counters()
            results = call(problem, given, device)
            ways = taken(device, *counted_as)
            left_device = steps({}, routing.counters(), "cpu")
        assert ways == dict.fromkeys(ways, 0) | ({} if tier is None else {tier: 1})
        assert left_device == int(tier == "cpu")
        for out, result, theirs in zip(problem.structure.outs, results, on_cpu, strict=True):
            assert result.device == torch.device(device)
            if tier == "cpu":
                torch.testing.assert_close(result.cpu(), theirs, rtol=0, atol=0, equal_nan=True)
            if row[0] in CPU_MISSES.get(name, ()):
                continue
            judged = judge(from_torch(result.cpu(), out.dtype), answers[out.name], out.dtype, budgets[out.name])
            assert judged.mismatch is None, (problem.describe(), device, judged.mismatch)


# ---- Forms that write to what they are given -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "form"), INPLACE, ids=identifier)
def test_inplace(name: str, form: Any) -> None:
    arguments, keywords = inplace_sample(name)
    given = moved(arguments, INLINE)
    expected = form(*arguments, **keywords)
    with without(name):
        routing.reset_counters()
        got = form(*given, **keywords)
        ways = taken(INLINE, name, form.name())
    assert got is given[0]
    agree(got, expected, is_exact(OPERATORS[name], row_of(name)), name)
    assert ways["native"] == ways["errors"] == 0
    assert ways["generic"] + ways["cpu"] > 0


@pytest.mark.parametrize(("name", "form"), OUT, ids=identifier)
@pytest.mark.parametrize("kind", ["fitting", "empty"])
def test_out(name: str, form: Any, kind: str) -> None:
    arguments, keywords, expected = out_sample(name, form)
    outs = {
        key: torch.empty(each.shape if kind == "fitting" else (0,), dtype=each.dtype, device=INLINE)
        for key, each in expected.items()
    }
    given = moved(arguments, INLINE)
    with without(name):
        routing.reset_counters()
        got = form(*given, **keywords, **outs)
        ways = taken(INLINE, name, form.name())
    got = got if isinstance(got, tuple) else (got,)
    for mine, theirs, out in zip(got, expected.values(), outs.values(), strict=True):
        assert mine is out
        agree(mine, theirs, is_exact(OPERATORS[name], row_of(name)), name)
    assert ways["native"] == ways["errors"] == 0
    assert ways["generic"] + ways["cpu"] > 0


# ---- Random numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [ASYNC, INLINE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "form", "mean", "deviation"),
    [
        ("aten::uniform", "aten::uniform_", 0.5, 12**-0.5),
        ("aten::normal_functional", "aten::normal_", 0.0, 1.0),
    ],
)
def test_random(name: str, form: str, mean: float, deviation: float, dtype: torch.dtype, device: str) -> None:
    fill = getattr(torch.Tensor, form.removeprefix("aten::"))
    with without(name):
        routing.reset_counters()
        drawn = [
            fill(torch.empty(20_000, dtype=dtype, device=device), generator=torch.Generator(device).manual_seed(which))
            for which in (3, 3, 4)
        ]
        ways = taken(device, name, form)
    assert ways == {"native": 0, "generic": 0, "cpu": len(drawn), "errors": 0}
    first, second, other = (each.cpu().double() for each in drawn)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert abs(first.mean() - mean) < 0.05
    assert abs(first.std() - deviation) < 0.05
