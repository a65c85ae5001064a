"""How a copy within a device is done: by moving memory as it is, or by a kernel."""

from __future__ import annotations

from torch import Tensor


def moves_memory(destination: Tensor, source: Tensor) -> bool:
    """Whether the elements of both lie one after the other in the same order, without gaps; sizes are equal."""
    if destination.dtype != source.dtype:
        return False
    dims = [
        (size, to, of)
        for size, to, of in zip(destination.shape, destination.stride(), source.stride(), strict=True)
        if size != 1
    ]
    dims.sort(key=lambda dim: (-dim[1], -dim[2]))
    merged: list[tuple[int, int, int]] = []
    for size, to, of in dims:
        if merged and merged[-1][1] == size * to and merged[-1][2] == size * of:
            merged[-1] = (merged[-1][0] * size, to, of)
        else:
            merged.append((size, to, of))
    return not merged or (len(merged) == 1 and merged[0][1:] == (1, 1))


def is_same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether a copy from one to the other changes nothing."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata and (
        a.storage_offset(),
        a.dtype,
        a.shape,
        a.stride(),
    ) == (b.storage_offset(), b.dtype, b.shape, b.stride())


def bits(tensor: Tensor) -> str:
    """The integers by which a device copies elements for whose dtype it has no kernel."""
    return {1: "u8", 2: "i16", 4: "i32"}.get(tensor.itemsize, "i64")
