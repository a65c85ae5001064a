"""Draws calls of movement and index operators: lists of tensors, dims, borders, indices with duplicates."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_pointwise import NUMBER_CLASSES, number_arg, scalar_of
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import STRONG_SHAPES, TAILS, between, is_tail, one_of, shape_of
from torch_fl_conformance.values import Draw as Values


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    if operator.short_name == "arange.start_step":
        return ("tail", "past_power", "power")
    return STRONG_SHAPES


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    if operator.short_name == "arange.start_step":
        return ("contiguous", "strided_out", "holes")
    return ("contiguous", "permuted", "holes", "stride_zero", "strided_out", "padded_rows", "odd_ones", "mixed")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """What a recipe's `argument` may ask for."""
    name = operator.short_name
    special = {
        "cat": ["inner", "outer", "empty_entry", "long_list", "single"],
        "flip": ["inner", "outer", "many"],
        "constant_pad_nd": [f"value={word}" for word in NUMBER_CLASSES] + ["nothing"],
        "arange.start_step": [f"step={word}" for word in ("one", "minus_one", "integral", "fractional")],
        "embedding": ["plain", "equal", "out_of_range"],
    }
    words = special.get(name, ["inner", "outer", "inner_equal", "out_of_range"])
    return words + [f"alias={slot}" for slot in operator.inplace if claim.inplace]


def _spec(recipe: Recipe, domain: str = "any", bound: int = 1, place: int = 0, terms: int = 1) -> Values:
    regime = "constant" if domain == "index" and "equal" in recipe.argument else recipe.regime
    return Values(regime, domain=domain, bound=bound, ordinal=place, terms=terms, elementwise=False, magnitude=7)


def _repeat(draw: Draw, recipe: Recipe, shape: tuple[int, ...]) -> tuple[int, ...]:
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    return (one_of(draw, wide),) if recipe.layout == "stride_zero" and wide else ()


def _base_shape(draw: Draw, recipe: Recipe, claim: Claim) -> tuple[int, ...]:
    shape = shape_of(draw, recipe.shape, claim.max_ndim, largest=11)
    if recipe.argument.startswith("outer") and len(shape) == 1 and claim.max_ndim >= 2:
        return (*shape, 1 if recipe.shape == "one_element" else between(draw, 2, 3))
    return shape if shape else (between(draw, 1, 5),)


def _axis(draw: Draw, recipe: Recipe, shape: tuple[int, ...]) -> int:
    """The operator's dim: the last one for `inner`, another for `outer`."""
    if recipe.argument.startswith("outer") and len(shape) > 1:
        return between(draw, 0, len(shape) - 2)
    return len(shape) - 1


def _axis_labels(dims: tuple[int, ...], ndim: int) -> set[str]:
    labels = {"inner_dim"} if ndim - 1 in dims and ndim > 1 else set()
    labels |= {"outer_dim"} if any(axis < ndim - 1 for axis in dims) else set()
    return labels | ({"many_dims"} if len(dims) > 1 else set())


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of the operator that shows what the recipe asks for."""
    drawers = {
        "cat": _cat, "flip": _flip, "constant_pad_nd": _pad, "arange.start_step": _arange, "embedding": _embedding,
    }  # fmt: skip
    return drawers.get(operator.short_name, _indexed)(draw, operator, claim, recipe)


def _cat(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    shape = _base_shape(draw, recipe, claim)
    dim = _axis(draw, recipe, shape)
    count = {"long_list": between(draw, 3, 6), "single": 1}.get(recipe.argument, between(draw, 2, 4))
    count = 1 if recipe.shape == "one_element" else count
    dtype = DTYPES[claim.dtypes[0]]
    inputs = []
    for place in range(count):
        size = shape[dim] if place == 0 else between(draw, 1, 5)
        if recipe.argument == "empty_entry" and place == count // 2:
            size = 0
        if recipe.shape == "one_element":
            size = 1
        own = tuple(size if axis == dim else s for axis, s in enumerate(shape))
        repeat = _repeat(draw, recipe, own) if place == 0 else ()
        inputs.append(Tensor(f"tensors.{place}", dtype, own, _spec(recipe, place=place), repeat))
    total = sum(tensor.shape[dim] for tensor in inputs)
    out = Tensor("out", dtype, tuple(total if axis == dim else s for axis, s in enumerate(shape)))
    args: tuple[dict[str, Any], ...] = ({"tensors": [tensor.name for tensor in inputs]}, {"int": dim})
    labels = _axis_labels((dim,), len(shape))
    labels |= {"long_list"} if count >= 3 else set()
    labels |= {"empty_list_entry"} if any(0 in t.shape for t in inputs) and 0 not in out.shape else set()
    return Structure(tuple(inputs), (out,), args, {"dim": dim}, frozenset(labels))


def _flip(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    shape = _base_shape(draw, recipe, claim)
    dims: tuple[int, ...] = (_axis(draw, recipe, shape),)
    if recipe.argument == "many":
        if len(shape) == 1:
            shape = (1 if recipe.shape == "one_element" else between(draw, 2, 3), *shape)
        dims = tuple(range(between(draw, 0, len(shape) - 2), len(shape)))
    dtype = DTYPES[claim.dtypes[0]]
    x = Tensor("self", dtype, shape, _spec(recipe), _repeat(draw, recipe, shape))
    args: tuple[dict[str, Any], ...] = ({"tensor": "self"}, {"ints": list(dims)})
    labels = frozenset(_axis_labels(dims, len(shape)))
    return Structure((x,), (Tensor("out", dtype, shape),), args, {"dims": dims}, labels)


def _pad(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    shape = _base_shape(draw, recipe, claim)
    most = 1 if len(shape) > 4 else 3
    widths = [0 if recipe.argument == "nothing" else between(draw, 0, most) for _ in range(2 * len(shape))]
    if recipe.shape == "one_element":
        widths = [0] * len(widths)
    elif recipe.argument != "nothing" and not any(widths):
        widths[0], widths[-1] = 1, 2
    dtype = DTYPES[claim.dtypes[0]]
    word = recipe.argument.partition("=")[2]
    value = scalar_of(draw, word or one_of(draw, NUMBER_CLASSES), dtype)
    grown = tuple(
        size + widths[2 * (len(shape) - 1 - axis)] + widths[2 * (len(shape) - 1 - axis) + 1]
        for axis, size in enumerate(shape)
    )
    x = Tensor("self", dtype, shape, _spec(recipe), _repeat(draw, recipe, shape))
    args = ({"tensor": "self"}, {"ints": widths}, number_arg(value))
    params = {"pad": tuple(widths), "value": value}
    return Structure((x,), (Tensor("out", dtype, grown),), args, params)


def _arange(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    dtype = DTYPES[claim.dtypes[0]]
    size = {"one_element": 1, "zero_size": 0}.get(recipe.shape)
    if size is None:
        size = one_of(draw, TAILS if recipe.shape == "tail" else (65, 64, 129, 128))
    word = recipe.argument.partition("=")[2] or "one"
    if dtype.is_float:
        step: Any = {"one": 1.0, "minus_one": -1.0, "integral": 3.0, "fractional": 0.1}[word]  # 0.1: no binary fraction
        start: Any = one_of(draw, (0.0, 1.0, -2.5, 0.75))
    else:
        room = (dtype.high - max(dtype.low, -(2**40))) // max(size, 1)
        step = {"one": 1, "minus_one": -1, "integral": 3, "fractional": 2}[word]
        if abs(step) * size > dtype.high or (dtype.name == "i64" and between(draw, 0, 1)):
            step = max(min(room // 2, 1), 1) if dtype.size == 1 else min(room // 4, 2**50 + 1)
        start = one_of(draw, (0, 1, 5)) if step > 0 else min(dtype.high, size * -step)
        if step > 0 and start + step * size > dtype.high:
            start, size = 0, min(size, dtype.high // step)
    end = start + step * size
    args = (number_arg(start), number_arg(end), number_arg(step))
    out = Tensor("out", dtype, (size,))
    return Structure((), (out,), args, {"start": start, "end": end, "step": step})


def _index_spec(recipe: Recipe, bound: int) -> Values:
    """Indices in range; with some outside where the recipe says so (see oracle's don't-care elements)."""
    return _spec(recipe, "index", bound, 1)


def _embedding(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    dtype, index = DTYPES[claim.dtypes[0]], DTYPES[claim.dtypes[1]]
    rank = max(min(claim.max_ndim, 4) - 1, 1)
    shape = (1,) if recipe.shape == "one_element" else shape_of(draw, recipe.shape, rank, largest=8) or (3,)
    rows = 1 if recipe.shape == "one_element" else between(draw, 2, 9)
    widths = {"one_element": (1,), "bulk": (3,)}.get(recipe.shape, (5, 3, 13, 35))
    width = one_of(draw, widths)
    weight = Tensor("weight", dtype, (rows, width), _spec(recipe))
    indices = Tensor("indices", index, shape, _index_spec(recipe, rows), _repeat(draw, recipe, shape))
    args: tuple[dict[str, Any], ...] = ({"tensor": "weight"}, {"tensor": "indices"})
    labels = {"tail"} if is_tail(width) else set()
    out = Tensor("out", dtype, (*shape, width))
    return Structure((weight, indices), (out,), args, {"bound": rows}, frozenset(labels))


def _indexed(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """index_select, gather and scatter_add along one dim."""
    shape = _base_shape(draw, recipe, claim)
    dim = _axis(draw, recipe, shape)
    dtype, name = DTYPES[claim.dtypes[0]], operator.short_name
    bound = max(shape[dim], 1)
    args: list[dict[str, Any]] = [{"tensor": "self"}, {"int": dim}, {"tensor": "index"}]
    count = shape[dim] if recipe.shape in ("one_element", "square") else between(draw, 1, 2 * min(bound, 40))
    if shape[dim] == 0:
        count = 0
    x = Tensor("self", dtype, shape, _spec(recipe, terms=max(count, 1)), _repeat(draw, recipe, shape))
    labels = _axis_labels((dim,), len(shape))
    if name == "index_select":
        index = Tensor("index", DTYPES[claim.dtypes[1]], (count,), _index_spec(recipe, bound))
        out_shape = tuple(count if axis == dim else size for axis, size in enumerate(shape))
        inputs: tuple[Tensor, ...] = (x, index)
    else:
        # other dimensions of the index may be shorter than self's
        own = [max(size - between(draw, 0, 1), min(size, 1)) for size in shape]
        own[dim] = count
        if recipe.shape == "square":
            own = list(shape)
        index_shape = tuple(own)
        repeat = _repeat(draw, recipe, index_shape) if name == "scatter_add" else ()
        index = Tensor("index", DTYPES["i64"], index_shape, _index_spec(recipe, bound), repeat)
        inputs, out_shape = (x, index), index_shape
        if name == "scatter_add":
            source = Tensor("src", dtype, index_shape, _spec(recipe, place=2, terms=max(count, 1)))
            inputs, out_shape = (x, index, source), shape
            args.append({"tensor": "src"})
    if name == "scatter_add":
        labels |= {"duplicates"} if count > bound or "equal" in recipe.argument else set()
    out = Tensor("out", dtype, out_shape)
    return Structure(inputs, (out,), tuple(args), {"dim": dim, "bound": bound}, frozenset(labels))
