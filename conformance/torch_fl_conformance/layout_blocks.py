"""Where tensors lie: strides, and blocks of bytes with sentinels around and between their elements.

A block is one allocation. Every byte that is no element is a sentinel: frames of at least 256 bytes on both sides,
holes between strided elements, whole canary blocks beside a tensor that has no frame there. After a run everything but
the outputs' elements must be as before. Placements: `pool` puts all tensors into one block, as a caching host would;
`own` gives each a framed block; `start` and `end` put a tensor flush with its block's first or last byte; `page` makes
the block exactly the tensor, so that the neighbour is another allocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from torch_fl_conformance.dtypes import Array, DType, to_bits

FRAME = 256
PLACEMENTS = ("pool", "own", "start", "end", "page")
CANARY = "canary"


@dataclass(frozen=True)
class Layout:
    """Strides in elements; lead: elements between the aligned start of the tensor's region and element 0."""

    strides: tuple[int, ...]
    lead: int = 0

    def span(self, shape: tuple[int, ...]) -> int:
        """Elements from element 0 to the last one inclusive; 0 for an empty tensor."""
        if 0 in shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(shape, self.strides, strict=True))


@dataclass(frozen=True)
class Place:
    """A tensor's block and the bytes from its base to element 0."""

    block: str
    offset: int


@lru_cache(4096)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


@dataclass
class Blocks:
    """The blocks of one case: sizes, and where each tensor lies."""

    sizes: dict[str, int]
    places: dict[str, Place]

    @classmethod
    def arrange(
        cls,
        tensors: Iterable[tuple[str, DType, tuple[int, ...], Layout]],
        placement: str,
        data_align: int,
        alias: Mapping[str, str],
    ) -> Blocks:
        """Lay tensors (name, dtype, stored shape, layout) out. `alias`: output -> the input whose place it shares."""
        sizes: dict[str, int] = {}
        places: dict[str, Place] = {}
        cursor = 0
        for name, dtype, shape, layout in tensors:
            if name in alias:
                continue
            align = max(data_align, dtype.size, 1)
            span = layout.span(shape) * dtype.size
            lead = layout.lead * dtype.size
            if placement == "pool":
                start = -(-(cursor + FRAME) // align) * align if data_align else _up(cursor + FRAME, 16)
                places[name] = Place("pool", start + lead)
                cursor = start + lead + span
                continue
            before = 0 if placement in ("start", "page") else _up(FRAME, align) + lead
            after = 0 if placement in ("end", "page") else FRAME
            places[name] = Place(name, before)
            sizes[name] = max(before + span + after, 1)
        if placement == "pool":
            sizes["pool"] = cursor + FRAME
        for output, source in alias.items():
            places[output] = places[source]
        if placement in ("start", "page"):
            sizes = {f"{CANARY}0": FRAME, **sizes}
        if placement in ("end", "page"):
            sizes = {**sizes, f"{CANARY}1": FRAME}
        return cls(sizes, places)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _elements(block: Array, place: Place, dtype: DType, shape: tuple[int, ...], layout: Layout) -> Array:
    """A view of a tensor's storage words inside a block's bytes, writable when these are."""
    if 0 in shape:
        return np.empty(shape, dtype.storage)
    steps = [step * dtype.size for step in layout.strides]
    view: Array = np.ndarray(shape, dtype.storage, block.data, place.offset, steps)
    return view


def fill_blocks(blocks: Blocks, poison: int) -> dict[str, Array]:
    """Blocks (arrays of bytes) that hold nothing but the sentinel byte."""
    return {name: np.full(size, poison, np.uint8) for name, size in blocks.sizes.items()}


def write(
    images: Mapping[str, Array], place: Place, dtype: DType, shape: tuple[int, ...], layout: Layout, values: Array
) -> None:
    """Put logical values of the stored shape into their block."""
    if 0 in shape:
        return
    view = _elements(images[place.block], place, dtype, shape, layout)
    view[...] = to_bits(values, dtype).reshape(shape)


def read(blocks: Mapping[str, bytes], place: Place, dtype: DType, shape: tuple[int, ...], layout: Layout) -> Array:
    """Storage words of a tensor in a block that came back, in the tensor's shape."""
    return np.array(_elements(np.frombuffer(blocks[place.block], np.uint8), place, dtype, shape, layout))


@dataclass(frozen=True)
class Stray:
    """The first byte outside the outputs that a run changed."""

    block: str
    offset: int
    before: int
    after: int
    count: int
    owner: str  # "input x", "frame or hole", "canary"


def stray_write(
    before: Mapping[str, Array],
    after: Mapping[str, bytes],
    outputs: Iterable[tuple[Place, DType, tuple[int, ...], Layout]],
    inputs: Iterable[tuple[str, Place, DType, tuple[int, ...], Layout]],
) -> Stray | None:
    """Compare all bytes but the outputs' elements with what they were; None when nothing else changed."""
    outputs = list(outputs)
    for name, old in before.items():
        here = [entry for entry in outputs if entry[0].block == name and 0 not in entry[2]]
        if not here and after[name] == old.tobytes():
            continue
        now = np.frombuffer(after[name], np.uint8)
        differs = now != old
        for place, dtype, shape, layout in here:
            _elements(differs.view(np.uint8), place, dtype, shape, layout)[...] = 0
        if differs.any():
            changed = np.flatnonzero(differs)
            first = int(changed[0])
            owner = _owner(name, first, list(inputs))
            return Stray(name, first, int(old[first]), int(now[first]), int(changed.size), owner)
    return None


def _owner(block: str, at: int, inputs: list[tuple[str, Place, DType, tuple[int, ...], Layout]]) -> str:
    if block.startswith(CANARY):
        return "canary block"
    for name, place, dtype, shape, layout in inputs:
        if place.block == block and 0 <= at - place.offset < layout.span(shape) * dtype.size:
            return f"input {name}"
    return "frame or hole"
