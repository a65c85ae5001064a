"""Draws calls of pooling: windows of all kinds over planes of sizes that suit them, each dimension by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance import windows
from torch_fl_conformance.draws import Draw
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.problem import Claim, Recipe, Structure, Tensor
from torch_fl_conformance.shapes import PRIMES, TAILS, between, one_of
from torch_fl_conformance.values import Draw as Values
from torch_fl_conformance.values import exact_magnitude
from torch_fl_conformance.windows import Line, Windows

_ADAPTIVE = ["uneven", "even", "global", "widening", "one_by_one"]
_STRIDED = ["plain", "shared", "crowded", "padded", "ceil", "padded_ceil", "gaps", "far", "one_by_one"]
_DIVISORS = (3, 1, 7, -2)


def shapes(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Strong shape words: what the plane of results is like."""
    batched = ("batch", "many_planes") if claim.max_ndim >= 4 else ()
    return ("tail", "unbatched", "square", "long_line", "primes", "past_line", *batched)


def layouts(operator: Operator, claim: Claim) -> tuple[str, ...]:
    """Layout words."""
    words = ("contiguous", "transposed", "holes", "stride_zero", "strided_out", "padded_rows", "channels_last")
    return (*words, "odd_ones", "mixed")


def arguments(operator: Operator, claim: Claim) -> list[str]:
    """Kinds of windows."""
    slots = {slot.name for slot in operator.slots}
    if "kernel_size" not in slots:
        return list(_ADAPTIVE)
    words = [*_STRIDED]
    if "dilation" in slots:
        words += ["dilated", "padded_dilated", *(["padded_low"] if operator.oracle == "max_pool" else [])]
    if "divisor_override" in slots:
        words += ["divisor", "padded_not_counted", "padded_divisor"]
    return words + (["out_of_range"] if "indices" in slots else [])


@dataclass(frozen=True)
class _Window:
    """A window's parameters along one dimension, and how many places it takes for so many outputs."""

    size: int
    stride: int
    padding: int
    dilation: int
    beyond: bool  # with ceil_mode, where the last window reaches beyond the padded input

    @property
    def extent(self) -> int:
        return self.dilation * (self.size - 1) + 1

    def places(self, draw: Draw, count: int) -> int:
        """A number of places on which there are `count` outputs, or a few more where so few leave none."""
        whole = (count - 1) * self.stride + self.extent - 2 * self.padding
        # of the last window some places lie beyond, but not the first one; or some places are left over
        most = min(self.stride - 1, self.extent - 1 - self.padding)
        beyond = self.beyond and most > 0
        places = whole - between(draw, 1, most) if beyond else whole + between(draw, 0, self.stride - 1)
        while places < 1 or self.line(places).misses:
            places += self.stride
        return places

    def count(self, places: int) -> int:
        """The outputs over so many places, as ATen counts them."""
        room = places + 2 * self.padding - self.extent
        if not self.beyond:
            return room // self.stride + 1
        count = -(-room // self.stride) + 1
        return count - ((count - 1) * self.stride >= places + self.padding)

    def line(self, places: int, *, count_padding: bool = True) -> Line:
        """Its windows over so many places."""
        return windows.strided(
            places, self.count(places), self.size, self.stride, self.padding, self.dilation, count_padding=count_padding
        )


def _window(draw: Draw, word: str, pads: bool) -> _Window:
    """The window along one dimension; `pads`: whether this is the one that a padded word pads in any case."""
    if word == "one_by_one":
        return _Window(1, 1, 0, 1, beyond=False)
    beyond = word.endswith("ceil")
    size = between(draw, 2, 4 if word in ("shared", "padded_ceil") else 3)
    dilation = between(draw, 2, 3) if word.endswith("dilated") else 1
    if word == "shared":
        return _Window(size, between(draw, 1, size - 1), 0, dilation, beyond)
    if word == "crowded":  # an element is in many windows
        return _Window(between(draw, 4, 7), 1, 0, dilation, beyond)
    if word == "gaps":
        return _Window(size - 1, size + between(draw, 0, 1), 0, dilation, beyond)
    if word == "far":  # so far apart that places in the plane pass 65535
        return _Window(size, between(draw, 257, 290), 0, dilation, beyond)
    if not word.startswith("padded"):
        stride = between(draw, 1, 3) if word == "dilated" else size
        return _Window(size, stride, 0, dilation, beyond)
    size = size + between(draw, 0, 2) if pads else size
    # where padding and ceil_mode meet, a window of 3 or more places holds both
    size = max(size, 3) if beyond else size
    return _Window(size, between(draw, 2 if beyond else 1, size), between(draw, int(pads), size // 2), dilation, beyond)


def _outputs(draw: Draw, recipe: Recipe) -> tuple[int, int]:
    """(high, wide): how many outputs a plane has."""
    word = recipe.shape
    if word == "one_element":
        return 1, 1
    if recipe.argument == "far":
        return 2, 2
    if word == "long_line":
        return between(draw, 2, 4), one_of(draw, TAILS[5:])
    if word == "past_line":
        return between(draw, 1, 3), one_of(draw, (33, 17, 65, 14))
    if word == "square":
        size = one_of(draw, (2, 3, 4, 7))
        return size, size
    if word == "primes":
        return one_of(draw, PRIMES[:5]), one_of(draw, PRIMES[:5])
    if word == "many_planes":
        return between(draw, 1, 3), between(draw, 2, 4)
    return between(draw, 1, 4), one_of(draw, TAILS[:3])


def _leading(draw: Draw, recipe: Recipe, claim: Claim) -> tuple[int, ...]:
    """Sizes ahead of the plane: [N, C], or [C] without a batch."""
    word = recipe.shape
    if word == "unbatched" or claim.max_ndim < 4:
        return (0 if word == "zero_size" else 1 if word == "one_element" else between(draw, 1, 3),)
    if word == "one_element" or recipe.argument == "far":
        return 0 if word == "zero_size" else 1, 1
    if word == "many_planes":
        return between(draw, 3, 5), one_of(draw, (5, 8, 17))
    return 0 if word == "zero_size" else between(draw, 1, 3), between(draw, 1, 3)


def draw_call(draw: Draw, operator: Operator, claim: Claim, recipe: Recipe) -> Structure:
    """A call of a pooling operator that shows what the recipe asks for."""
    leading = _leading(draw, recipe, claim)
    if "kernel_size" not in {slot.name for slot in operator.slots}:
        return _call(draw, operator, claim, recipe, leading, _adaptive(draw, recipe), {}, set())
    word = "one_by_one" if recipe.shape == "one_element" else recipe.argument
    first = between(draw, 0, 1)
    pair = [_window(draw, word, axis == first or word == "padded_low") for axis in range(2)]
    if recipe.shape == "square":
        pair = [pair[first]] * 2
    places = [window.places(draw, count) for window, count in zip(pair, _outputs(draw, recipe), strict=True)]
    if recipe.shape == "square":
        places = [max(places)] * 2
    params: dict[str, Any] = {
        "kernel_size": tuple(window.size for window in pair),
        "stride": tuple(window.stride for window in pair),
        "padding": tuple(window.padding for window in pair),
    }
    slots = {slot.name for slot in operator.slots}
    labels = set()
    if "dilation" in slots:
        params["dilation"] = tuple(window.dilation for window in pair)
        labels |= {"dilated"} if any(window.dilation > 1 for window in pair) else set()
    labels |= {"padded"} if any(params["padding"]) else set()
    counted = True
    if "count_include_pad" in slots:
        counted = word != "padded_not_counted" and (word.startswith("padded") or bool(between(draw, 0, 1)))
        params["count_include_pad"] = counted
        params["divisor_override"] = one_of(draw, _DIVISORS) if word.endswith("divisor") else None
        present = params["divisor_override"] is not None
        labels |= {"optional_present" if present else "optional_absent"}
        if any(params["padding"]) and not present:
            labels |= {"padding_counted" if counted else "padding_not_counted"}
    lines = [window.line(size, count_padding=counted) for window, size in zip(pair, places, strict=True)]
    for window, line in zip(pair, lines, strict=True):
        end = (len(line.seen) - 1) * window.stride - window.padding + window.extent
        labels |= {"ceil_window"} if end > line.size + window.padding else set()
    return _call(draw, operator, claim, recipe, leading, Windows(*lines), params, labels)


def _adaptive(draw: Draw, recipe: Recipe) -> Windows:
    """Windows from the sizes of input and output alone."""
    word = "one_by_one" if recipe.shape == "one_element" else recipe.argument
    lines = []
    for count in _outputs(draw, recipe):
        if word == "global":
            lines.append(windows.adaptive(count, 1))
        elif word == "even":
            lines.append(windows.adaptive(count * between(draw, 2, 3), count))
        elif word == "widening":
            lines.append(windows.adaptive(count, count + between(draw, 1, 4)))
        elif word == "one_by_one":
            lines.append(windows.adaptive(count, count))
        else:
            lines.append(windows.adaptive(count + between(draw, 1, 2 * count), count))
    if recipe.shape == "square":
        lines = [lines[0]] * 2
    return Windows(lines[0], lines[1])


def _call(
    draw: Draw,
    operator: Operator,
    claim: Claim,
    recipe: Recipe,
    leading: tuple[int, ...],
    seen: Windows,
    params: dict[str, Any],
    labels: set[str],
) -> Structure:
    """Tensors and arguments once the windows stand."""
    dtype = DTYPES[claim.dtypes[0]]
    wide = (*leading, seen.height.size, seen.width.size)
    narrow = (*leading, len(seen.height.seen), len(seen.width.seen))
    is_backward = operator.slots[0].name == "grad_output"
    terms = max(map(len, seen.height.seen)) * max(map(len, seen.width.seen))
    inputs = []
    for place, slot in enumerate(slot for slot in operator.slots if slot.kind == "tensor"):
        shape = wide if slot.name == "self" else narrow
        if slot.name == "indices":
            spec = Values("normal", domain="index", bound=wide[-2] * wide[-1], windows=seen)
            inputs.append(Tensor(slot.name, DTYPES["i64"], shape, spec))
            continue
        repeat = _repeat(draw, recipe, shape) if place == 0 else ()
        spec = _values(operator, claim, recipe, terms, place)
        if recipe.argument == "out_of_range":  # what is added to a large sentinel shows where it is infinite or NaN
            spec = replace(spec, regime="special", terms=1)
        if recipe.argument == "padded_low":  # padding that takes part in a maximum shows among negative values alone
            spec = replace(spec, regime="normal" if spec.regime == "special" else spec.regime, domain="negative")
        inputs.append(Tensor(slot.name, dtype, shape, spec, repeat))
    args: list[dict[str, Any]] = []
    for slot in operator.slots:
        value = params.get(slot.name)
        if slot.kind == "tensor":
            args.append({"tensor": slot.name})
        elif value is None:
            args.append({"none": True})
        else:
            args.append({"ints": list(value)} if slot.kind == "int_list" else {slot.kind: value})
    outs = [
        Tensor(out.name, DTYPES[operator.dtype_of(out.type, claim.dtypes)], wide if is_backward else narrow)
        for out in operator.outs
    ]
    labels |= {"shared_elements"} if seen.height.shares or seen.width.shares else set()
    labels |= {"unbatched"} if len(leading) == 1 else set()
    labels |= {"global_window"} if narrow[-2:] == (1, 1) and terms == wide[-2] * wide[-1] > 1 else set()
    return Structure(tuple(inputs), tuple(outs), tuple(args), params, frozenset(labels))


def _repeat(draw: Draw, recipe: Recipe, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions that repeat: all, as the gradient of a sum does, in squares, which each row has; else any of them."""
    several = tuple(axis for axis, size in enumerate(shape) if size > 1)
    if recipe.layout != "stride_zero" or not several:
        return ()
    return several if recipe.shape == "square" else (one_of(draw, several),)


def _values(operator: Operator, claim: Claim, recipe: Recipe, terms: int, place: int) -> Values:
    regime, magnitude = recipe.regime, 7
    if regime == "exact_integer":
        found = exact_magnitude(terms, False, claim.precision(operator).bits)
        regime, magnitude = ("exact_integer", found) if found else ("few", 7)
    return Values(regime, terms=terms, magnitude=magnitude, ordinal=place, elementwise=False)
