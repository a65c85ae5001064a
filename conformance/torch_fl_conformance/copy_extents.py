"""Copies and fills of every size in stream order, and large ones compared to the last byte.

Devices move small, middling and large pieces by different means (in the command, by a staging buffer, by an engine
of its own), each of which can leave the stream's order or lose its tail alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, HostBuffer, Stream
from torch_fl_conformance.moves import first_difference
from torch_fl_conformance.row import Row

SIZES = (1, 13, 4096, 65_537, (2 << 20) + 5)
BIG = (64 << 20) + 3
LONG = 70_001  # patterns of a long fill: more than 16 bits count
THREAD = "copier"


@dataclass(frozen=True)
class Route:
    """One direction and the device whose stream takes the copy; "host" or a device's name on either end."""

    source: str
    target: str
    stream: str

    def __str__(self) -> str:
        return f"{self.source} to {self.target} on a stream of {self.stream}"


def routes(devices: int) -> Iterator[Route]:
    """Every direction, on a stream of either end."""
    names = [f"d{index}" for index in range(devices)]
    for name in names:
        yield Route("host", name, name)
        yield Route(name, "host", name)
        for other in names:
            for stream in sorted({name, other}):
                yield Route(name, other, stream)


def check_order_at_sizes(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Behind a gate: a fill of one end, the copy, a fill of the source; the copy must have run between the two."""
    turn = 0
    for route in routes(min(len(abi.devices), 2)):
        for size in effort.pick(SIZES, (*SIZES, 2, 16, 64, 257, 4095, 1 << 20, 20_000_003)):
            turn += 1
            row.case(route=str(route), bytes=size)
            _ordered(row, abi, route, size, [int(v) for v in rng.choice(255, 4, replace=False) + 1], turn % 2 == 0)


def _ordered(row: Row, abi: Abi, route: Route, size: int, bytes_: list[int], by_event: bool) -> None:
    old, new, left, later = bytes_
    stream, event = abi.stream(route.stream), abi.event(route.stream)
    source, target = _end(abi, route.source, size, old), _end(abi, route.target, size, left)
    gate = abi.gate(stream) if abi.device_info(route.stream)["execution_model"] == "ASYNC" else None
    expected = old
    if route.target == route.stream and isinstance(target, Block):
        abi.fill(stream, target, left ^ 0xFF)  # a copy that runs early is overwritten by it
    if route.source == route.stream and isinstance(source, Block):
        abi.fill(stream, source, new)  # a copy that runs early misses it
        expected = new
    # Copies from and to ordinary host memory may wait for the stream.
    abi.queue(THREAD, "memory.copy", stream, abi.copy_args(target, source))
    abi.queue(THREAD, "event.record", event, stream)
    _, pending = abi.join(THREAD, 0.005 if gate is not None else 20.0)
    if gate is not None:
        gate.open()
    if pending:
        _, pending = abi.join(THREAD, 20.0)
    row.check(not pending, f"a copy did not return after its stream went on: {route}")
    if by_event:
        abi.sync(event)
    else:
        abi.sync(stream)
    if isinstance(source, Block) and route.source == route.stream:
        abi.fill(stream, source, later)
    got = _bytes(abi, target)
    row.check(
        got == bytes([expected]) * size,
        f"a copy did not run in its place in the stream, or was not complete when told so: {route}",
        waited_by="event" if by_event else "stream",
        index=first_difference(got, bytes([expected]) * size),
        expected=expected,
        got=got[:8].hex(),
    )
    abi.sync(stream)
    for end in (source, target):
        if isinstance(end, Block):
            abi.free(end)
        else:
            abi.release_host(end)
    abi.destroy(event)
    abi.destroy(stream)


def _end(abi: Abi, where: str, size: int, byte: int) -> Block | HostBuffer:
    if where == "host":
        return abi.host_buffer(size, fill=byte)
    block, stream = abi.alloc(where, size), abi.stream(where)
    abi.fill(stream, block, byte)
    abi.sync(stream)
    abi.destroy(stream)
    return block


def _bytes(abi: Abi, end: Block | HostBuffer) -> bytes:
    if isinstance(end, HostBuffer):
        return abi.read(end)
    stream = abi.stream(end.device)
    data = abi.download(stream, end)
    abi.destroy(stream)
    return data


def check_large_copies(row: Row, abi: Abi, stream: Stream, rng: np.random.Generator) -> None:
    """64 MiB and 3 bytes of noise to the device, within it and back, compared byte by byte; neighbours untouched."""
    free, _ = abi.mem_info("d0")
    if free < 4 * BIG:
        row.note(f"no copy of {BIG} bytes: the device has {free} bytes free")
        return
    row.require("big")
    row.case(bytes=BIG)
    frame = 96
    noise = rng.integers(0, 2**64, BIG // 8 + 1, dtype=np.uint64).view(np.uint8)[:BIG]
    blocks = [abi.alloc("d0", BIG + frame) for _ in range(2)]
    there, back = abi.host_buffer(BIG, guard=True), abi.host_buffer(BIG, guard=True)
    abi.write(there, noise.tobytes())
    for block in blocks:
        abi.fill(stream, block, 0x6D, 1, frame, BIG)
    abi.copy(stream, blocks[0], there, BIG)
    abi.copy(stream, blocks[1], blocks[0], BIG)
    abi.copy(stream, back, blocks[1], BIG)
    abi.sync(stream)
    got = np.frombuffer(abi.read(back), dtype=np.uint8)
    wrong = np.flatnonzero(got != noise)
    row.check(
        not len(wrong), "a large copy to the device, within it or back lost bytes", index=wrong[:1], count=len(wrong)
    )
    for block in blocks:
        behind = abi.download(stream, block, BIG, frame)
        row.check(behind == b"\x6d" * frame, "a large copy wrote behind its range", got=behind.hex())
        abi.free(block)
    row.label("big")
    for buffer in (there, back):
        abi.release_host(buffer)


def check_patterns(row: Row, abi: Abi, stream: Stream, width: int) -> None:
    """Patterns with equal bytes in some places, for which a device may take a byte fill, and long fills."""
    top = 2 ** (8 * width) - 1
    half = 0x5151515151515151 % 2 ** (4 * width) if width > 1 else 0x51
    patterns = {0, top, 1, 1 << (8 * width - 1), 0x5151515151515151 & top, half, (half << 4 * width) & top}
    patterns |= {0xA7A7A7A7A7A7A751 & top, 0x51A7A7A7A7A7A7A7 & top}
    frame = 8 * width
    for pattern in sorted(patterns):
        for count in (19, LONG) if pattern == 1 else (19,):
            row.case(fill_width=width, count=count, pattern=hex(pattern))
            block = abi.alloc("d0", 2 * frame + width * count)
            abi.fill(stream, block, 0x99)
            abi.fill(stream, block, pattern, width, count, frame)
            got = abi.download(stream, block)
            middle = pattern.to_bytes(width, "little") * count
            expected = b"\x99" * frame + middle + b"\x99" * frame
            row.check(got == expected, "a fill wrote other bytes than its pattern, or too few or too many of them")
            abi.free(block)


def check_refused_fills(row: Row, abi: Abi, stream: Stream) -> None:
    """Widths, counts, offsets and ranges that fill refuses; nothing is written."""
    block = abi.alloc("d0", 4096)
    abi.fill(stream, block, 0x2F)
    wrong: dict[str, tuple[int, int, int]] = {  # offset, width, count
        "a pattern of 3 bytes": (0, 3, 1),
        "a pattern of 0 bytes": (0, 0, 1),
        "a pattern of 16 bytes": (0, 16, 1),
        "no pattern": (0, 4, 0),
        "an offset that is no multiple of the width": (2, 4, 1),
        "an offset that is an odd multiple of half the width": (12, 8, 1),
        "a range that leaves the block": (4092, 4, 2),
        "a range behind the block": (8192, 1, 1),
        "a count that overflows": (0, 8, 1 << 61),
        "a count that overflows to one pattern of 2 bytes": (0, 2, (1 << 63) + 1),
        "a count that overflows to two patterns of 4 bytes": (0, 4, (1 << 62) + 2),
        "a count that overflows to three patterns of 8 bytes": (0, 8, (1 << 61) + 3),
        "a count that is small in 32 bits": (0, 4, (1 << 32) + 1),
        "an offset that overflows": (2**64 - 8, 8, 2),
    }
    for what, (offset, width, count) in wrong.items():
        row.case(fill=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "memory.fill", stream, block, offset, 0x77, width, count)
    row.case(fill="the block after refused fills")
    row.check(abi.download(stream, block) == b"\x2f" * 4096, "a refused fill wrote something")
    abi.free(block)
