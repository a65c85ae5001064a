"""Locations and blocks beyond what small tests reach: offsets past 2^31 and 2^32, odd sizes of many MiB.

Memory is touched at the marks only, so that gigabytes cost no time where pages are committed on first touch.
"""

from __future__ import annotations

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, Stream
from torch_fl_conformance.payload import WORD, Affine, affine
from torch_fl_conformance.row import Row

MIB = 1 << 20
LEFT_FREE = 256 * MIB  # of the device, however many large blocks are held
MARK = 64  # bytes looked at on either end of a block
WORDS = 24
FAR = (0, 1 << 31, 1 << 32)
FAR_BYTES = (1 << 32) + MIB


def check_far_offsets(row: Row, abi: Abi, device: str, rng: np.random.Generator) -> None:
    """Fills, copies and kernels that name three places 2^31 bytes apart in one block act on three places."""
    free, _ = abi.mem_info(device)
    if free < FAR_BYTES + 64 * MIB:
        row.note(f"no offset beyond 2^32: {device} has {free} bytes free")
        return
    row.require("far offset")
    stream, block, near = abi.stream(device), abi.alloc(device, FAR_BYTES), abi.alloc(device, 4096)
    size = WORDS * WORD
    places = [far + 64 * WORD + WORD * int(rng.integers(0, 64)) for far in FAR]

    def expect(what: str, images: list[bytes]) -> None:
        for place, image in zip(places, images, strict=True):
            row.case(what=what, device=device, byte_offset=place)
            row.check(
                abi.download(stream, block, place, size) == image,
                "a block of more than 4 GiB does not hold at an offset what was last written there",
            )

    for number, place in enumerate(places):
        abi.fill(stream, block, 0x31 + number, 1, size, place)
    expect("fill", [bytes([0x31 + number]) * size for number in range(len(places))])
    images = [rng.integers(0, 256, size, dtype=np.uint8).tobytes() for _ in places]
    for place, image in zip(places, images, strict=True):
        abi.upload(stream, near, image)
        abi.copy(stream, block, near, size, place, 0)
    expect("copy", images)
    payload = Affine.of(abi, device)
    if payload is not None:
        b = rng.integers(0, 2**32, WORDS, dtype=np.uint32)
        abi.upload(stream, near, b.tobytes())
        for place in places:  # in place is not asked for: the result lies behind its operand
            payload.run(stream, block, block, near, 5, WORDS, (place + 4096, place, 0))
        words = [np.frombuffer(image, dtype="<u4") for image in images]
        places = [place + 4096 for place in places]
        expect("kernel", [affine(5, x, b).tobytes() for x in words])
    row.label("far offset")
    abi.destroy(stream)
    for held in (block, near):
        abi.free(held)


def check_large_blocks(row: Row, abi: Abi, device: str, rng: np.random.Generator, count: int) -> None:
    """Blocks of odd sizes between 1 and 40 MiB: aligned, apart by address, and apart by what their ends hold."""
    free, _ = abi.mem_info(device)
    if free <= LEFT_FREE:
        row.note(f"no large blocks: {device} has {free} bytes free")
        return
    row.require("large block")
    stream, held = abi.stream(device), dict[int, tuple[Block, int]]()
    most = abi.device_info(device)["max_align"]
    for number in range(2 * count):
        room = free - sum(block.bytes for block, _ in held.values()) > LEFT_FREE
        if number < count and room:
            size, alignment = int(rng.integers(MIB, 40 * MIB)) | 1, int(rng.choice((0, 4096, most)))
            row.case(call="alloc", device=device, bytes=size, alignment=min(alignment, most))
            block = abi.alloc(device, size, min(alignment, most))
            row.check(block.base % min(alignment or 1, most) == 0, "the base of a large block is not aligned")
            for other, _ in held.values():
                apart = block.base + size <= other.base or other.base + other.bytes <= block.base
                row.check(apart, "a large block overlaps a live one", base=hex(block.base), live=hex(other.base))
            abi.fill(stream, block, number + 1, 1, MARK)
            abi.fill(stream, block, number + 1, 1, MARK, size - MARK)
            held[block.base] = (block, number + 1)
        if held and (number >= count or number % 3 == 2):
            block, value = held.pop(list(held)[int(rng.integers(len(held)))])
            row.case(call="free", device=device, bytes=block.bytes)
            for offset in (0, block.bytes - MARK):
                got = abi.download(stream, block, offset, MARK)
                row.check(got == bytes([value]) * MARK, "an end of a large block was overwritten", offset=offset)
            abi.free(block)
            row.label("large block")
    for block, _ in held.values():
        abi.free(block)
    abi.destroy(stream)


def check_wrong_frees(row: Row, abi: Abi, device: str) -> None:
    """free with other bytes or another base than alloc had is refused, and the block stays what it was."""
    block, neighbour = abi.alloc(device, 4096), abi.alloc(device, 4096)
    stream: Stream = abi.stream(device)
    abi.fill(stream, block, 0x3B)
    abi.sync(stream)
    for what, base, size in (
        ("one byte less", block.base, 4095),
        ("one byte more", block.base, 4097),
        ("0 bytes", block.base, 0),
        ("a base inside the block", block.base + 64, 4096 - 64),
        ("base 0", 0, 4096),
    ):
        row.case(device=device, free=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "memory.free", device, base, size)
    row.case(device=device, what="a block that refused frees were tried on")
    row.check(abi.download(stream, block) == b"\x3b" * 4096, "a refused free changed its block")
    for held in (block, neighbour):
        abi.free(held)
    abi.destroy(stream)
