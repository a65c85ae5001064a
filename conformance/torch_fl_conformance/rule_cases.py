"""Judging a case for one rule: the same examination as an operator row's, but only what this rule forbids counts.

A wrong number alone tells little about which rule was broken. So a rule row runs the hard case (strided, aliased, with
a large number, behind a gate) and, where that fails, an easier twin of it. If the twin fails too, the operator is
wrong anyway: its own row says so, and this row passes over it with a note.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch_fl_conformance.case_judge import Again, CaseFailed, examine
from torch_fl_conformance.kernel_case import CaseDriver
from torch_fl_conformance.kernel_samples import ClaimedKernel
from torch_fl_conformance.layout_blocks import Layout, contiguous_strides
from torch_fl_conformance.problem import Problem, Tensor
from torch_fl_conformance.row import Row


def judge_case(
    row: Row,
    driver: CaseDriver,
    kernel: ClaimedKernel,
    problem: Problem,
    *,
    easier: Problem | None,
    labels: tuple[str, ...] = (),
    hard: CaseDriver | None = None,
    again: Again = "same",
    **facts: Any,
) -> bool:
    """Run a problem as one case of the row and fail the row if it fails and its easier twin does not.

    easier: None where any failure counts. hard: the driver for the hard case where not the problem but how it is run
    makes it hard; `driver` then runs the easier twin. again: the case's second run. labels: met if
    all is right. A failure that the examination itself puts down to the row's rule counts at once. Returns whether all
    was right.
    """
    row.case(device=kernel.device, **problem.describe(), **facts)
    try:
        seen = examine(hard or driver, problem, device=kernel.device, again=again)
    except CaseFailed as failure:
        if easier is None or failure.violates[0] == row.id or passes(driver, kernel, easier):
            known = problem.describe()
            row.fail(failure.message, **{name: value for name, value in failure.case.items() if name not in known})
        row.note(f"{kernel.name}: wrong in the plainest case too, which its own row judges")
        return False
    row.label(*labels, *(seen.labels & set(row.required)))
    return True


def passes(driver: CaseDriver, kernel: ClaimedKernel, problem: Problem) -> bool:
    """Whether all is right with a problem."""
    try:
        examine(driver, problem, device=kernel.device)
    except CaseFailed:
        return False
    return True


def contiguous(problem: Problem) -> Problem:
    """The problem with every tensor contiguous, nothing repeated, nothing aliased, in frames of its own."""
    structure = problem.structure
    inputs = tuple(replace(tensor, repeat=()) for tensor in structure.inputs)
    layouts = {tensor.name: _plain_layout(tensor) for tensor in (*inputs, *structure.outs)}
    recipe = replace(problem.recipe, layout="contiguous", placement="own")
    return replace(problem, structure=replace(structure, inputs=inputs), layouts=layouts, alias=None, recipe=recipe)


def _plain_layout(tensor: Tensor) -> Layout:
    return Layout(contiguous_strides(tensor.shape))
