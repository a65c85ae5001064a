"""Which elements of a plane each output of a pooling operator sees, and what an average of them is divided by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from torch_fl_conformance.dtypes import Array

Output = tuple[EllipsisType, int, int]
Window = tuple[EllipsisType, slice, slice]


@dataclass(frozen=True)
class Line:
    """The windows along one dimension.

    seen: for each output the places inside of the input. counted: places that count in the divisor of an average.
    """

    size: int
    seen: tuple[range, ...]
    counted: tuple[int, ...]

    @property
    def shares(self) -> bool:
        """Whether a place lies in two windows."""
        return sum(map(len, self.seen)) > len(set().union(*self.seen))

    @property
    def misses(self) -> bool:
        """Whether a window holds no place at all."""
        return any(not places for places in self.seen)


def strided(
    size: int, count: int, window: int, stride: int, padding: int, dilation: int = 1, *, count_padding: bool = True
) -> Line:
    """`count` windows of a pooling with these parameters over `size` places."""
    seen, counted = [], []
    for output in range(count):
        start = output * stride - padding
        end = start + dilation * (window - 1) + 1
        first = start if start >= 0 else start + -(start // dilation) * dilation
        seen.append(range(first, max(min(end, size), first), dilation))
        # the padding counts as far as it reaches, what ceil_mode adds behind it does not
        counted.append(min(end, size + padding) - start if count_padding else len(seen[-1]))
    return Line(size, tuple(seen), tuple(counted))


def adaptive(size: int, count: int) -> Line:
    """`count` windows that cover `size` places, each from floor(i size / count) to ceil((i + 1) size / count)."""
    seen = tuple(range(i * size // count, -((i + 1) * size // -count)) for i in range(count))
    return Line(size, seen, tuple(map(len, seen)))


@dataclass(frozen=True)
class Windows:
    """The windows over a plane: those of its height crossed with those of its width."""

    height: Line
    width: Line

    @property
    def divisors(self) -> Array:
        """How many places count in the average of each output, [outputs high, outputs wide]."""
        return np.asarray(np.array(self.height.counted)[:, None] * np.array(self.width.counted))

    def __iter__(self) -> Iterator[tuple[Output, Window]]:
        """Each output with its window, both as indices of tensors that end in the plane."""
        for i, rows in enumerate(self.height.seen):
            for j, columns in enumerate(self.width.seen):
                yield (..., i, j), (..., _slice(rows), _slice(columns))

    def places(self, output: Output) -> Array:
        """Row-major places in the plane of what an output sees."""
        rows, columns = self.height.seen[output[1]], self.width.seen[output[2]]
        return (np.array(rows, np.int64)[:, None] * self.width.size + np.array(columns, np.int64)).reshape(-1)

    def random_places(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """int64 of `shape` [..., outputs high, outputs wide]: for each output the place of its window that comes first
        in an order of the plane's own, so that windows which share places often meet in one. 0 for an empty window.
        """
        order = rng.random((*shape[:-2], self.height.size * self.width.size))
        chosen = np.zeros(shape, np.int64)
        for output, _ in self:
            places = self.places(output)
            if places.size:
                chosen[output] = places[np.argmin(order[..., places], axis=-1)]
        return chosen


def _slice(places: range) -> slice:
    return slice(places.start, places.stop, places.step)
