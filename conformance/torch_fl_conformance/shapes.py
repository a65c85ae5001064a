"""Shapes and strides as they are drawn, each for one purpose (a recipe's `shape` and `layout` words)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.layout_blocks import Layout, contiguous_strides

T = TypeVar("T")

TAILS = (5, 7, 13, 35, 67, 131, 259)  # no multiples of 4
PRIMES = (2, 3, 5, 7, 11, 13)
BULK = (65_537, 72_000)  # elements of a case that a plugin right for small tensors only does not pass
WEAK_SHAPES = ("zero_size", "one_element", "scalar_shape")  # too small to show much beside
STRONG_SHAPES = ("tail", "square", "primes", "past_power", "max_ndim", "size_one", "under_power", "power", "bulk")
LAYOUTS = ("contiguous", "permuted", "holes", "padded_rows", "odd_ones", "stride_zero", "strided_out", "mixed")


def one_of(draw: Draw, options: Sequence[T]) -> T:
    """One of the options; shrinks towards the first."""
    return options[draw.below(len(options))]


def between(draw: Draw, low: int, high: int) -> int:
    """An integer of [low, high]; shrinks towards low."""
    return low + draw.below(high - low + 1)


def permutation(draw: Draw, count: int) -> tuple[int, ...]:
    """An order of 0 to count - 1; shrinks towards the identity."""
    left = list(range(count))
    return tuple(left.pop(draw.below(len(left))) for _ in range(count))


def near_power(draw: Draw, kind: str, largest: int = 12) -> int:
    """2^k - 1, 2^k or 2^k + 1 with 6 <= k <= largest, by the word for the shape."""
    exponent = between(draw, 6, largest)
    return int(2**exponent) + {"under_power": -1, "power": 0, "past_power": 1}[kind]


def is_tail(size: int) -> bool:
    """Whether a vector loop leaves some of so many elements over."""
    return size > 1 and size % 4 != 0


def is_past_power(size: int) -> bool:
    """2^k + 1 with k of at least 6: one element behind a full block."""
    return size >= 65 and (size - 1) & (size - 2) == 0


def length_labels(size: int) -> set[str]:
    """Labels of so many elements that are taken together."""
    return ({"tail"} if is_tail(size) else set()) | ({"past_power"} if is_past_power(size) else set())


def shape_of(draw: Draw, kind: str, max_ndim: int, *, largest: int = 12) -> tuple[int, ...]:
    """A shape for a pointwise call."""
    rank = min(max_ndim, 4)
    if kind == "scalar_shape":
        return ()
    if kind == "one_element":
        return (1,) * between(draw, 1, rank)
    if kind == "zero_size":
        shape = [between(draw, 1, 5) for _ in range(between(draw, 1, rank))]
        shape[between(draw, 0, len(shape) - 1)] = 0
        return tuple(shape)
    if kind in ("under_power", "power", "past_power"):
        size = near_power(draw, kind, largest)
        return (size,) if size > 600 or rank < 2 else (*[between(draw, 1, 3)] * between(draw, 0, 1), size)
    if kind == "bulk":
        return (between(draw, *BULK),)
    if kind == "square" and rank >= 2:
        size = one_of(draw, (3, 2, 5, 8, 17, 33))
        return (*[between(draw, 2, 3)] * between(draw, 0, min(rank - 2, 1)), size, size)
    if kind == "primes":
        return tuple(one_of(draw, PRIMES) for _ in range(between(draw, min(2, rank), min(rank, 3))))
    if kind == "max_ndim":
        ndim = min(max_ndim, 8)
        return tuple(2 if axis % 3 else between(draw, 2, 3) for axis in range(ndim))  # each dimension's stride counts
    if kind == "size_one":
        shape = [between(draw, 2, 6) for _ in range(rank)]
        for axis in range(between(draw, 0, 1), rank, 2):
            shape[axis] = 1
        return tuple(shape)
    return (*[between(draw, 2, 4)] * between(draw, 0, min(rank, 2) - 1), one_of(draw, TAILS))


def draw_lead(draw: Draw, size: int, data_align: int) -> int:
    """Elements ahead of element 0: 0, 1, 3, 7 or a page and one; multiples of the kernel's declared alignment."""
    lead = one_of(draw, (1, 0, 3, 7, 4096 // size + 1))
    return lead * max(data_align // size, 1)


def draw_layout(draw: Draw, word: str, shape: tuple[int, ...], *, lead: int, is_out: bool) -> Layout:
    """Strides for one tensor in the layout a recipe asks for."""
    if word == "mixed":
        word = one_of(draw, ("holes", "permuted", "padded_rows", "odd_ones", "contiguous"))
    if word == "strided_out":
        word = one_of(draw, ("holes", "permuted", "padded_rows")) if is_out else "contiguous"
    ndim = len(shape)
    if word == "permuted" and ndim >= 2:
        order = permutation(draw, ndim)
        if order == tuple(range(ndim)):
            order = order[::-1]
        return Layout(dense_strides(shape, order), lead)
    if word == "channels_last" and ndim >= 3:
        return Layout(dense_strides(shape, (0, *range(2, ndim), 1)), lead)
    if word == "transposed" and ndim >= 2:
        return Layout(dense_strides(shape, (*range(ndim - 2), ndim - 1, ndim - 2)), lead)
    if word in ("holes", "permuted", "padded_rows", "channels_last", "transposed") and ndim:
        step = between(draw, 2, 3) if word != "padded_rows" or ndim == 1 else 1
        gap = between(draw, 1, 5) if word == "padded_rows" else 0
        return Layout(_spread(shape, step, gap), lead)
    strides = list(contiguous_strides(shape))
    if word == "odd_ones":
        for axis, size in enumerate(shape):
            if size == 1:
                strides[axis] = one_of(draw, (7, 1, 0, 1001))
    return Layout(tuple(strides), lead)


def dense_strides(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions lie in memory in this order, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def _spread(shape: tuple[int, ...], step: int, gap: int) -> tuple[int, ...]:
    """Strides with holes: `step` between innermost elements, `gap` elements behind each row."""
    strides = [0] * len(shape)
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step = step * max(shape[axis], 1) + (gap if axis == len(shape) - 1 else 0)
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: Sequence[int]) -> bool:
    """Whether strides are row-major, size-1 dimensions aside."""
    expected = contiguous_strides(shape)
    return 0 in shape or all(
        size == 1 or have == want for size, have, want in zip(shape, strides, expected, strict=True)
    )
