"""Draws calls of pointwise operators: equal shapes, repeated dimensions, numbers in place of tensors."""

from __future__ import annotations

import math
from typing import Any

from torch_fl_spec.registry import Operator, Slot

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES, DType
from torch_fl_conformance.kernel_case import number
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import LAYOUTS, STRONG_SHAPES, between, one_of, shape_of
from torch_fl_conformance.values import Draw as Values
from torch_fl_conformance.values import special_count

NUMBER_CLASSES = ("one", "zero", "minus_one", "integral", "fractional", "large")
SPECIAL_NUMBERS = {"nan": math.nan, "minus_zero": -0.0, "inf": math.inf, "minus_inf": -math.inf}
"""Words and values of a number that stands alone for an operator's data, as fill's."""
FINITE = ("silu", "gelu", "lerp.Scalar", "lerp.Tensor")
"""Operators whose forms, all as good, part at infinities: none is drawn."""
DROPPED = (0.1, 0.5, 0.75, 0.3)
"""Probabilities whose 1 / (1 - p) a factor is, where none is asked for: most round, in every dtype."""


def scalar_of(draw: Draw, word: str, dtype: DType, domain: str = "any") -> Any:
    """A Python number of a value class, exactly representable in the dtype."""
    if dtype.kind == "bool":
        return word not in ("zero", "fractional")
    if word in SPECIAL_NUMBERS:
        return SPECIAL_NUMBERS[word]
    if dtype.is_float:
        values = {"zero": (0.0,), "one": (1.0,), "minus_one": (-1.0,), "integral": (3.0, 2.0, -7.0)}
        values |= {"fractional": (0.75, -1.625, 0.0625), "large": (1536.0, -3072.0)}
        return one_of(draw, values[word])
    wide = 2**53 + 1 if dtype.name == "i64" else 2**24 + 1 if dtype.name == "i32" else dtype.high
    if domain == "nonnegative":
        wide = 3
    integers = {"zero": (0,), "one": (1,), "minus_one": (-1,), "integral": (3, 2, 7), "fractional": (5, 6)}
    value = int(one_of(draw, {**integers, "large": (wide,)}[word]))
    if domain == "nonzero" and value == 0:
        value = 4
    if value < dtype.low or (domain == "nonnegative" and value < 0):
        value = 2
    return value


def number_arg(value: Any) -> dict[str, Any]:
    """A number with the tag of its kind."""
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"float": number(value)}


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """What a recipe's `argument` may ask of this operator's slots."""
    words = ["plain"]
    alone = not any(slot.kind == "tensor" for slot in operator.slots)
    for slot in operator.slots:
        if slot.kind in ("scalar", "float") and not slot.optional:
            words += [f"{slot.name}={word}" for word in NUMBER_CLASSES]
            if alone and DTYPES[claim.dtypes[0]].is_float:
                words += [f"{slot.name}={word}" for word in SPECIAL_NUMBERS]
        if slot.scalar and claim.takes_scalar:
            words += [f"{slot.name}={word}" for word in NUMBER_CLASSES]
        words += [f"{slot.name}={choice}" for choice in slot.choices]
    if any(slot.optional for slot in operator.slots):
        words += ["bounds=both", "bounds=min", "bounds=max", "bounds=crossed"]
    if claim.inplace:
        words += [f"alias={name}" for name in operator.inplace]
    divides = any(slot.kind == "tensor" and slot.domain == "nonzero" for slot in operator.slots)
    if divides and not DTYPES[claim.dtypes[0]].is_float:
        words.append("zero_divisor")
    return words


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    return STRONG_SHAPES


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words that have a meaning for the operator."""
    if not any(slot.kind == "tensor" for slot in operator.slots):
        return ("contiguous", "strided_out", "mixed")
    return LAYOUTS


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of the operator that shows what the recipe asks for."""
    types = operator.types_of(claim.dtypes)
    tensors = [slot for slot in operator.slots if slot.kind == "tensor"]
    shape = _shape(draw, operator, claim, recipe, tensors)
    output = DTYPES[operator.dtype_of(operator.outs[0].type, claim.dtypes)]
    inputs: list[Tensor] = []
    args: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    repeated = repeated_axes(draw, recipe, shape, len(tensors))
    base = DTYPES[claim.dtypes[0]]
    for slot in operator.slots:
        wanted = recipe.argument.partition("=")[2] if recipe.argument.startswith(f"{slot.name}=") else ""
        if slot.kind == "tensor" and not (slot.scalar and wanted):
            dtype = DTYPES[types.get(slot.type or "", slot.type or "")]
            spec = Values(
                recipe.regime,
                terms=2,
                domain=slot.domain,
                cast_to=output if slot.domain == "castable" else None,
                infinities=operator.short_name not in FINITE,
                ordinal=len(inputs),
                inputs=len(tensors),
            )
            inputs.append(Tensor(slot.name, dtype, shape, spec, repeated[len(inputs)]))
            args.append({"tensor": slot.name})
            continue
        value = _number(draw, slot, wanted, base, recipe)
        params[slot.name] = value
        args.append({"string": value} if isinstance(value, str) else number_arg(value))
    if operator.short_name == "clamp":
        args, params = _bounds(draw, recipe, base)
    out = Tensor(operator.outs[0].name, output, shape)
    return Structure(tuple(inputs), (out,), tuple(args), params)


def _shape(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe, tensors: list[Slot]) -> tuple[int, ...]:
    if recipe.shape in ("zero_size", "one_element", "scalar_shape"):
        return shape_of(draw, recipe.shape, claim.max_ndim)
    if recipe.regime == "exhaustive":
        count = 256 if DTYPES[claim.dtypes[0]].size == 1 else 65536
        return (count,) if recipe.layout in ("contiguous", "stride_zero") else (count // 256, 256)
    if recipe.regime == "special" and recipe.layout != "stride_zero":
        count = special_count(claim.dtypes[0]) ** min(len(tensors), 2)
        return one_of(draw, ((count,), (1, count + 3)))[: max(claim.max_ndim, 1)]
    return shape_of(draw, recipe.shape, claim.max_ndim)


def repeated_axes(draw: Draw, recipe: Recipe, shape: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Dimensions that each input repeats: at least one input has one where the recipe asks for stride 0."""
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if recipe.layout != "stride_zero" or not wide or not count:
        return [()] * count
    chosen = between(draw, 0, count - 1)
    axes: list[tuple[int, ...]] = []
    for place in range(count):
        if place == chosen:
            axes.append((one_of(draw, wide),))
        elif count > 1 and between(draw, 0, 1):
            axes.append(tuple(wide) if between(draw, 0, 1) else ())
        else:
            axes.append(())
    return axes


def _number(draw: Draw, slot: Slot, wanted: str, dtype: DType, recipe: Recipe) -> Any:
    if slot.choices:
        return wanted or one_of(draw, slot.choices)
    if slot.name == "alpha" and not wanted:
        word = "one" if between(draw, 0, 2) else "integral"
        return scalar_of(draw, word, dtype)
    if slot.kind == "float" and not wanted:
        return 1 / (1 - one_of(draw, DROPPED))
    if slot.name == "threshold" and not wanted:
        wanted = one_of(draw, ("zero", "one", "minus_one"))  # values that the special and small integers hold, too
    if recipe.regime == "exact_integer" and wanted == "fractional":
        wanted = "integral"
    return scalar_of(draw, wanted or one_of(draw, NUMBER_CLASSES), dtype, slot.domain)


def _bounds(draw: Draw, recipe: Recipe, dtype: DType) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """clamp's bounds: both, one of them, or crossed, where the result is max."""
    word = recipe.argument.partition("=")[2] or one_of(draw, ("both", "min", "max"))
    low = scalar_of(draw, one_of(draw, ("minus_one", "zero", "fractional")), dtype)
    high = scalar_of(draw, one_of(draw, ("integral", "large")), dtype)
    if low > high:
        low, high = high, low
    if word == "crossed":
        low, high = high, low
    params = {"min": low if word != "max" else None, "max": high if word != "min" else None}
    args: list[dict[str, Any]] = [{"tensor": "self"}]
    args += [{"none": True} if value is None else number_arg(value) for value in params.values()]
    return args, params
