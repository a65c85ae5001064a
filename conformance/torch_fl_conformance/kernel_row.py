"""Judges one operator row: draws its cases, runs each through the driver, compares every byte that came back.

Each problem becomes one call on fixed addresses, run at least twice: with one poison in outputs, holes, frames and
workspace, then with the complement, and every second time with other elements at the same addresses, so that a plan
or result cached by address, and anything read that nobody wrote, shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import hypothesis
import numpy as np
from hypothesis import strategies as st
from torch_fl_spec.registry import Operator

from . import labels
from .case_judge import CaseFailed, examine
from .failures import RuleViolated
from .kernel_case import CaseDriver
from .problem import Claim, Problem
from .strategies import problems, recipes

SHRINK_RUNS = 120
SHRINK_SECONDS = 3.0
CRASH_RUNS = 12  # a crash costs a new driver process each


class KernelRow(Protocol):
    """The part of `Row` that operator rows use."""

    def case(self, **facts: Any) -> None: ...

    def label(self, *names: str) -> None: ...

    def require(self, *names: str) -> None: ...

    def worst(self, err_over_t: float, where: Any = None) -> None: ...

    def fail(self, message: str, *, violates: tuple[str, ...] = (), **facts: Any) -> Any: ...


class _Found(Exception):
    """Raised from one place only, so that hypothesis shrinks one failure and takes no two for different bugs."""


class _Search:
    """Runs problems for hypothesis; after the first failure it remembers outcomes and limits the shrinking."""

    def __init__(self, run: Callable[[Problem], None]) -> None:
        self._run = run
        self._failed: dict[str, tuple[Problem, RuleViolated]] = {}
        self._last: tuple[Problem, RuleViolated] | None = None
        self._runs = 0
        self._until = 0.0

    @property
    def smallest(self) -> tuple[Problem, RuleViolated] | None:
        """The failing problem that hypothesis settled on."""
        return self._last

    def __call__(self, problem: Problem) -> None:
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
    row: KernelRow, driver: CaseDriver, operator: Operator, claim: Claim, *, seed: int, count: int, examples: int = 2
) -> None:
    """Judge one operator x variant x dtype row. `count` recipes at least, `examples` problems for each.

    Raises what `row.fail` raises, and what the driver raises when the plugin crashes or hangs.
    """
    check_declaration(row, operator, claim)
    row.require(*labels.required(operator, claim))
    rng = np.random.Generator(np.random.PCG64(seed))
    for place, recipe in enumerate(recipes(operator, claim, count, seed)):
        other_data = bool(place % 2)

        def run(problem: Problem, other_data: bool = other_data) -> None:
            row.case(**problem.describe())
            examination = examine(driver, problem, other_data=other_data)
            row.label(*examination.labels)
            if examination.worst is not None:
                row.worst(examination.worst, examination.where)

        smallest = search(run, problems(operator, claim, recipe), examples, int(rng.integers(2**63)))
        if smallest is not None:
            report(row, driver, *smallest, other_data=other_data)


def search(
    run: Callable[[Problem], None], strategy: st.SearchStrategy[Problem], examples: int, seed: int
) -> tuple[Problem, RuleViolated] | None:
    """Run `examples` problems; the smallest one on which `run` raised RuleViolated, with what it raised, or None."""
    found = _Search(run)

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


def report(row: KernelRow, driver: CaseDriver, problem: Problem, failure: RuleViolated, *, other_data: bool) -> None:
    """Run the smallest failing problem once more, so that the driver's transcript ends with it, and fail the row."""
    if not isinstance(failure, CaseFailed):
        row.case(**problem.describe())
        examine(driver, problem, other_data=other_data)
        raise failure
    row.case(**problem.describe())
    try:
        examine(driver, problem, other_data=other_data)
    except CaseFailed as again:
        failure = again
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


def claim_of(declared: Mapping[str, Any], op: str, revision: int, variant: str, dtypes: tuple[str, ...]) -> Claim:
    """The claim of a row from `describe`'s answer (device 0 first, then the others); LookupError if there is none."""
    for entries in declared["kernels"]:
        for entry in entries:
            if (entry["op"], entry["revision"], entry["variant"]) == (op, revision, variant):
                for row in entry["rows"]:
                    if tuple(row["dtypes"]) == dtypes:
                        return Claim.of_entry(entry, dtypes)
    raise LookupError(f"no device claims {op} r{revision} {variant} for {','.join(dtypes)}")
