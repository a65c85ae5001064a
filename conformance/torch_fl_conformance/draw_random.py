"""Draws calls of random operators: ranges, seeds and generator offsets, those past 32 bits included."""

from __future__ import annotations

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.kernel_case import number
from torch_fl_conformance.philox import counters, values_per_counter
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import between, one_of, shape_of

SEEDS = (0, 1, 42, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1)
OFFSETS = (0, 1, 7, 2**31, 2**32 - 3, 2**40 + 1)


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    return ("tail", "past_power", "primes", "power", "square", "under_power", "max_ndim")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words: outputs only."""
    return ("contiguous", "strided_out", "holes", "permuted", "padded_rows")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Ranges."""
    return ["standard", "shifted", "wide", "narrow", "negative"]


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a random operator."""
    is_normal = operator.short_name.startswith("normal")
    dtype = DTYPES[claim.dtypes[0]]
    shape = shape_of(draw, recipe.shape, claim.max_ndim, largest=11)
    ranges = {
        "standard": (0.0, 1.0), "shifted": (1.0, 2.0), "wide": (-64.0, 192.0), "narrow": (0.5, 0.5625),
        "negative": (-3.0, -1.0),
    }  # fmt: skip
    low, high = ranges[recipe.argument if recipe.argument in ranges else "standard"]
    if is_normal:
        high = abs(high)
    seed = one_of(draw, SEEDS) if between(draw, 0, 1) == 0 else between(draw, 0, 2**64 - 1)
    offset = one_of(draw, OFFSETS)
    names = ("mean", "std") if is_normal else ("from", "to")
    numel = 1
    for size in shape:
        numel *= size
    params = {
        names[0]: low,
        names[1]: high,
        "seed": seed,
        "offset": offset,
        "counters": counters(numel, dtype, is_normal),
    }
    args = ({"float": number(low)}, {"float": number(high)}, {"rng": [seed, offset]})
    labels = {"partial_group"} if numel % values_per_counter(dtype, is_normal) else set()
    return Structure((), (Tensor("out", dtype, shape),), args, params, frozenset(labels))
