"""Judges one operator row: draws its cases, runs each through the driver, compares every byte that came back.

Each problem becomes one call on fixed addresses, run at least twice: with one poison in outputs, holes, frames and
workspace, then with the complement, and every second time with other elements at the same addresses, so that a plan
or result cached by address, and anything read that nobody wrote, shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import hypothesis
import numpy as np
from hypothesis import strategies as st
from torch_fl_spec.registry import Operator, load_registry
from torch_fl_spec.rows import ExpectedRow

from torch_fl_conformance import labels
from torch_fl_conformance.case_judge import CaseFailed, examine
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.failures import RuleViolated
from torch_fl_conformance.kernel_case import CaseDriver
from torch_fl_conformance.problem import Claim, Problem, Recipe
from torch_fl_conformance.strategies import number_sequence, problems, recipes

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

    def fail(self, message: str, /, *, violates: tuple[str, ...] = (), **facts: Any) -> NoReturn: ...


class _Found(Exception):
    """Raised from one place only, so that hypothesis shrinks one failure and takes no two for different bugs."""


class _Search:
    """Runs problems for hypothesis; after the first failure it remembers outcomes and limits the shrinking."""

    def __init__(self, run: Callable[[Problem], None], skip: int) -> None:
        self._run = run
        self._skip = skip
        self._failed: dict[str, tuple[Problem, RuleViolated]] = {}
        self._last: tuple[Problem, RuleViolated] | None = None
        self._runs = 0
        self._until = 0.0

    @property
    def smallest(self) -> tuple[Problem, RuleViolated] | None:
        """The failing problem that hypothesis settled on."""
        return self._last

    def __call__(self, problem: Problem) -> None:
        if self._skip > 0:
            self._skip -= 1
            return
        key = repr(problem)
        known = self._failed.get(key)
        if known is None and not self._is_spent():
            try:
                self._run(problem)
            except RuleViolated as failure:
                if not self._failed:
                    self._until = time.monotonic() + SHRINK_SECONDS
                known = self._failed[key] = (problem, failure)
            if self._failed:
                self._runs += 1
        if known is not None:
            self._last = known
            raise _Found

    def _is_spent(self) -> bool:
        if self._last is None:
            return False
        most = SHRINK_RUNS if isinstance(self._last[1], CaseFailed) else CRASH_RUNS
        return self._runs >= most or time.monotonic() > self._until


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

    def look(recipe: Recipe, device: str, examples: int, skip: int) -> None:
        other_data = bool(rng.integers(2))

        def run(problem: Problem) -> None:
            row.case(device=device, **problem.describe())
            examination = examine(driver, problem, device=device, other_data=other_data)
            row.label(*examination.labels)
            met.update(examination.labels)
            if examination.worst is not None:
                row.worst(examination.worst, examination.where)

        strategy = problems(operator, claims[device], recipe)
        smallest = search(run, strategy, examples, int(rng.integers(2**63)), skip)
        if smallest is not None:
            report(row, driver, *smallest, device=device, other_data=other_data)

    for deal in range(DEALS):
        if deal and met.issuperset(wanted):
            break
        for place, recipe in enumerate(recipes(operator, first, effort.pick(10, 24), seed + deal)):
            # the first problem of a search is the smallest there is: quick effort has it for every second recipe
            skip = 0 if effort.is_full or place % 2 == 0 else 1
            look(recipe, devices[place % len(devices)], effort.pick(2, 3), skip)
    for recipe in number_sequence(operator, first, seed):
        look(recipe, devices[0], 1, 0)


def search(
    run: Callable[[Problem], None], strategy: st.SearchStrategy[Problem], examples: int, seed: int, skip: int = 0
) -> tuple[Problem, RuleViolated] | None:
    """Run `examples` problems but the first `skip` ones.

    Returns the smallest one on which `run` raised RuleViolated, with what it raised, or None.
    """
    found = _Search(run, skip)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(strategy)
    def every_problem(problem: Problem) -> None:
        found(problem)

    try:
        every_problem()
    except Exception:
        # hypothesis wraps or re-raises _Found; a failure of another kind is the harness's own
        if found.smallest is None:
            raise
    return found.smallest


def report(
    row: KernelRow, driver: CaseDriver, problem: Problem, failure: RuleViolated, *, device: str, other_data: bool
) -> None:
    """Run the smallest failing problem once more, so that the driver's transcript ends with it, and fail the row."""
    row.case(device=device, **problem.describe())
    try:
        examine(driver, problem, device=device, other_data=other_data)
    except CaseFailed as again:
        failure = again
    if not isinstance(failure, CaseFailed):
        raise failure
    facts = {name: value for name, value in failure.case.items() if name not in problem.describe()}
    row.fail(failure.message, violates=failure.violates, **facts)


def check_declaration(row: KernelRow, operator: Operator, claim: Claim) -> None:
    """Half types accumulate in f32 or wider below tier FAST (FL-KERNEL-010)."""
    precision = claim.precision(operator)
    types = [claim.dtypes[0], operator.dtype_of(operator.outs[0].type, claim.dtypes)]
    floating = all(name in ("f32", "f64", "f16", "bf16") for name in types)
    least = 53 if types[0] == "f64" else 24
    if floating and claim.tier != "FAST" and operator.op_class != "movement" and precision.bits < least:
        row.case(op=operator.op, variant=claim.variant, dtypes=",".join(claim.dtypes))
        row.fail(
            f"{operator.op}: tier {claim.tier} with an accumulator of {precision.bits} significant bits; "
            f"{types[0]} needs at least {least}, fewer are tier FAST",
            violates=("FL-KERNEL-010",),
        )


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
