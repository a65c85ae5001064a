"""Draws calls of matrix products."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_operands import operand_values
from torch_fl_conformance.draw_pointwise import NUMBER_CLASSES, number_arg, scalar_of
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, near_power, one_of


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    return ("tail", "square", "long_k", "primes", "empty_k", "past_power", "power", "under_power", "blocks")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    words = ("contiguous", "transposed", "holes", "strided_out", "padded_rows", "mixed")
    return words if operator.short_name == "mm" else (*words, "stride_zero")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Factors of addmm."""
    if operator.short_name != "addmm":
        return ["plain"]
    return ["plain", *[f"{slot}={word}" for word in NUMBER_CLASSES for slot in ("beta", "alpha")]]


def _matrix_sizes(draw: Draw, recipe: Recipe) -> tuple[int, int, int]:
    """(m, k, n)."""
    word = recipe.shape
    if word == "one_element":
        return 1, 1, 1
    if word == "zero_size":
        sizes = [between(draw, 1, 5) for _ in range(3)]
        sizes[between(draw, 0, 2)] = 0
        return sizes[0], sizes[1], sizes[2]
    if word == "empty_k":
        return between(draw, 2, 5), 0, between(draw, 2, 5)
    if word == "blocks":
        # more rows and columns than kernels take at once
        return 130, one_of(draw, (8, 13, 32, 64) if recipe.regime == "wide" else (33, 65, 129)), 259
    if recipe.regime == "wide":
        # small k, where data of all magnitudes tell the precision tiers apart
        return between(draw, 3, 9), one_of(draw, (8, 13, 32, 64)), between(draw, 3, 9)
    if word == "square":
        size = one_of(draw, (3, 5, 8, 17, 33))
        return size, size, size
    if word == "long_k":
        return between(draw, 1, 4), one_of(draw, (259, 515, 1025, 4099)), between(draw, 1, 5)
    if word in ("past_power", "power", "under_power"):
        size = near_power(draw, word, 8)
        return between(draw, 1, 5), size, between(draw, 2, 7)
    choices = PRIMES if word == "primes" else TAILS[:4]
    return one_of(draw, choices), one_of(draw, choices), one_of(draw, choices)


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A matrix product that shows what the recipe asks for."""
    m, k, n = _matrix_sizes(draw, recipe)
    dtype = DTYPES[claim.dtypes[0]]
    batch = (1 if recipe.shape == "one_element" else between(draw, 2, 3),) if operator.short_name == "bmm" else ()
    first, second = ("mat1", "mat2") if operator.short_name == "addmm" else ("self", "mat2")
    spread = (0,) if recipe.layout == "stride_zero" and batch else ()
    which = between(draw, 0, 1) if spread else 0
    a = Tensor(
        first, dtype, (*batch, m, k), operand_values(operator, claim, recipe, k, 0), spread if which == 0 else ()
    )
    b = Tensor(
        second, dtype, (*batch, k, n), operand_values(operator, claim, recipe, k, 1), spread if which == 1 else ()
    )
    inputs = [a, b]
    args: list[dict[str, Any]] = [{"tensor": first}, {"tensor": second}]
    params: dict[str, Any] = {}
    labels = {"long_k"} if k > 256 else set()
    labels |= {"tail"} if k % 4 and n % 4 and k > 1 else set()
    labels |= {"zero_size"} if 0 in (m, k, n) else set()
    if operator.short_name == "addmm":
        repeat = one_of(draw, ((0,), (1,), (0, 1))) if recipe.layout == "stride_zero" else ()
        bias = Tensor("self", dtype, (m, n), operand_values(operator, claim, recipe, 1, 2), repeat)
        inputs.insert(0, bias)
        args.insert(0, {"tensor": "self"})
        for name in ("beta", "alpha"):
            wanted = recipe.argument.partition("=")[2] if recipe.argument.startswith(name) else "one"
            if recipe.regime == "exact_integer" and wanted in ("fractional", "large"):
                wanted = "integral"
            params[name] = scalar_of(draw, wanted, dtype)
            args.append(number_arg(params[name]))
        labels |= {"alpha_not_one"} if params["alpha"] != 1 else set()
    out = Tensor("out", dtype, (*batch, m, n))
    return Structure(tuple(inputs), (out,), tuple(args), params, frozenset(labels))
