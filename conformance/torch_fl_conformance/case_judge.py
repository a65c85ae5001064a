"""Judges one problem: lays it out in memory, has the driver run it, and looks at everything that came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch_fl_spec.abi import FL_ASYNC_FAILURE, FL_OK, FL_UNIMPLEMENTED

from torch_fl_conformance import labels
from torch_fl_conformance.budget import Bound
from torch_fl_conformance.compare import Expected, judge, show
from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.expectation import budget_of, elements, expected
from torch_fl_conformance.failures import RuleViolated
from torch_fl_conformance.kernel_case import (
    CaseDriver,
    CaseResult,
    KernelCase,
    Step,
    StepResult,
    TensorPlace,
    run_case,
    status_text,
)
from torch_fl_conformance.layout_blocks import Blocks, Layout, fill_blocks, read, stray_write, write
from torch_fl_conformance.problem import UNSERVED, Problem, Tensor

_POISONS = (0xFF, 0xA5, 0x00, 0x7F, 0x5A, 0x80)

Again = Literal["no", "same", "other"]
"""A second run of a case: none, one with equal elements, one with other elements at the same addresses."""


class CaseFailed(RuleViolated):
    """A problem on which the plugin broke a rule. violates: rule ids, the likeliest first."""

    def __init__(self, message: str, violates: tuple[str, ...], facts: Mapping[str, Any]) -> None:
        super().__init__(message, facts)
        self.violates = violates


@dataclass(frozen=True)
class Examination:
    """What a problem on which all was right showed. worst: the largest err/T, None where nothing has a budget."""

    labels: frozenset[str]
    worst: float | None
    where: Any


@dataclass
class _Laid:
    """A problem in memory: blocks, and each run's elements and images."""

    problem: Problem
    blocks: Blocks
    poisons: tuple[int, ...]
    data: list[dict[str, Array]]
    images: list[dict[str, Array]]

    def layout(self, tensor: Tensor) -> Layout:
        return self.problem.layouts[tensor.name]


def _poisons(problem: Problem, again: Again) -> tuple[int, ...]:
    """What outputs, holes, frames and workspace hold before each run: a byte, then its complement.

    A run that stays alone never has 0, with which an output that is added to would not show.
    """
    byte = _POISONS[problem.value_seed % len(_POISONS)]
    return (byte or 0xFF,) if again == "no" else (byte, byte ^ 0xFF)


def _lay_out(problem: Problem, again: Again) -> _Laid:
    structure = problem.structure
    tensors = (*structure.inputs, *structure.outs)
    alias = {structure.outs[0].name: problem.alias} if problem.alias else {}
    blocks = Blocks.arrange(
        [(t.name, t.dtype, t.core, problem.layouts[t.name]) for t in tensors],
        problem.recipe.placement,
        problem.claim.data_align,
        alias,
    )
    first = elements(problem)
    data = [first]
    if again != "no":
        data.append(first if again == "same" else elements(problem, 1))
    poisons = _poisons(problem, again)
    images = []
    for values, byte in zip(data, poisons, strict=True):
        image = fill_blocks(blocks, byte)
        for tensor in structure.inputs:
            core = values[tensor.name][tuple(slice(0, size) for size in tensor.core)]
            write(image, blocks.places[tensor.name], tensor.dtype, tensor.core, problem.layouts[tensor.name], core)
        images.append(image)
    return _Laid(problem, blocks, poisons, data, images)


def _kernel_case(laid: _Laid, device: str) -> KernelCase:
    problem = laid.problem
    structure = problem.structure
    places = {}
    for tensor in (*structure.inputs, *structure.outs):
        place = laid.blocks.places[tensor.name]
        places[tensor.name] = TensorPlace(
            # a tensor without elements may have no block at all
            None if 0 in tensor.shape and problem.recipe.placement in ("start", "page") else place.block,
            0 if 0 in tensor.shape and problem.recipe.placement in ("start", "page") else place.offset,
            tensor.shape,
            problem.layouts[tensor.name].strides,
            tensor.dtype.number,
            readonly=tensor in structure.inputs and tensor.name != problem.alias,
        )
    outs = [tensor.name for tensor in structure.outs]
    args = list(structure.args)
    if problem.alias:
        # an exact alias is one tensor that is argument and output at once
        outs[0] = problem.alias
    steps = [
        Step({name: block.data for name, block in image.items()}, fill)
        for image, fill in zip(laid.images, laid.poisons, strict=True)
    ]
    claim = problem.claim
    return KernelCase(claim.op, claim.revision, claim.variant, places, args, outs, steps, device)


def examine(driver: CaseDriver, problem: Problem, *, device: str = "d0", again: Again = "same") -> Examination:
    """Run a problem once or twice and judge it.

    Raises CaseFailed, and what the driver raises on a crash or a hang.
    """
    laid = _lay_out(problem, again)
    result = run_case(driver, _kernel_case(laid, device))
    _check_statuses(problem, result)
    worst: float | None = None
    where: Any = None
    outputs: list[dict[str, Array]] = []
    due: _Due | None = None
    for number, step in enumerate(result.steps):
        if _failed_asynchronously(step):
            break
        _check_surroundings(laid, number, step)
        words = _words(laid, step)
        outputs.append(words)
        if due is None or again == "other":
            due = _due(problem, laid.data[number])
        elif _are_equal(words, outputs[0]):
            continue  # what the first run gave on the same data has been found right
        found, place = _check_outputs(laid, number, words, due)
        if found is not None and (worst is None or found > worst):
            worst, where = found, place
    if again == "same" and len(outputs) == 2 and problem.claim.deterministic:
        _check_repeated(problem, outputs)
    return Examination(frozenset(labels.of_case(problem, laid.data[0])), worst, where)


def run_alone(driver: CaseDriver, problem: Problem, device: str = "d0") -> tuple[dict[str, Array], dict[str, Any]]:
    """Run a problem and check all but its numbers; returns the last run's output words and the plan."""
    words, plan = run_twice(driver, problem, device)
    return words[-1], plan


def run_twice(
    driver: CaseDriver, problem: Problem, device: str = "d0"
) -> tuple[list[dict[str, Array]], dict[str, Any]]:
    """As run_alone, with the words of each of its two runs on equal inputs."""
    laid = _lay_out(problem, again="same")
    result = run_case(driver, _kernel_case(laid, device))
    _check_statuses(problem, result)
    words = []
    for number, step in enumerate(result.steps):
        _check_surroundings(laid, number, step)
        words.append(_words(laid, step))
    return words, result.plan


def _words(laid: _Laid, step: StepResult) -> dict[str, Array]:
    """Storage words of each output after a run."""
    places = laid.blocks.places
    return {
        out.name: read(step.blocks, places[out.name], out.dtype, out.shape, laid.layout(out))
        for out in laid.problem.structure.outs
    }


def _are_equal(words: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    return all(np.array_equal(value, others[name]) for name, value in words.items())


def _fail(problem: Problem, message: str, violates: tuple[str, ...], **facts: Any) -> CaseFailed:
    head = f"{problem.operator.op} r{problem.claim.revision} {problem.claim.variant} {','.join(problem.claim.dtypes)}"
    return CaseFailed(f"{head}: {message}", violates, {**problem.describe(), **facts})


def _check_statuses(problem: Problem, result: CaseResult) -> None:
    plan = result.plan
    if plan["status"] != FL_OK:
        raise _fail(problem, f"plan of a claimed row: {status_text(plan)}", ("FL-KERNEL-009",))
    if result.unplaced is not None:
        raise _fail(problem, f"plan: {result.unplaced}", ("FL-KERNEL-008",))
    counters = problem.structure.params.get("counters")
    if counters is not None and problem.claim.philox_exact and plan["rng_increment"] != counters:
        message = f"rng_increment {plan['rng_increment']}, Philox4x32-10 uses {counters} counters here"
        raise _fail(problem, message, ("FL-KERNEL-014",))
    for other in result.plans[1:]:
        same = all(
            plan[key] == other.get(key) for key in ("status", "workspace_bytes", "workspace_align", "rng_increment")
        )
        if not same:
            raise _fail(problem, f"two plans of one call differ: {plan} and {other}", ("FL-KERNEL-007",))
    for step in result.steps:
        if step.run["status"] == FL_UNIMPLEMENTED:
            raise _fail(problem, "plan said FL_OK, run says FL_UNIMPLEMENTED", ("FL-KERNEL-007",))
        if problem.recipe.argument in UNSERVED and _failed_asynchronously(step):
            continue  # permitted by FL-KERNEL-013
        if step.run["status"] != FL_OK:
            raise _fail(problem, f"run of a claimed row: {status_text(step.run)}", ("FL-KERNEL-009",))
        if step.sync["status"] != FL_OK:
            raise _fail(problem, f"stream_sync after run: {status_text(step.sync)}", ("FL-KERNEL-009",))
        if not step.workspace_intact:
            size = plan["workspace_bytes"]
            raise _fail(problem, f"bytes outside the {size} bytes of workspace changed", ("FL-KERNEL-008",))
        if not step.arguments_intact:
            raise _fail(problem, "the call block, a tensor or a list was written to", ("FL-KERNEL-003",))


def _failed_asynchronously(step: StepResult) -> bool:
    """Whether the operation failed when it ran; an INLINE device tells so in run already."""
    return FL_ASYNC_FAILURE in (step.run["status"], step.sync["status"])


def _check_surroundings(laid: _Laid, number: int, step: StepResult) -> None:
    """Nothing but the outputs' elements may have changed: FL-KERNEL-006 inside blocks, FL-MEM-005 beyond."""
    structure = laid.problem.structure
    outputs = [(laid.blocks.places[t.name], t.dtype, t.shape, laid.layout(t)) for t in structure.outs]
    inputs = [(t.name, laid.blocks.places[t.name], t.dtype, t.core, laid.layout(t)) for t in structure.inputs]
    stray = stray_write(laid.images[number], step.blocks, outputs, inputs)
    if stray is None:
        return
    rules = ("FL-MEM-005", "FL-KERNEL-006") if stray.owner == "canary block" else ("FL-KERNEL-006", "FL-MEM-005")
    message = (
        f"{stray.count} byte(s) outside the outputs changed, the first in a {stray.owner}: "
        f"block {stray.block} byte {stray.offset}, {stray.before:#04x} became {stray.after:#04x}"
    )
    raise _fail(laid.problem, message, rules, run=number)


_Due = dict[str, tuple[Expected, Bound]]  # by output: the oracle's answer and how far from it is right


def _due(problem: Problem, values: Mapping[str, Array]) -> _Due:
    """What a run on these inputs owes."""
    precision = problem.claim.precision(problem.operator)
    answers = expected(problem, values, precision)
    flushed = _flushed(problem, values)
    others = expected(problem, flushed, precision) if flushed else {}
    due = {}
    for out in problem.structure.outs:
        answer = answers[out.name]
        due[out.name] = (answer, budget_of(problem, out.name, answer, precision))
        if out.name in others and answer.given:
            answer.given += others[out.name].given
        elif out.name in others:
            answer.alternatives = [*answer.alternatives, others[out.name].ref]
    return due


def _check_outputs(laid: _Laid, number: int, words: Mapping[str, Array], due: _Due) -> tuple[float | None, Any]:
    """Compare each output with its oracle; returns the worst err/T and its place."""
    problem = laid.problem
    worst: float | None = None
    where: Any = None
    for out in problem.structure.outs:
        answer, bound = due[out.name]
        if answer.given:
            answer = answer.settled(words)
            bound = budget_of(problem, out.name, answer, problem.claim.precision(problem.operator))
        judgement = judge(words[out.name], answer, out.dtype, bound.values, flush_out=problem.claim.ftz_out)
        if judgement.worst_index is not None and (worst is None or judgement.worst > worst):
            worst = judgement.worst
            where = {"output": out.name, "index": judgement.worst_index, "recipe": problem.recipe.text()}
        miss = judgement.mismatch
        if miss is not None:
            index = ",".join(map(str, miss.index))
            message = (
                f"{out.name}[{index}] is {miss.got}, expected {miss.expected} within {miss.budget} "
                f"({miss.wrong} of {miss.total} elements wrong)"
            )
            facts = {
                "run": number, "index": miss.index, "expected": miss.expected, "got": miss.got,
                "budget": miss.budget, "formula": bound.formula,
                "operands": _operands_at(laid, number, answer, miss.index),
            }  # fmt: skip
            raise _fail(problem, message, _blame(laid, number), **facts)
    return worst, where


def _flushed(problem: Problem, values: Mapping[str, Array]) -> dict[str, Array] | None:
    """Inputs with subnormals read as zero, where the row declares FTZ_IN and there are any."""
    if not problem.claim.ftz_in:
        return None
    made, changed = dict(values), False
    for tensor in problem.structure.inputs:
        x = values[tensor.name]
        if tensor.dtype.is_float:
            small = (x != 0) & (np.abs(x) < tensor.dtype.min_normal)
            changed = changed or bool(small.any())
            made[tensor.name] = np.where(small, np.copysign(0, x), x).astype(x.dtype)
    return made if changed else None


def _operands_at(laid: _Laid, number: int, answer: Expected, index: tuple[int, ...]) -> dict[str, str]:
    """Values of the inputs that have the output's shape, at the failing index."""
    shape = answer.ref.shape
    return {
        tensor.name: show(laid.data[number][tensor.name][index])
        for tensor in laid.problem.structure.inputs
        if tensor.shape == shape
    }


def _blame(laid: _Laid, number: int) -> tuple[str, ...]:
    """Rules that a wrong number may have broken, by what the case had that an easier one has not."""
    problem = laid.problem
    if problem.operator.op_class == "random":
        rules = ["FL-KERNEL-014"]
    else:
        rules = ["FL-KERNEL-010" if problem.claim.tier != "EXACT" else "FL-KERNEL-009"]
    ranks = [len(tensor.shape) for tensor in (*problem.structure.inputs, *problem.structure.outs)]
    rules += ["FL-KERNEL-006"] if problem.alias else []
    rules += ["FL-KERNEL-005"] if problem.recipe.layout != "contiguous" or 0 in ranks or max(ranks) > 4 else []
    rules += ["FL-KERNEL-004"] if problem.structure.params else []
    rules += ["FL-MEM-001", "FL-MEM-004"] if any(place.offset for place in laid.blocks.places.values()) else []
    rules += ["FL-MEM-006", "FL-KERNEL-008"] if number else []
    return tuple(rules)


def _check_repeated(problem: Problem, outputs: list[dict[str, Array]]) -> None:
    """DETERMINISTIC: two runs on equal inputs are equal bit by bit, whatever outputs and workspace held."""
    for name, words in outputs[0].items():
        if not np.array_equal(words, outputs[1][name]):
            message = f"output {name} differs between two runs on equal inputs though DETERMINISTIC is declared"
            raise _fail(problem, message, ("FL-KERNEL-010", "FL-MEM-006", "FL-KERNEL-008"))
