"""Draws calls of batch norm, forward and backward: with the batch's statistics or running ones, outputs not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.kernel_case import number
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, length_labels, near_power, one_of
from torch_fl_conformance.values import Draw as Values

_STATISTICS = ("running_mean", "running_var", "save_mean", "save_invstd")


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words: how many elements a channel has, how many channels there are."""
    return ("tail", "past_power", "square", "primes", "past_1024", "channels", "flat", "power", "max_ndim")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    words = ("contiguous", "permuted", "holes", "stride_zero", "strided_out", "padded_rows", "odd_ones", "mixed")
    return (*words, "channels_last")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Whose statistics, which optional tensors there are and, backward, which outputs are not wanted."""
    if operator.short_name == "native_batch_norm":
        words = ["batch affine", "batch", "batch affine alone", "batch weight", "batch bias alone"]
        return [*words, "running affine", "running"]
    return [
        *("batch affine", "batch", "batch affine tracked", "batch affine no_input", "batch affine no_weight"),
        *("batch affine no_bias", "batch no_weight no_bias", "running affine", "running", "running affine no_input"),
        "running affine no_weight no_bias",
    ]


def _shape(draw: Draw, recipe: Recipe, claim: Claim) -> list[int]:
    """[N, C, ...]."""
    word, rank = recipe.shape, min(claim.max_ndim, 5)
    if word == "one_element":
        return [1, 1]
    if word == "zero_size":
        shape = [between(draw, 1, 4), between(draw, 1, 4), between(draw, 1, 5)][:rank]
        shape[between(draw, 0, len(shape) - 1)] = 0
        return shape
    if word == "square":
        if rank >= 4 and recipe.layout != "strided_out":
            size = one_of(draw, (3, 5, 8))
            return [2, 3, size, size]
        size = one_of(draw, (13, 9, 33))  # many channels side by side
        return [size, size]
    if word == "max_ndim":
        return [2, 3, *[2] * (rank - 2)]
    if word == "channels":
        return [between(draw, 2, 5), one_of(draw, (67, 129, 65)), *([between(draw, 1, 3)] if rank >= 3 else [])]
    if word == "primes":
        return [one_of(draw, PRIMES) for _ in range(between(draw, 2, min(rank, 4)))]
    length = one_of(draw, TAILS)
    if word in ("under_power", "power", "past_power"):
        length = near_power(draw, word, 10)
    if word == "past_1024":
        length = one_of(draw, (1025, 513, 257, 2049))
    if word == "flat" or rank < 3:
        return [length, between(draw, 1, 5)]
    return [between(draw, 1, 3), between(draw, 1, 4), length]


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of batch norm, or of what it gives back, that shows what the recipe asks for."""
    words = recipe.argument.split()
    batch = words[0] != "running"
    present = {name for name in ("weight", "bias") if name in words or "affine" in words}
    shape = tuple(_shape(draw, recipe, claim))
    terms = shape[0]
    for size in shape[2:]:
        terms *= size
    eps = one_of(draw, (1e-5, 1e-7, 1e-3)) if recipe.regime != "constant" else 1e-5
    maker = _Maker(draw, claim, recipe, shape, terms)
    if operator.short_name == "native_batch_norm":
        present |= set() if "alone" in words and batch else {"running_mean", "running_var"}
        momentum = one_of(draw, (0.1, 0.5, 0.01, 1.0, 0.0))
        inputs = [maker.tensor("input"), *maker.parameters(("weight", "bias", *_STATISTICS[:2]), present)]
        numbers = [{"bool": batch}, {"float": number(momentum)}, {"float": number(eps)}]
        params: dict[str, Any] = {"training": batch, "momentum": momentum, "eps": eps}
        unwanted = set() if batch else {"save_mean", "save_invstd"}
        unwanted |= set() if batch and "running_mean" in present else {"running_mean_out", "running_var_out"}
    else:
        present |= {"save_mean", "save_invstd"} if batch else {"running_mean", "running_var"}
        present |= {"running_mean", "running_var"} if "tracked" in words else set()
        inputs = [maker.tensor("grad_out"), maker.tensor("input")]
        inputs += maker.parameters(("weight", *_STATISTICS), present)
        numbers = [{"bool": batch}, {"float": number(eps)}]
        params = {"train": batch, "eps": eps}
        unwanted = {f"grad_{word.removeprefix('no_')}" for word in words if word.startswith("no_")}
    names = {tensor.name for tensor in inputs}
    tensors = [slot for slot in operator.slots if slot.kind == "tensor"]
    args = [{"tensor": slot.name} if slot.name in names else {"none": True} for slot in tensors]
    outs = []
    for place, out in enumerate(operator.outs):
        sizes = (0,) if out.name in unwanted else shape if place == 0 else shape[1:2]
        outs.append(Tensor(out.name, DTYPES[operator.dtype_of(out.type, claim.dtypes)], sizes))
    labels = {"batch_statistics" if batch else "running_statistics"}
    labels |= {"optional_present"} if present else set()
    labels |= {"optional_absent"} if len(names) < len(tensors) else set()
    labels |= {"unwanted_output"} if unwanted else set()
    labels |= length_labels(terms)
    return Structure(tuple(inputs), tuple(outs), (*args, *numbers), params, frozenset(labels))


class _Maker:
    """Makes a call's tensors."""

    def __init__(self, draw: Draw, claim: Claim, recipe: Recipe, shape: tuple[int, ...], terms: int) -> None:
        self.claim, self.recipe, self.shape, self.terms = claim, recipe, shape, max(terms, 1)
        wide = [axis for axis, size in enumerate(shape) if size > 1]
        self.repeat = (one_of(draw, wide),) if recipe.layout == "stride_zero" and wide else ()

    def tensor(self, name: str) -> Tensor:
        """input or grad_out; where something is repeated, input is."""
        spec = Values(self.recipe.regime, terms=self.terms, elementwise=False, infinities=False)
        repeat = self.repeat if name == "input" else ()
        return Tensor(name, DTYPES[self.claim.dtypes[0]], self.shape, spec, repeat)

    def parameters(self, names: Sequence[str], present: set[str]) -> list[Tensor]:
        """One number a channel each. Variances are positive; what was saved is made from the input later."""
        dtype = DTYPES[self.claim.dtypes[1]]
        made = []
        for place, name in enumerate(name for name in names if name in present):
            spec = Values("normal", domain="positive" if name == "running_var" else "any", ordinal=place)
            made.append(Tensor(name, dtype, self.shape[1:2], spec))
        return made
