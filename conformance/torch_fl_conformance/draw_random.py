"""Draws calls of random operators: ranges, seeds and generator offsets, those past 32 bits included."""

from __future__ import annotations

import math
from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_pointwise import repeated_axes
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES, DType
from torch_fl_conformance.kernel_case import number
from torch_fl_conformance.philox import counters, values_per_counter
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import LAYOUTS, between, one_of, shape_of
from torch_fl_conformance.values import Draw as Values

SEEDS = (0, 1, 42, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1)
OFFSETS = (0, 1, 7, 2**31, 2**32 - 3, 2**40 + 1)
RANGES = {
    "standard": (0.0, 1.0), "shifted": (1.0, 2.0), "wide": (-64.0, 192.0), "narrow": (0.5, 0.5625),
    "negative": (-3.0, -1.0),
}  # fmt: skip
PROBABILITIES = {"standard": 0.5, "seldom": 0.1, "third": 1 / 3, "often": 0.9}
"""Of an element to be dropped, by words of a recipe's argument."""


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    return ("tail", "past_power", "primes", "power", "square", "under_power", "max_ndim")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words: of outputs only, where there is no input."""
    return LAYOUTS if drops(operator) else ("contiguous", "strided_out", "holes", "permuted", "padded_rows")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Ranges, or probabilities."""
    return list(PROBABILITIES if drops(operator) else RANGES)


def drops(operator: Operator) -> bool:
    """Whether the operator draws a mask, not numbers."""
    return operator.oracle == "philox_dropout"


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a random operator."""
    dtype = DTYPES[claim.dtypes[0]]
    shape = shape_of(draw, recipe.shape, claim.max_ndim, largest=11)
    seed = one_of(draw, SEEDS) if between(draw, 0, 1) == 0 else between(draw, 0, 2**64 - 1)
    offset = one_of(draw, OFFSETS)
    if drops(operator):
        values = Values(recipe.regime, elementwise=recipe.regime != "special")
        data = Tensor("input", dtype, shape, values, repeated_axes(draw, recipe, shape, 1)[0])
        p = PROBABILITIES.get(recipe.argument, PROBABILITIES["standard"])
        return mask_call(data, p, seed, offset)
    low, high = RANGES.get(recipe.argument, RANGES["standard"])
    return numbers_call(operator, dtype, shape, (low, high), seed, offset)


def numbers_call(
    operator: Operator, dtype: DType, shape: tuple[int, ...], bounds: tuple[float, float], seed: int, offset: int
) -> Structure:
    """uniform of a range, or normal numbers of a mean and a deviation (whose sign does not count)."""
    is_normal = operator.oracle == "philox_normal"
    first, second = bounds[0], abs(bounds[1]) if is_normal else bounds[1]
    names = ("mean", "std") if is_normal else ("from", "to")
    args = ({"float": number(first)}, {"float": number(second)}, {"rng": [seed, offset]})
    params = {names[0]: first, names[1]: second, **_stream(seed, offset, shape, dtype, is_normal)}
    return Structure((), (Tensor("out", dtype, shape),), args, params, _labels(shape, dtype, is_normal))


def mask_call(data: Tensor, p: float, seed: int, offset: int) -> Structure:
    """Dropout of `data`: the mask takes the uniform numbers of f32, whatever the data's dtype is."""
    outs = (Tensor("out", data.dtype, data.shape), Tensor("mask", DTYPES["bool"], data.shape))
    args = ({"tensor": data.name}, {"float": number(p)}, {"rng": [seed, offset]})
    single = DTYPES["f32"]
    params = {"p": p, **_stream(seed, offset, data.shape, single, is_normal=False)}
    return Structure((data,), outs, args, params, _labels(data.shape, single, is_normal=False))


def _stream(seed: int, offset: int, shape: tuple[int, ...], dtype: DType, is_normal: bool) -> dict[str, Any]:
    return {"seed": seed, "offset": offset, "counters": counters(math.prod(shape), dtype, is_normal)}


def _labels(shape: tuple[int, ...], dtype: DType, is_normal: bool) -> frozenset[str]:
    partial = math.prod(shape) % values_per_counter(dtype, is_normal)
    return frozenset({"partial_group"} if partial else ())
