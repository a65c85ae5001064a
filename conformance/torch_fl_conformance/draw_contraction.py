"""Draws calls of matrix products and convolutions; parameters per dimension are drawn independently."""

from __future__ import annotations

from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_pointwise import NUMBER_CLASSES, number_arg, scalar_of
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.oracle_contraction import convolution_sizes
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, near_power, one_of
from torch_fl_conformance.values import Draw as Values
from torch_fl_conformance.values import exact_magnitude

_CONVOLUTIONS = (
    "plain", "bias_absent", "padded", "dilated", "grouped", "depthwise", "strided",
    "transposed", "output_padding", "transposed_grouped", "one_by_one",
)  # fmt: skip


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    if operator.short_name == "convolution":
        return ("spatial_2d", "spatial_1d", "square", "long_k")
    return ("tail", "square", "long_k", "primes", "empty_k", "past_power", "power", "under_power", "blocks")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    words = ("contiguous", "transposed", "holes", "strided_out", "padded_rows", "mixed")
    if operator.short_name == "convolution":
        return (*words, "channels_last")
    return words if operator.short_name == "mm" else (*words, "stride_zero")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Factors of addmm, kinds of convolution."""
    if operator.short_name == "convolution":
        return list(_CONVOLUTIONS)
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


def _values(operator: Operator, claim: Claim, recipe: Recipe, terms: int, place: int, products: bool = True) -> Values:
    """How the elements of operand `place` are made."""
    regime, magnitude = recipe.regime, 7
    if regime == "special" and operator.short_name == "convolution" and place:
        regime = "normal"  # padding times an infinite weight is NaN for some honest kernels
    if regime == "exact_integer" and DTYPES[claim.dtypes[0]].is_float:
        # addmm adds a few more summands of the same size
        found = exact_magnitude(terms + 8, products, claim.precision(operator).bits - 4)
        regime, magnitude = ("exact_integer", found) if found else ("few", 7)
    return Values(regime, terms=max(terms, 1) * 4, magnitude=magnitude, ordinal=place, elementwise=False)


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a contraction that shows what the recipe asks for."""
    if operator.short_name == "convolution":
        return _convolution(draw, operator, claim, recipe)
    m, k, n = _matrix_sizes(draw, recipe)
    dtype = DTYPES[claim.dtypes[0]]
    batch = (1 if recipe.shape == "one_element" else between(draw, 2, 3),) if operator.short_name == "bmm" else ()
    first, second = ("mat1", "mat2") if operator.short_name == "addmm" else ("self", "mat2")
    spread = (0,) if recipe.layout == "stride_zero" and batch else ()
    which = between(draw, 0, 1) if spread else 0
    a = Tensor(first, dtype, (*batch, m, k), _values(operator, claim, recipe, k, 0), spread if which == 0 else ())
    b = Tensor(second, dtype, (*batch, k, n), _values(operator, claim, recipe, k, 1), spread if which == 1 else ())
    inputs = [a, b]
    args: list[dict[str, Any]] = [{"tensor": first}, {"tensor": second}]
    params: dict[str, Any] = {}
    labels = {"long_k"} if k > 256 else set()
    labels |= {"tail"} if k % 4 and n % 4 and k > 1 else set()
    labels |= {"zero_size"} if 0 in (m, k, n) else set()
    if operator.short_name == "addmm":
        repeat = one_of(draw, ((0,), (1,), (0, 1))) if recipe.layout == "stride_zero" else ()
        bias = Tensor("self", dtype, (m, n), _values(operator, claim, recipe, 1, 2), repeat)
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


def _convolution(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    word = recipe.argument
    dims = 1 if recipe.shape == "spatial_1d" or claim.max_ndim < 4 else 2
    if recipe.shape in ("one_element", "zero_size", "long_k"):
        dims = 1 if claim.max_ndim < 4 else between(draw, 1, 2)
    transposed = word in ("transposed", "output_padding", "transposed_grouped")
    kernel = tuple(1 if word == "one_by_one" else between(draw, 1, 3) for _ in range(dims))
    stride = tuple(between(draw, 1, 3) for _ in range(dims))
    dilation = tuple(between(draw, 1, 2) + (word == "dilated") for _ in range(dims))
    if word == "dilated":
        kernel = tuple(max(size, 2) for size in kernel)
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    padding = tuple(between(draw, int(word == "padded"), r) if r else 0 for r in reach)
    if word == "padded" and not any(padding):
        kernel, dilation, padding = (3, *kernel[1:]), (1, *dilation[1:]), (1, *padding[1:])
        reach = (2, *reach[1:])
    extra: tuple[int, ...] = (0,) * dims
    if word == "output_padding":
        stride = tuple(max(s, 2) for s in stride)
        extra = tuple(between(draw, 1, s - 1) for s in stride)
    groups = between(draw, 2, 3) if "grouped" in word or word == "depthwise" else 1
    wide = one_of(draw, (65, 33)) if recipe.shape == "long_k" else between(draw, 1, 4)
    cin = 1 if word == "depthwise" else wide
    cout = between(draw, 1, 4)
    batch = between(draw, 1, 2)
    if recipe.shape == "long_k" and word != "one_by_one":
        kernel = tuple(max(size, 3) for size in kernel) if dims == 2 else (9,)
        reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    spatial = tuple(r + between(draw, 1, 5) + (s if not transposed else 0) for r, s in zip(reach, stride, strict=True))
    if recipe.shape == "square" and dims == 2:
        spatial = (max(spatial), max(spatial))
    if recipe.shape == "zero_size":
        batch = 0
    if recipe.shape == "one_element":
        kernel = stride = dilation = spatial = (1,) * dims
        padding = extra = (0,) * dims
        transposed, batch, cin, cout, groups = transposed and word != "output_padding", 1, 1, 1, 1
    out_spatial = convolution_sizes(spatial, kernel, stride, padding, dilation, transposed, extra)
    while min(out_spatial) < 1:  # padding cuts a transposed output away
        spatial = tuple(size + 2 for size in spatial)
        out_spatial = convolution_sizes(spatial, kernel, stride, padding, dilation, transposed, extra)
    dtype = DTYPES[claim.dtypes[0]]
    terms = cin
    for size in kernel:
        terms *= size
    weight_shape = (cin * groups, cout, *kernel) if transposed else (cout * groups, cin, *kernel)
    inputs = [
        Tensor("input", dtype, (batch, cin * groups, *spatial), _values(operator, claim, recipe, terms, 0)),
        Tensor("weight", dtype, weight_shape, _values(operator, claim, recipe, terms, 1)),
    ]
    present = word != "bias_absent" and bool(between(draw, 0, 2) or word == "plain")
    if present:
        inputs.append(Tensor("bias", dtype, (cout * groups,), _values(operator, claim, recipe, 1, 2)))
    bias_arg: dict[str, Any] = {"tensor": "bias"} if present else {"none": True}
    args = (
        {"tensor": "input"}, {"tensor": "weight"}, bias_arg, {"ints": list(stride)}, {"ints": list(padding)},
        {"ints": list(dilation)}, {"bool": transposed}, {"ints": list(extra)}, {"int": groups},
    )  # fmt: skip
    params = {
        "stride": stride, "padding": padding, "dilation": dilation, "transposed": transposed,
        "output_padding": extra, "groups": groups,
    }  # fmt: skip
    labels = {"optional_present" if present else "optional_absent", f"spatial_{dims}d"}
    labels |= {"transposed"} if transposed else set()
    labels |= {"output_padding"} if any(extra) else set()
    labels |= {"grouped"} if groups > 1 else set()
    labels |= {"dilated"} if max(dilation) > 1 and max(kernel) > 1 else set()
    labels |= {"padded"} if any(padding) else set()
    labels |= {"long_k"} if terms > 256 else set()
    labels |= {"zero_size"} if batch == 0 else set()
    out = Tensor("out", dtype, (batch, cout * groups, *out_spatial))
    return Structure(tuple(inputs), (out,), args, params, frozenset(labels))
