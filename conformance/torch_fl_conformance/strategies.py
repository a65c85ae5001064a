"""Which cases a kernel row is given: recipes that guarantee the required labels, and chance for the rest.

A recipe names one word on each axis (shape, regime, layout, argument, placement). Every word of every axis is used at
least once, words that leave little to see (empty tensors, single elements) in cases of their own, the others dealt out
together; how they meet is shuffled by the row's seed. Sizes, dims, strides, offsets and a value seed are then drawn
for each recipe, and a failing case is shrunk in exactly these.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType

from torch_fl_spec.registry import Operator

from torch_fl_conformance import (
    draw_batch_norm,
    draw_contraction,
    draw_convolution,
    draw_loss,
    draw_movement,
    draw_pointwise,
    draw_pooling,
    draw_random,
    draw_reduction,
)
from torch_fl_conformance.draw_pointwise import NUMBER_CLASSES
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.layout_blocks import PLACEMENTS, Layout, contiguous_strides
from torch_fl_conformance.problem import Claim, Problem, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import draw_layout, draw_lead

_DRAWERS: dict[str, ModuleType] = {
    "pointwise": draw_pointwise,
    "reduction": draw_reduction,
    "normalisation": draw_reduction,
    "contraction": draw_contraction,
    "pooling": draw_pooling,
    "loss": draw_loss,
    "movement": draw_movement,
    "index": draw_movement,
    "random": draw_random,
}
# By oracle: calls unlike those of the rest of the class.
_OWN_DRAWERS: dict[str, ModuleType] = {
    "convolution": draw_convolution,
    "convolution_backward": draw_convolution,
    "batch_norm": draw_batch_norm,
    "batch_norm_backward": draw_batch_norm,
}


def drawer(operator: Operator) -> ModuleType:
    """The module that draws calls of the operator, or of its class."""
    return _OWN_DRAWERS.get(operator.oracle, _DRAWERS[operator.op_class])


def recipes(operator: Operator, claim: Claim, count: int, seed: int) -> list[Recipe]:
    """At least `count` recipes, more where an axis has more words; the same for the same seed."""
    rng = random.Random(seed)
    source = drawer(operator)
    regimes = _regimes(operator, claim)
    arguments: list[str] = source.arguments(operator, claim)
    layouts = _layouts(operator, claim)
    weak = [Recipe(shape=word, regime=regimes[0], argument=rng.choice(arguments)) for word in _weak(operator, claim)]
    axes = [list(source.shapes(operator, claim)), regimes, list(layouts), arguments, list(PLACEMENTS)]
    longest = max(*(len(axis) for axis in axes), count - len(weak))
    dealt = [_dealt(axis, longest, rng) for axis in axes]
    strong = [_compatible(operator, Recipe(*words)) for words in zip(*dealt, strict=True)]
    return weak + strong + _needed(operator, claim, strong)


def _regimes(operator: Operator, claim: Claim) -> list[str]:
    """The row's regimes; the special one too where the registry requires special values."""
    regimes = list(operator.regimes_for(claim.dtypes)) or ["normal"]
    if "special_values" in operator.labels_for(claim.dtypes) and "special" not in regimes:
        regimes.append("special")
    return regimes


def _layouts(operator: Operator, claim: Claim) -> list[str]:
    """Layout words that the kernel's layout mask admits."""
    if claim.strided:
        return list(drawer(operator).layouts(operator, claim))
    dense = {"PERMUTED": "permuted", "CHANNELS_LAST_2D": "channels_last", "CHANNELS_LAST_3D": "channels_last"}
    return ["contiguous", *dict.fromkeys(word for bit, word in dense.items() if claim.admits(bit))]


def _plain(operator: Operator, claim: Claim) -> str:
    """The regime for cases whose point is another than their elements."""
    regimes = _regimes(operator, claim)
    return next((r for r in ("normal", "full_range", "boolean", "special") if r in regimes), "normal")


def _weak(operator: Operator, claim: Claim) -> list[str]:
    words = ["zero_size", "one_element"]
    return [*words, "scalar_shape"] if operator.op_class == "pointwise" else words


def _dealt(words: list[str], length: int, rng: random.Random) -> list[str]:
    """Every word about equally often, in an order of its own."""
    dealt = [words[place % len(words)] for place in range(length)]
    rng.shuffle(dealt)
    return dealt


def _compatible(operator: Operator, recipe: Recipe) -> Recipe:
    """Settle words that exclude each other: an exact alias has the output's strides, so it repeats nothing."""
    if recipe.argument.startswith("alias=") and recipe.layout == "stride_zero":
        return Recipe(recipe.shape, recipe.regime, "holes", recipe.argument, recipe.placement)
    return recipe


def _needed(operator: Operator, claim: Claim, strong: Sequence[Recipe]) -> list[Recipe]:
    """Recipes for required labels that a meeting of two words alone can show, or that settling took away."""
    regimes = _regimes(operator, claim)
    plain = _plain(operator, claim)
    added = []
    if "special" in regimes:
        added.append(Recipe("tail", "special", "contiguous", "plain", "pool"))
    if claim.strided:
        layouts = drawer(operator).layouts(operator, claim)
        for layout in ("stride_zero", "strided_out", "transposed"):
            if layout in layouts:
                added.append(Recipe("square", plain, layout, drawer(operator).arguments(operator, claim)[0], "pool"))
    if "past_power" in operator.labels:
        added.append(Recipe("past_1024", plain, "contiguous", drawer(operator).arguments(operator, claim)[0], "own"))
    if "long_k" in operator.labels:
        added.append(Recipe("long_k", plain, "contiguous", "plain", "pool"))
    if "many_dims" in operator.labels:
        words = drawer(operator).arguments(operator, claim)
        many = next(word for word in words if word.startswith("many"))
        added.append(Recipe("tail", plain, "contiguous", many, "start"))
    if "beta_zero" in operator.labels and "special" in regimes:
        added.append(Recipe("tail", "special", "contiguous", "beta=zero", "own"))
    return added


def number_sequence(operator: Operator, claim: Claim, seed: int) -> list[Recipe]:
    """Calls that differ in one number only, in an order of the seed's: shows a number kept from an earlier call."""
    words = [word for word in drawer(operator).arguments(operator, claim) if word.partition("=")[2] in NUMBER_CLASSES]
    random.Random(seed).shuffle(words)
    return [Recipe("tail", _plain(operator, claim), "contiguous", word, "pool") for word in words]


def draw_problem(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Problem:
    """A structure, layouts and a value seed for one recipe. Elements are not drawn: they come from the seed."""
    structure: Structure = drawer(operator).draw_call(draw, operator, claim, recipe)
    alias = _alias(structure, recipe)
    layouts: dict[str, Layout] = {}
    for tensor in (*structure.inputs, *structure.outs):
        is_out = tensor in structure.outs
        if is_out and alias and tensor is structure.outs[0]:
            layouts[tensor.name] = layouts[alias]
            continue
        layouts[tensor.name] = _layout(draw, claim, recipe, tensor, is_out)
    value_seed = draw.below(2**32)
    return Problem(operator, claim, recipe, structure, layouts, alias, value_seed)


def _alias(structure: Structure, recipe: Recipe) -> str | None:
    """The input that output 0 is exactly, where the recipe asks for it and the shapes permit it."""
    name = recipe.argument.partition("=")[2] if recipe.argument.startswith("alias=") else ""
    out = structure.outs[0]
    for tensor in structure.inputs:
        if tensor.name == name and (tensor.shape, tensor.dtype) == (out.shape, out.dtype) and not tensor.repeat:
            return name
    return None


def _layout(draw: Draw, claim: Claim, recipe: Recipe, tensor: Tensor, is_out: bool) -> Layout:
    lead = draw_lead(draw, tensor.dtype.size, claim.data_align)
    if not claim.strided:
        ranks = {"permuted": range(2, 9), "channels_last": range(5 - claim.admits("CHANNELS_LAST_2D"), 6)}
        if len(tensor.shape) in ranks.get(recipe.layout, ()):
            return draw_layout(draw, recipe.layout, tensor.shape, lead=lead, is_out=is_out)
        return Layout(contiguous_strides(tensor.shape), lead)
    word = "contiguous" if recipe.layout == "stride_zero" else recipe.layout
    if word in ("transposed", "channels_last") and is_out and len(tensor.shape) < 3:
        word = "contiguous"
    layout = draw_layout(draw, word, tensor.core, lead=lead, is_out=is_out)
    strides = tuple(0 if axis in tensor.repeat else step for axis, step in enumerate(layout.strides))
    return Layout(strides, lead)
