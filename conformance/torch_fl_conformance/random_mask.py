"""What masks owe beyond single cases: the share that is kept, and masks of other seeds that have nothing to do with it.

All limits are 5 standard deviations of a binomial count: about one false alarm in two million cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch_fl_spec.registry import Operator

from torch_fl_conformance import philox
from torch_fl_conformance.draw_random import PROBABILITIES, mask_call
from torch_fl_conformance.dtypes import DTYPES, Array, from_bits
from torch_fl_conformance.kernel_row import KernelRow
from torch_fl_conformance.layout_blocks import Layout
from torch_fl_conformance.problem import Claim, Problem, Recipe, Structure, Tensor
from torch_fl_conformance.values import Draw

_RULE = ("FL-KERNEL-014",)
_DEVIATIONS = 5.0


def probability(seed: int) -> float:
    """The probability that a row's statistics are made with: not one half, which cannot tell kept from dropped."""
    unequal = [p for p in PROBABILITIES.values() if p != 0.5]
    return unequal[seed % len(unequal)]


def sample(operator: Operator, claim: Claim, seed: int, offset: int, count: int, p: float, values: int) -> Problem:
    """Dropout of `count` normal numbers in one dimension; `values` is the seed of these."""
    data = Tensor("input", DTYPES[claim.dtypes[0]], (count,), Draw("normal"))
    structure: Structure = mask_call(data, p, seed, offset)
    layouts = {tensor.name: Layout((1,), 1) for tensor in (data, *structure.outs)}
    return Problem(operator, claim, Recipe(placement="own"), structure, layouts, None, values % 2**32)


def mask_of(row: KernelRow, problem: Problem, words: Mapping[str, Array]) -> Array:
    """The mask that came back as zeros and ones, after a look at it.

    Nothing is left in the output of what it drops. Where the row promises Philox's bits it has them: so many elements
    show probabilities that were rounded, which a short case may not.
    """
    op, params = problem.operator.op, problem.structure.params
    mask = words["mask"] != 0
    out = from_bits(words["out"], problem.structure.outs[0].dtype)
    left = np.flatnonzero((out != 0) & ~mask)
    if left.size:
        row.fail(f"{op}: out[{left[0]}] is {out[left[0]]} where the mask is false", violates=_RULE)
    if problem.claim.philox_exact:
        due = philox.uniform(params["seed"], params["offset"], mask.size, DTYPES["f32"]) >= params["p"]
        wrong = np.flatnonzero(mask != due)
        if wrong.size:
            row.fail(
                f"{op}: {wrong.size} of {mask.size} elements of the mask are not Philox's, the first mask[{wrong[0]}]",
                violates=_RULE,
            )
    return np.asarray(mask, np.float64)


def check_share(row: KernelRow, operator: Operator, mask: Array, p: float) -> None:
    """Kept with probability 1 - p, on the whole and by place in groups of four, as generators make them."""
    for name, part in {"all elements": mask, **{f"elements {k} mod 4": mask[k::4] for k in range(4)}}.items():
        share, limit = float(part.mean()), _DEVIATIONS * math.sqrt(p * (1 - p) / part.size)
        if abs(share - (1 - p)) > limit:
            row.fail(
                f"{operator.op}: {share:.5f} of {name} are kept with p = {p:.5g}, expected {1 - p:.5f} "
                f"within {limit:.5f}",
                violates=_RULE,
            )


def check_unrelated(row: KernelRow, operator: Operator, label: str, mask: Array, other: Array, p: float) -> None:
    """Another seed, or the next offset: masks agree as often as chance has it, in place and shifted."""
    due = p**2 + (1 - p) ** 2
    for shift in (0, 1, 2, 4):
        n = mask.size - shift
        equal = float(np.mean(mask[shift : shift + n] == other[:n]))
        limit = _DEVIATIONS * math.sqrt(due * (1 - due) / n)
        if abs(equal - due) > limit:
            row.fail(
                f"{operator.op}: {equal:.4f} of the elements of a {label} agree at a shift of {shift}, expected "
                f"{due:.4f} within {limit:.4f}",
                violates=_RULE,
            )
