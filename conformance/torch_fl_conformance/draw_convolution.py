"""Draws calls of convolutions and of their gradients; parameters per dimension are drawn independently."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_operands import operand_values
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.oracle_contraction import convolution_sizes
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import WEAK_SHAPES, between, one_of

_KINDS = (
    "plain", "same", "padded", "dilated", "grouped", "depthwise", "strided", "transposed", "output_padding",
    "transposed_grouped", "one_by_one",
)  # fmt: skip
_UNIT_STRIDES = ("same", "padded", "dilated", "depthwise")  # kernels go another way there
_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words."""
    return ("spatial_2d", "spatial_1d", "square", "long_k", "blocks")


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    return ("contiguous", "transposed", "holes", "strided_out", "padded_rows", "mixed", "channels_last")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Kinds of convolution, and what a call is without."""
    if operator.short_name == "convolution":
        return [*_KINDS, "bias_absent"]
    return [*_KINDS, *(f"{word}={name}" for word in ("without", "only") for name in _GRADIENTS)]


@dataclass(frozen=True)
class _Geometry:
    """One convolution; channels are those of one group."""

    batch: int
    groups: int
    cin: int
    cout: int
    spatial: tuple[int, ...]
    out_spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    transposed: bool

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.batch, self.cin * self.groups, *self.spatial)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.batch, self.cout * self.groups, *self.out_spatial)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        if self.transposed:
            return (self.cin * self.groups, self.cout, *self.kernel)
        return (self.cout * self.groups, self.cin, *self.kernel)

    @property
    def params(self) -> dict[str, Any]:
        """The slots behind the tensors, in their order."""
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        return {name: getattr(self, name) for name in names}

    @property
    def args(self) -> list[dict[str, Any]]:
        """The same as the driver takes them."""
        lists = [{"ints": list(value)} for value in (self.stride, self.padding, self.dilation, self.output_padding)]
        return [*lists[:3], {"bool": self.transposed}, lists[3], {"int": self.groups}]

    @property
    def labels(self) -> set[str]:
        found = {f"spatial_{len(self.kernel)}d"}
        found |= {"transposed"} if self.transposed else set()
        found |= {"output_padding"} if any(self.output_padding) else set()
        found |= {"grouped"} if self.groups > 1 else set()
        found |= {"dilated"} if max(self.dilation) > 1 and max(self.kernel) > 1 else set()
        found |= {"padded"} if any(self.padding) else set()
        return found | ({"zero_size"} if self.batch == 0 else set())


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a convolution or of its gradients that shows what the recipe asks for."""
    if operator.short_name == "convolution":
        return _forward(draw, operator, claim, recipe)
    return _backward(draw, operator, claim, recipe)


def _geometry(draw: Draw, claim: Claim, recipe: Recipe, backward: bool) -> _Geometry:
    word = recipe.argument
    dims = 1 if recipe.shape == "spatial_1d" or claim.max_ndim < 4 else 2
    if recipe.shape in ("one_element", "zero_size", "long_k", "blocks"):
        dims = 1 if claim.max_ndim < 4 else between(draw, 1, 2)
    if word == "same" and claim.max_ndim >= 4:
        dims = 2  # a row has a neighbour
    transposed = word in ("transposed", "output_padding", "transposed_grouped")
    kernel = tuple(1 if word == "one_by_one" else between(draw, 1, 3) for _ in range(dims))
    stride = tuple(between(draw, 1, 3) for _ in range(dims))
    if word in _UNIT_STRIDES:
        stride = (1,) * dims
    if word == "strided":
        stride = tuple(max(s, 2) for s in stride)
    dilation = tuple(between(draw, 1, 2) + (word == "dilated") for _ in range(dims))
    if word == "dilated":
        kernel = tuple(max(size, 2) for size in kernel)
    if word == "same":
        kernel = (3,) * dims
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    padding = tuple(between(draw, int(word == "padded"), r) if r else 0 for r in reach)
    if word == "same":
        padding = tuple(r // 2 for r in reach)
    if word == "padded" and not any(padding):
        kernel, dilation, padding = (3, *kernel[1:]), (1, *dilation[1:]), (1, *padding[1:])
        reach = (2, *reach[1:])
    extra: tuple[int, ...] = (0,) * dims
    if word == "output_padding":
        stride = tuple(max(s, 2) for s in stride)
        extra = tuple(between(draw, 1, s - 1) for s in stride)
    groups = between(draw, 2, 3) if "grouped" in word or word == "depthwise" else 1
    cin, cout, batch = between(draw, 1, 4), between(draw, 1, 4), between(draw, 1, 2)
    least = 1  # narrow positions along each dimension
    if recipe.shape in ("long_k", "blocks") and word != "one_by_one":
        kernel = tuple(max(size, 3) for size in kernel) if dims == 2 else (9,)
        reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
        padding = tuple(r // 2 for r in reach) if word == "same" else padding
    if recipe.shape == "blocks":
        # more products and more positions than kernels take at once
        cin, batch, least = 33, 2, 13 if dims == 2 else 131
    elif recipe.shape == "long_k" and backward:
        cout = one_of(draw, (65, 33, 101))  # what grad_input is summed over
    elif recipe.shape == "long_k":
        cin = one_of(draw, (65, 33))
    if word == "depthwise":
        cin = 1
    spatial = tuple(r + between(draw, 1, 5) + (s if not transposed else 0) for r, s in zip(reach, stride, strict=True))
    if least > 1:
        spatial = tuple(least if transposed else least * s + r for r, s in zip(reach, stride, strict=True))
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
    return _Geometry(
        batch, groups, cin, cout, spatial, out_spatial, kernel, stride, padding, dilation, extra, transposed
    )


def _forward(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    drawn = _geometry(draw, claim, recipe, backward=False)
    dtype = DTYPES[claim.dtypes[0]]
    terms = drawn.cin * prod(drawn.kernel)
    sizes = {"input": drawn.input_shape, "weight": drawn.weight_shape, "bias": (drawn.cout * drawn.groups,)}
    present = recipe.argument != "bias_absent" and bool(between(draw, 0, 2) or recipe.argument == "plain")
    if not present:
        del sizes["bias"]
    # special values in the input alone: padding times an infinite weight is NaN for some honest kernels
    inputs = tuple(
        Tensor(
            name,
            dtype,
            shape,
            operand_values(operator, claim, recipe, 1 if name == "bias" else terms, place, special=place == 0),
        )
        for place, (name, shape) in enumerate(sizes.items())
    )
    bias_arg: dict[str, Any] = {"tensor": "bias"} if present else {"none": True}
    labels = drawn.labels | {"optional_present" if present else "optional_absent"}
    labels |= {"long_k"} if terms > 256 else set()
    out = Tensor("out", dtype, drawn.out_shape)
    args = ({"tensor": "input"}, {"tensor": "weight"}, bias_arg, *drawn.args)
    return Structure(inputs, (out,), args, drawn.params, frozenset(labels))


def _backward(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    drawn = _geometry(draw, claim, recipe, backward=True)
    dtype = DTYPES[claim.dtypes[0]]
    positions = drawn.batch * prod(drawn.spatial if drawn.transposed else drawn.out_spatial)
    taps = drawn.cout * prod(drawn.kernel)
    terms = max(taps, positions, drawn.batch * prod(drawn.out_spatial))
    # An infinite value of the narrow side times padding, or an infinite weight times padding of grad_output, is NaN for
    # some honest kernels; so is infinity times a subnormal number for those that shorten it.
    sides = ("grad_output", "input") if drawn.transposed else ("input", "grad_output")
    special = sides[0] if any(drawn.padding) else one_of(draw, sides)
    sizes = {"grad_output": drawn.out_shape, "input": drawn.input_shape, "weight": drawn.weight_shape}
    inputs = tuple(
        Tensor(name, dtype, shape, operand_values(operator, claim, recipe, terms, place, special=name == special))
        for place, (name, shape) in enumerate(sizes.items())
    )
    wanted = {
        "grad_input": drawn.input_shape,
        "grad_weight": drawn.weight_shape,
        "grad_bias": (drawn.cout * drawn.groups,),
    }
    unwanted = _unwanted(recipe)
    outs = tuple(Tensor(name, dtype, (0,) if name in unwanted else shape) for name, shape in wanted.items())
    labels = drawn.labels | ({"unwanted_output"} if unwanted else set())
    labels |= {"long_k"} if max(taps, positions) > 256 else set()
    args = (*({"tensor": name} for name in sizes), *drawn.args)
    return Structure(inputs, outs, args, drawn.params, frozenset(labels))


def _unwanted(recipe: Recipe) -> set[str]:
    """The gradients that the recipe is without; a call with little to see is without none."""
    word, _, name = recipe.argument.partition("=")
    if not name or recipe.shape in WEAK_SHAPES:
        return set()
    return {name} if word == "without" else {other for other in _GRADIENTS if other != name}
