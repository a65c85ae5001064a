"""Draws calls of nll_loss, forward and backward: reductions, weights, and targets of which some are to be ignored."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, length_labels, near_power, one_of
from torch_fl_conformance.values import Draw as Values

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
NO_CLASS = -100
"""ATen's default of ignore_index."""


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words: how many elements, how many classes."""
    words = ("tail", "past_power", "square", "primes", "past_1024", "classes", "power", "unbatched")
    return words if claim.max_ndim >= 2 else ("unbatched",)


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    return ("contiguous", "permuted", "holes", "stride_zero", "strided_out", "padded_rows", "odd_ones", "mixed")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """The reduction, whether there are weights, and what is ignored: a number that is no class, a class, everything."""
    return [
        *("mean", "sum", "none", "mean weighted", "sum weighted", "none weighted"),
        *("mean ignored", "mean weighted ignored", "sum weighted ignored", "none ignored", "none weighted ignored"),
        *("mean class", "mean weighted class", "sum class", "none weighted class", "mean all", "sum weighted all"),
        "out_of_range",
    ]


def _sizes(draw: Draw, recipe: Recipe, claim: Claim) -> tuple[int, int]:
    """(elements of the batch, classes)."""
    word = recipe.shape
    if word == "one_element":
        return 1, 1
    if word == "zero_size":
        return 0, between(draw, 1, 5)
    if word == "square":
        size = one_of(draw, (5, 3, 8, 33))
        return size, size
    if word in ("under_power", "power", "past_power"):
        return near_power(draw, word, 10), one_of(draw, (3, 5, 10))
    if word == "past_1024":
        return one_of(draw, (1025, 513, 257, 2049)), one_of(draw, (3, 2, 7))
    if word == "classes":
        return between(draw, 2, 5), one_of(draw, (1025, 257, 1000))
    if word == "primes":
        return one_of(draw, PRIMES), one_of(draw, PRIMES)
    return one_of(draw, TAILS), one_of(draw, (5, 65, 13, 35))


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of the loss, or of what it gives back, that shows what the recipe asks for."""
    dtype, index = DTYPES[claim.dtypes[0]], DTYPES["i64"]
    batch, classes = _sizes(draw, recipe, claim)
    batched = recipe.shape != "unbatched" and claim.max_ndim >= 2
    reduction, weighted, ignored = _asked(draw, recipe)
    each = batched and reduction == REDUCTIONS["none"]
    lead = (batch,) if batched else ()
    terms = 1 if each else max(batch, 1)
    # a class that is ignored is any of them: indices are drawn evenly
    ignore_index = between(draw, 0, classes - 1) if ignored == "class" else NO_CLASS
    wide = [axis for axis, size in enumerate((*lead, classes)) if size > 1]
    repeat = (one_of(draw, wide),) if recipe.layout == "stride_zero" and wide else ()
    target_values = Values("normal", domain="index", bound=classes)
    inputs = [
        Tensor("self", dtype, (*lead, classes), _values(recipe, terms), repeat),
        Tensor("target", index, lead, target_values),
    ]
    if weighted:
        inputs.append(Tensor("weight", dtype, (classes,), Values("normal", domain="positive", ordinal=2)))
    params: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index, "ignored": ignored}
    args: list[dict[str, Any]] = [
        *({"tensor": "self"}, {"tensor": "target"}, {"tensor": "weight"} if weighted else {"none": True}),
        *({"int": reduction}, {"int": ignore_index}),
    ]
    loss = (batch,) if each else ()
    outs: tuple[Tensor, ...] = (Tensor("output", dtype, loss), Tensor("total_weight", dtype, ()))
    if operator.short_name == "nll_loss_backward":
        inputs = [Tensor("grad_output", dtype, loss, _values(recipe, terms)), *inputs]
        inputs.append(Tensor("total_weight", dtype, (), Values("normal", domain="positive")))
        args = [{"tensor": "grad_output"}, *args, {"tensor": "total_weight"}]
        outs = (Tensor("grad_input", dtype, (*lead, classes)),)
    labels = {f"reduction_{word}" for word, number in REDUCTIONS.items() if number == reduction}
    labels |= {"optional_present"} if weighted else {"optional_absent"}
    labels |= {"unbatched"} if not batched else set()
    labels |= length_labels(batch) if batched else set()
    return Structure(tuple(inputs), outs, tuple(args), params, frozenset(labels))


def _asked(draw: Draw, recipe: Recipe) -> tuple[int, bool, str]:
    """(reduction, whether weighted, what is ignored: "nothing", "ignored", "class" or "all")."""
    words = recipe.argument.split()
    if words[0] not in REDUCTIONS:
        return between(draw, 0, 2), bool(between(draw, 0, 1)), "nothing"
    ignored = next((word for word in words if word in ("ignored", "class", "all")), "nothing")
    return REDUCTIONS[words[0]], "weighted" in words, ignored


def _values(recipe: Recipe, terms: int) -> Values:
    return Values(recipe.regime, terms=terms, elementwise=False)
