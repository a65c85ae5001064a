"""Judges one operator row: draws its cases, runs each through the driver, compares every byte that came back.

Each problem becomes one call on fixed addresses with a poison in outputs, holes, frames and workspace. Most (at quick
effort about half) run once more with the complement, every second time with other elements at the same addresses, so
that a plan or result cached by address, and anything read that nobody wrote, shows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from torch_fl_spec.registry import Operator, load_registry
from torch_fl_spec.rows import ExpectedRow
from torch_fl_spec.vocabulary import FLOATS

from torch_fl_conformance import labels
from torch_fl_conformance.case_judge import Again, CaseFailed, examine
from torch_fl_conformance.draws import Draw, shrink
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.failures import RuleViolated
from torch_fl_conformance.kernel_case import CaseDriver
from torch_fl_conformance.problem import Claim, Problem, Recipe
from torch_fl_conformance.strategies import draw_problem, number_sequence, recipes

SHRINK_RUNS = 120
SHRINK_SECONDS = 3.0
DEALS = 4  # recipes are dealt again, differently, while a required label is missing
CRASH_RUNS = 12  # a crash costs a new driver process each


class KernelRow(Protocol):
    """The part of `Row` that operator rows use."""

    def case(self, **facts: Any) -> None: ...

    def label(self, *names: str) -> None: ...

    def require(self, *names: str) -> None: ...

    def worst(self, err_over_t: float, where: Any = None) -> None: ...

    def note(self, text: str) -> None: ...

    def fail(self, message: str, /, *, violates: tuple[str, ...] = (), **facts: Any) -> NoReturn: ...


def judge_row(
    row: KernelRow, driver: CaseDriver, operator: Operator, claims: Mapping[str, Claim], *, seed: int, effort: Effort
) -> None:
    """Judge one operator x variant x dtype row on every device that claims it (device -> its claim), taking turns.

    Raises what `row.fail` raises, and what the driver raises when the plugin crashes or hangs.
    """
    devices = list(claims)
    for claim in claims.values():
        check_declaration(row, operator, claim)
    first = claims[devices[0]]
    wanted = labels.required(operator, first)
    row.require(*wanted)
    met: set[str] = set()
    rng = np.random.Generator(np.random.PCG64(seed))
    start = int(rng.integers(4))

    def look(recipe: Recipe, device: str, examples: int, skip: int, turn: int) -> None:
        again = _again(start + turn, recipe, effort)

        def run(problem: Problem) -> None:
            row.case(device=device, **problem.describe())
            examination = examine(driver, problem, device=device, again=again)
            row.label(*examination.labels)
            met.update(examination.labels)
            if examination.worst is not None:
                row.worst(examination.worst, examination.where)

        def drawn(draw: Draw) -> Problem:
            return draw_problem(draw, operator, claims[device], recipe)

        smallest = search(run, drawn, examples, int(rng.integers(2**63)), skip)
        if smallest is not None:
            report(row, driver, *smallest, device=device, again=again)

    for deal in range(DEALS):
        if deal and met.issuperset(wanted):
            break
        for place, recipe in enumerate(recipes(operator, first, effort.pick(10, 24), seed + deal)):
            # the first problem of a search is the smallest there is, which shows least: quick effort goes without
            look(recipe, devices[place % len(devices)], effort.pick(2, 3), effort.pick(1, 0), place // len(devices))
    for place, recipe in enumerate(number_sequence(operator, first, seed)):
        look(recipe, devices[0], 1, 0, place)


def _again(turn: int, recipe: Recipe, effort: Effort) -> Again:
    """Recipes take turns: equal elements in the second run or others; quick effort spares bulk and half of the rest."""
    if not effort.is_full and (recipe.shape == "bulk" or turn % 4 >= 2):
        return "no"
    return "other" if turn % 2 else "same"


def search(
    run: Callable[[Problem], None], drawn: Callable[[Draw], Problem], examples: int, seed: int, skip: int = 0
) -> tuple[Problem, RuleViolated] | None:
    """Run `examples` problems but the first `skip` ones: the simplest there is, then chance's.

    Returns the smallest one found on which `run` raised RuleViolated, with what it raised, or None.
    """
    chance = random.Random(seed)
    for place in range(skip, examples):
        draw = Draw(chance=chance if place else None)
        problem = drawn(draw)
        failure = _failure(run, problem)
        if failure is not None:
            return _smallest(run, drawn, draw.made, problem, failure)
    return None


def _failure(run: Callable[[Problem], None], problem: Problem) -> RuleViolated | None:
    try:
        run(problem)
    except RuleViolated as failure:
        return failure
    return None


def _smallest(
    run: Callable[[Problem], None],
    drawn: Callable[[Draw], Problem],
    choices: Sequence[int],
    problem: Problem,
    failure: RuleViolated,
) -> tuple[Problem, RuleViolated]:
    """The smallest failing problem that is found in the runs and the time that shrinking may take."""
    smallest, runs, until = (problem, failure), 0, time.monotonic() + SHRINK_SECONDS

    def fails(smaller: Problem) -> bool:
        nonlocal smallest, runs
        runs += 1
        found = _failure(run, smaller)
        if found is not None:
            smallest = (smaller, found)
        return found is not None

    def is_spent() -> bool:
        most = SHRINK_RUNS if isinstance(smallest[1], CaseFailed) else CRASH_RUNS
        return runs >= most or time.monotonic() > until

    shrink(choices, drawn, fails, is_spent)
    return smallest


def report(
    row: KernelRow, driver: CaseDriver, problem: Problem, failure: RuleViolated, *, device: str, again: Again
) -> None:
    """Run the smallest failing problem once more, so that the driver's transcript ends with it, and fail the row."""
    row.case(device=device, **problem.describe())
    try:
        examine(driver, problem, device=device, again=again)
    except CaseFailed as repeated:
        failure = repeated
    else:
        row.note("the failing case did not fail again when it was repeated")
    if not isinstance(failure, CaseFailed):
        raise failure
    facts = {name: value for name, value in failure.case.items() if name not in problem.describe()}
    row.fail(failure.message, violates=failure.violates, **facts)


def check_declaration(row: KernelRow, operator: Operator, claim: Claim) -> None:
    """What a row says of its accumulator sets its budget, so it has to be credible (FL-KERNEL-010).

    The accumulator of a floating row is floating, has the bits that the row says, and below tier FAST is f32 or wider.
    Nothing is asked of operators whose budgets are all exact: no declaration widens those.
    """
    types = [claim.dtypes[0], operator.dtype_of(operator.outs[0].type, claim.dtypes)]
    if not all(name in FLOATS for name in types) or all(budget.exact for budget in operator.budgets):
        return
    precision = claim.precision(operator)
    used, least = precision.accumulator, 53 if types[0] == "f64" else 24
    wrong = None
    if claim.accumulator is not None and claim.accumulator not in FLOATS:
        wrong = f"an accumulator of {claim.accumulator} in a floating row; declare the floating type it computes in"
    elif precision.bits > used.precision:
        wrong = f"accumulator_bits {precision.bits}, {used.name} has {used.precision}; 0 says all of them"
    elif claim.tier != "FAST" and precision.bits < least:
        wrong = (
            f"tier {claim.tier} with an accumulator of {precision.bits} significant bits; "
            f"{types[0]} needs at least {least}, fewer are tier FAST"
        )
    if wrong:
        row.case(op=operator.op, variant=claim.variant, dtypes=",".join(claim.dtypes))
        row.fail(f"{operator.op}: {wrong}", violates=("FL-KERNEL-010",))


def claims_of(declared: Mapping[str, Any], wanted: ExpectedRow) -> tuple[Operator, dict[str, Claim]]:
    """The row's operator, and device name -> its claim from `describe`'s answer.

    LookupError when the registry lacks the operator or no device claims the row.
    """
    operator = load_registry().get(wanted.op or "", wanted.revision or 0)
    found = {}
    for index, entries in enumerate(declared["kernels"]):
        for entry in entries:
            if (entry["op"], entry["revision"], entry["variant"]) == (wanted.op, wanted.revision, wanted.variant):
                for row in entry["rows"]:
                    if tuple(row["dtypes"]) == wanted.dtypes:
                        found[f"d{index}"] = Claim.of_entry(entry, wanted.dtypes)
    if operator is None or not found:
        raise LookupError(f"no device claims {wanted.id}")
    return operator, found
