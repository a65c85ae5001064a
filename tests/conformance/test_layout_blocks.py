"""Blocks: tensors lie where they should, and any byte that changes beside them is seen, wherever it is."""

from __future__ import annotations

import numpy as np
import pytest
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.layout_blocks import (
    FRAME,
    PLACEMENTS,
    Blocks,
    Layout,
    contiguous_strides,
    fill_blocks,
    read,
    stray_write,
    write,
)

F32, I8 = DTYPES["f32"], DTYPES["i8"]
X = ("x", F32, (3, 4), Layout((9, 2), 3))
OUT = ("out", F32, (2, 5), Layout(contiguous_strides((2, 5)), 1))


def arranged(placement: str, align: int = 0) -> Blocks:
    """One strided input and one output."""
    return Blocks.arrange([X, OUT], placement, align, {})


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_elements_come_back(placement: str) -> None:
    """What is written at strides is read at strides; the rest stays sentinel."""
    blocks = arranged(placement)
    images = fill_blocks(blocks, 0xA5)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    write(images, blocks.places["x"], *X[1:], values)
    back = read({name: image.tobytes() for name, image in images.items()}, blocks.places["x"], *X[1:])
    assert np.array_equal(back.view(np.float32), values)
    touched = sum(int((image != 0xA5).sum()) for image in images.values())
    assert touched <= 12 * 4


def test_placements_are_what_they_say() -> None:
    """Frames on both sides, flush with the start, flush with the end, exactly the tensor."""
    span = X[3].span(X[2]) * 4
    own, start, end, page = (arranged(placement) for placement in ("own", "start", "end", "page"))
    assert own.places["x"].offset >= FRAME
    assert own.sizes["x"] - own.places["x"].offset - span >= FRAME
    assert start.places["x"].offset == 0
    assert end.places["x"].offset + span == end.sizes["x"]
    assert (page.places["x"].offset, page.sizes["x"]) == (0, span)
    pool = arranged("pool")
    assert set(pool.sizes) == {"pool"}
    assert pool.places["out"].offset - pool.places["x"].offset - span >= FRAME


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("align", [16, 64])
def test_declared_alignment_is_kept(placement: str, align: int) -> None:
    """A kernel with data_align gets element 0 at a multiple of it (leads are multiples too)."""
    tensors = [("x", F32, (5,), Layout((1,), align // 4)), ("y", I8, (7,), Layout((1,), align))]
    blocks = Blocks.arrange(tensors, placement, align, {})
    assert all(place.offset % align == 0 for place in blocks.places.values())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_stray_byte_is_found(placement: str) -> None:
    """Flip each byte in turn: elements of the output may change, all others may not."""
    blocks = arranged(placement)
    images = fill_blocks(blocks, 0x5A)
    outputs = [(blocks.places["out"], *OUT[1:])]
    inputs = [("x", blocks.places["x"], *X[1:])]
    place = blocks.places["out"]
    allowed = {(place.block, place.offset + i) for i in range(10 * 4)}
    owners = set()
    for name, image in images.items():
        for at in range(image.size):
            after = {other: data.tobytes() for other, data in images.items()}
            changed = bytearray(after[name])
            changed[at] ^= 0x10
            after[name] = bytes(changed)
            stray = stray_write(images, after, outputs, inputs)
            assert (stray is None) == ((name, at) in allowed), (name, at)
            if stray is not None:
                assert (stray.block, stray.offset, stray.count) == (name, at, 1)
                owners.add(stray.owner)
    assert "input x" in owners
    assert ("canary block" in owners) == (placement in ("start", "end", "page"))


def test_alias_shares_its_place() -> None:
    """An exact alias is one place, not two."""
    blocks = Blocks.arrange([OUT, ("y", *OUT[1:])], "own", 0, {"y": "out"})
    assert blocks.places["y"] == blocks.places["out"]
