"""Draws calls of reductions, scans, softmax and what it gives back, layer norm: which dimensions, how long."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.kernel_case import number
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, length_labels, near_power, one_of
from torch_fl_conformance.values import Draw as Values
from torch_fl_conformance.values import exact_magnitude

_NEVER_EMPTY = ("amax", "amin", "argmax")


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words: what the reduced length is like."""
    return ("tail", "past_power", "square", "primes", "past_1024", "past_4096", "under_power", "power", "max_ndim")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    return ("contiguous", "permuted", "holes", "stride_zero", "strided_out", "padded_rows", "odd_ones", "mixed")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Which dimensions, and the operator's own arguments."""
    name = operator.short_name
    if name == "native_layer_norm":
        return ["affine", "none", "weight", "bias", "many=affine"]
    words = ["inner", "outer"]
    if any(slot.name == "dims" for slot in operator.slots):
        words += ["many", "all"]
    if name == "var.correction":
        words += ["correction=0", "correction=1", "correction=2", "correction=0.5"]
    return words


def _length(draw: Draw, word: str) -> int:
    """Elements along a reduced dimension."""
    if word in ("under_power", "power", "past_power"):
        return near_power(draw, word, 11)
    if word == "past_1024":
        return one_of(draw, (1025, 513, 257, 2049))
    if word == "past_4096":
        return one_of(draw, (4097, 4095, 4096, 5120))
    if word == "one_element":
        return 1
    if word == "zero_size":
        return 0
    return one_of(draw, PRIMES if word in ("primes", "max_ndim") else TAILS)


def _shape_and_dims(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> tuple[list[int], list[int]]:
    """(shape, reduced dims) for the recipe."""
    word, rank = recipe.shape, min(claim.max_ndim, 4)
    where = recipe.argument if recipe.argument in ("inner", "outer", "many", "all") else "inner"
    if word == "square":
        size = one_of(draw, (3, 5, 8, 33))
        return [size, size], [0, 1] if where == "all" else [0] if where == "outer" else [1]
    if word == "max_ndim":
        ndim = min(claim.max_ndim, 8)
        shape = [2 if axis % 2 else between(draw, 2, 3) for axis in range(ndim)]
        dims = {"inner": [ndim - 1], "outer": [0], "all": list(range(ndim))}.get(where, [0, ndim - 1])
        return shape, sorted(set(dims))
    length = _length(draw, word)
    other = [1] if word == "one_element" else [between(draw, 1, 3 if length > 300 else 6)]
    if word == "zero_size" and (operator.short_name in _NEVER_EMPTY or not between(draw, 0, 2)):
        return [0, between(draw, 1, 5)], [1]
    if where == "all":
        return ([*other, length] if rank >= 2 else [length]), [0, 1] if rank >= 2 else [0]
    if where == "many" and rank >= 3:
        inner = 1 if word == "one_element" else between(draw, 2, 3)
        return [inner, *other, length], [0, 2] if between(draw, 0, 1) else [1, 2]
    if where == "outer" and rank >= 2:
        return [length, *other], [0]
    if rank >= 2 and between(draw, 0, 3):
        return [*other, length], [1]
    return ([1, length] if rank >= 2 else [length]), [1] if rank >= 2 else [0]


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a reduction that shows what the recipe asks for."""
    if operator.short_name == "native_layer_norm":
        return _layer_norm(draw, operator, claim, recipe)
    shape, dims = _shape_and_dims(draw, operator, claim, recipe)
    slots = {slot.name for slot in operator.slots}
    if "dim" in slots:
        dims = dims[-1:]
    terms = 1
    for axis in dims:
        terms *= shape[axis]
    names = [slot.name for slot in operator.slots if slot.kind == "tensor"]
    inputs = tuple(_input(draw, operator, claim, recipe, name, shape, terms) for name in names)
    out_type = DTYPES[operator.dtype_of(operator.outs[0].type, claim.dtypes)]
    keeps_shape = operator.short_name == "cumsum" or "softmax" in operator.short_name
    out_shape = tuple(shape) if keeps_shape else tuple(1 if a in dims else s for a, s in enumerate(shape))
    args: list[dict[str, Any]] = [{"tensor": name} for name in names]
    params: dict[str, Any] = {}
    if "dim" in slots:
        params["dim"] = dims[0]
        args.append({"int": dims[0]})
    else:
        params["dims"] = tuple(dims)
        args.append({"ints": list(dims)})
    if "half_to_float" in slots:
        params["half_to_float"] = False
        args.append({"bool": False})
    if "correction" in slots:
        word = recipe.argument.partition("=")[2]
        params["correction"] = float(word) if word else one_of(draw, (1.0, 0.0))
        args.append({"float": number(params["correction"])})
    labels = {"many_dims"} if len(dims) > 1 else set()
    labels |= {"inner_dim"} if len(shape) - 1 in dims and len(shape) > 1 else set()
    labels |= {"outer_dim"} if any(axis < len(shape) - 1 for axis in dims) else set()
    labels |= length_labels(terms)
    labels |= {"zero_size"} if 0 in shape else set()
    return Structure(
        inputs, (Tensor(operator.outs[0].name, out_type, out_shape),), tuple(args), params, frozenset(labels)
    )


def _input(
    draw: Draw, operator: Operator, claim: Claim, recipe: Recipe, name: str, shape: list[int], terms: int
) -> Tensor:
    dtype = DTYPES[claim.dtypes[0]]
    regime = recipe.regime
    magnitude: int | None = 7
    if regime == "exact_integer" and dtype.is_float:
        bits = claim.precision(operator).bits
        if operator.short_name == "prod.dim_int":
            magnitude = next((m for m in (7, 3, 1) if m**terms <= 2**bits), 1)
        else:
            magnitude = exact_magnitude(terms, False, bits)
        if magnitude is None:
            regime = "few"
    domain = operator.slot(name).domain
    repeat: tuple[int, ...] = ()
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if recipe.layout == "stride_zero" and wide:
        repeat = (one_of(draw, wide),)
    spec = Values(
        regime,
        terms=max(terms, 1),
        magnitude=magnitude or 1,
        domain=domain,
        elementwise=False,
        infinities=operator.short_name not in ("native_layer_norm", "var.correction"),
    )
    return Tensor(name, dtype, tuple(shape), spec, repeat)


def _layer_norm(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    word = recipe.argument
    many = word.startswith("many") and claim.max_ndim >= 3
    length = _length(draw, recipe.shape) or one_of(draw, TAILS)
    if recipe.shape == "zero_size":
        shape, normal = [0, between(draw, 2, 5)], 1
    elif recipe.shape == "square":
        size = one_of(draw, (3, 5, 8))
        shape, normal = [size, size], 1
    elif recipe.shape == "one_element":
        shape, normal = ([1, 1, 1], 2) if many else ([1, 1], 1)
    elif many:
        shape, normal = [between(draw, 1, 3), between(draw, 2, 3), length], 2
    else:
        shape, normal = [between(draw, 1, 4), length], 1
    lead, trailing = shape[: len(shape) - normal], shape[len(shape) - normal :]
    terms = 1
    for size in trailing:
        terms *= size
    x = _input(draw, operator, claim, recipe, "input", shape, terms)
    dtype = x.dtype
    statistics = DTYPES[operator.dtype_of("S", claim.dtypes)]
    inputs = [x]
    args: list[dict[str, Any]] = [{"tensor": "input"}, {"ints": list(trailing)}]
    present = word.rpartition("=")[2]
    for place, name in enumerate(("weight", "bias"), start=1):
        if present in ("affine", name):
            spec = Values("normal", ordinal=place)
            inputs.append(Tensor(name, dtype, tuple(trailing), spec))
            args.append({"tensor": name})
        else:
            args.append({"none": True})
    eps = one_of(draw, (1e-5, 1e-7, 1e-3)) if recipe.regime != "constant" else 1e-5
    args.append({"float": number(eps)})
    stat_shape = (*lead, *[1] * normal)
    outs = (
        Tensor("out", dtype, tuple(shape)),
        Tensor("mean", statistics, stat_shape),
        Tensor("rstd", statistics, stat_shape),
    )
    labels = {"many_dims"} if normal > 1 else set()
    labels |= {"optional_present"} if present in ("affine", "weight", "bias") else set()
    labels |= {"optional_absent"} if present in ("none", "weight", "bias") else set()
    labels |= length_labels(terms)
    params = {"dims": tuple(range(len(lead), len(shape))), "eps": eps}
    return Structure(tuple(inputs), outs, tuple(args), params, frozenset(labels))
