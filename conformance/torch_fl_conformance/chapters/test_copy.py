"""Chapter copy: stream order, capture of host sources, all directions, exact bytes (FL-COPY-001 to 004)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import struct
from torch_fl_conformance.copy_extents import (
    check_large_copies,
    check_order_at_sizes,
    check_patterns,
    check_refused_fills,
)
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, HostBuffer, Stream
from torch_fl_conformance.moves import Moves, first_difference
from torch_fl_conformance.ordering import eventually, gates_work, still_pending
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

FRAME = 96  # bytes of neighbours that are checked on both sides of a copy


@rule("FL-COPY-001")
def test_copies_are_stream_ordered(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """A copy sees what earlier work of its stream wrote, whatever its direction and size, and none happens earlier."""
    check_order_at_sizes(row, abi, rng, effort)
    size = 4096
    stream = abi.stream()
    block = abi.alloc("d0", size)
    for trial in range(3):
        old, new = (int(v) for v in rng.choice(256, 2, replace=False))
        row.case(trial=trial, old=old, new=new)
        abi.fill(stream, block, old)
        abi.sync(stream)
        buffer = abi.host_buffer(size, fill=old ^ 0xFF)
        if not gates_work(abi):
            abi.fill(stream, block, new)
            abi.copy(stream, buffer, block)
            row.check(abi.read(buffer) == bytes([new]) * size, "an INLINE copy had not happened on return")
            continue
        gate = abi.gate(stream)
        abi.fill(stream, block, new)
        # A copy to ordinary host memory may block its caller, so that it has a thread of its own.
        abi.queue("copier", "memory.copy", stream, abi.copy_args(buffer, block))
        still_pending(
            abi,
            row,
            _differs(abi, buffer, bytes([old ^ 0xFF]) * size),
            "a device-to-host copy wrote its destination before earlier work of its stream had run",
        )
        gate.open()
        results, pending = abi.join("copier", 20.0)
        row.check(not pending and results[-1].ok, "the copy did not return after its stream went on")
        abi.sync(stream)
        got = abi.read(buffer)
        row.check(
            got == bytes([new]) * size,
            "a copy returned other bytes than the work before it wrote",
            index=first_difference(got, bytes([new]) * size),
            expected=new,
            got=got[:8].hex(),
        )
    if gates_work(abi):
        row.require("gated")


@rule("FL-COPY-002")
def test_host_sources_are_captured(row: Row, abi: Abi, effort: Effort) -> None:
    """Overwriting the source after the call returned changes nothing; a destination is left alone afterwards."""
    for size in effort.pick((1, 63, 4096, 65_537, (3 << 20) + 1), (1, 7, 63, 64, 4095, 4096, 65_537, 1 << 20, 5 << 20)):
        row.case(bytes=size)
        stream = abi.stream()
        block = abi.alloc("d0", size)
        # The source ends at an inaccessible page: reading past it is a fault.
        source = abi.host_buffer(size, fill=0x3C, guard=True)
        gate = abi.gate(stream) if gates_work(abi) else None
        abi.queue("uploader", "memory.copy", stream, abi.copy_args(block, source))
        results, pending = abi.join("uploader", 1.0)
        row.label("returned behind a stall" if gate and not pending else "returned after the stream went on")
        if pending and gate:
            gate.open()
            results, pending = abi.join("uploader", 20.0)
        row.check(not pending and results[-1].ok, "the copy did not return")
        abi.write(source, b"\xc3" * size)
        if gate:
            gate.open()
        got = abi.download(stream, block)
        row.check(
            got == b"\x3c" * size,
            "a host source was read after the copy had returned",
            index=first_difference(got, b"\x3c" * size),
            expected="3c",
            got=got[:8].hex(),
        )
        # After completion the destination is the host's again.
        target = abi.host_buffer(size, fill=0, guard=True)
        abi.copy(stream, target, block)
        abi.sync(stream)
        abi.write(target, b"\x11" * size)
        changed = eventually(_differs(abi, target, b"\x11" * size), 0.01)
        row.check(not changed, "a destination in host memory was written after its copy had completed")
        abi.destroy(stream)


def _differs(abi: Abi, buffer: HostBuffer, expected: bytes) -> Callable[[], bool]:
    return lambda: abi.read(buffer) != expected


@rule("FL-COPY-003")
def test_every_direction_works(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """Copies between all pairs of devices on a stream of either; overlap within one block is refused."""
    size = 70_001
    pattern = bytes(range(251)) * (size // 251 + 3)
    names = [f"d{i}" for i in range(len(abi.devices))]
    streams = {name: abi.stream(name) for name in names}
    for source_device, target_device in itertools.product(names, names):
        for stream_device in sorted({source_device, target_device}):
            row.case(source=source_device, target=target_device, stream=stream_device)
            row.label("across devices" if source_device != target_device else "within a device")
            from_offset, to_offset = (int(v) for v in rng.integers(1, 300, 2))
            source = abi.alloc(source_device, size + 300)
            target = abi.alloc(target_device, size + 300)
            abi.upload(streams[source_device], source, pattern[: size + 300])
            abi.fill(streams[target_device], target, 0xEE)
            abi.sync(streams[target_device])
            abi.copy(streams[stream_device], target, source, size, to_offset, from_offset)
            abi.sync(streams[stream_device])
            got = abi.download(streams[target_device], target)
            moved = pattern[from_offset : from_offset + size]
            expected = b"\xee" * to_offset + moved + b"\xee" * (300 - to_offset)
            row.check(
                got == expected,
                "a copy between devices gave other bytes",
                index=first_difference(got, expected),
                target_offset=to_offset,
                source_offset=from_offset,
            )
            abi.free(source)
            abi.free(target)
    if len(names) > 1:
        row.require("across devices")
    _refused_copies(row, abi, streams["d0"])


def _refused_copies(row: Row, abi: Abi, stream: Stream) -> None:
    block = abi.alloc("d0", 4096)
    buffer = abi.host_buffer(4096)
    abi.upload(stream, block, bytes(range(256)) * 16)
    before = abi.download(stream, block)
    end = 2**64 - 64
    wrong: dict[str, dict[str, Any]] = {
        "overlap, forwards": abi.copy_args(block, block, 100, 50, 0),
        "overlap, backwards": abi.copy_args(block, block, 100, 0, 50),
        "overlap by one byte": abi.copy_args(block, block, 100, 99, 0),
        "overlap, identical": abi.copy_args(block, block, 100, 0, 0),
        "no bytes": abi.copy_args(block, buffer, 0),
        "no bytes, within a device": abi.copy_args(block, abi.alloc("d0", 64), 0),
        "a target range that leaves its block": abi.copy_args(block, buffer, 100, 4000, 0),
        "a source range that leaves its block": abi.copy_args(buffer, block, 100, 0, 4000),
        "a target range behind its block": abi.copy_args(block, buffer, 1, 4096, 0),
        "a source range behind its block": abi.copy_args(buffer, block, 1, 0, 8192),
        "a target offset that overflows": abi.copy_args(block, buffer, 128, end, 0),
        "a source offset that overflows": abi.copy_args(buffer, block, 128, 0, end),
        "unknown space": struct("fl_copy_args", {**abi.copy_args(block, buffer)["fields"], "src_space": 9}),
        "device without handle": struct("fl_copy_args", {**abi.copy_args(block, buffer)["fields"], "dst_device": None}),
        "host to host": abi.copy_args(buffer, buffer, 8, 0, 8),
    }
    for what, args in wrong.items():
        row.case(copy=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "memory.copy", stream, args)
        row.label("refusal")
    if len(abi.devices) > 1:
        row.case(copy="on a stream of a device that is neither the source's nor the target's")
        far = abi.stream("d1")
        for args in (abi.copy_args(block, buffer), abi.copy_args(block, abi.alloc("d0", 4096))):
            abi.expect(header.FL_INVALID_ARGUMENT, "memory.copy", far, args)
    row.case(copy="ranges of one block that only touch")
    abi.copy(stream, block, block, 100, 1000, 1100)
    abi.copy(stream, block, block, 100, 100, 0)
    after = abi.download(stream, block)
    row.check(after[:100] == before[:100] and after[100:200] == before[:100], "a copy within one block went wrong")
    row.check(after[1000:1100] == before[1100:1200], "a copy to the bytes just before its source went wrong")
    rest = after[200:1000] == before[200:1000] and after[1100:] == before[1100:]
    row.check(rest, "a refused copy changed its destination")
    row.require("refusal")


@rule("FL-COPY-004")
def test_bytes_are_exact(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Any size at any alignment, in every direction, with the neighbours of both ends untouched; fills likewise."""
    sizes = effort.pick(
        [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 4095, 4096, 4097],
        [*range(1, 258), 4095, 4096, 4097, 65_535, 65_537, 1_000_003],
    )
    stream = abi.stream()
    others = [f"d{i}" for i in range(1, len(abi.devices))][:1]
    for size in sizes:
        for target_offset, source_offset in _offsets(rng, effort):
            _check_copy(row, abi, rng, stream, size, FRAME + target_offset, FRAME + source_offset, others)
    for width in (1, 2, 4, 8):
        for count in effort.pick((1, 3, 17, 257), (1, 2, 3, 5, 7, 8, 9, 15, 17, 63, 65, 257, 4097)):
            _check_fill(row, abi, rng, stream, width, count)
        check_patterns(row, abi, stream, width)
    check_large_copies(row, abi, stream, rng)
    check_refused_fills(row, abi, stream)
    row.require("odd target offset", "odd source offset", "size % 4 != 0")


def _offsets(rng: np.random.Generator, effort: Effort) -> list[tuple[int, int]]:
    drawn = [(int(a), int(b)) for a, b in rng.integers(0, 64, (effort.pick(1, 3), 2))]
    return [(0, 0), (1, 0), (0, 1), *drawn]


def _noise(rng: np.random.Generator, size: int) -> Bytes:
    return rng.integers(0, 256, size, dtype=np.uint8)


def _check_copy(
    row: Row,
    abi: Abi,
    rng: np.random.Generator,
    stream: Stream,
    size: int,
    target_offset: int,
    source_offset: int,
    others: list[str],
) -> None:
    row.label(*(["odd target offset"] if target_offset % 2 else []))
    row.label(*(["odd source offset"] if source_offset % 2 else []))
    row.label(*(["size % 4 != 0"] if size % 4 else []))
    source_image = _noise(rng, source_offset + size + FRAME)
    target_image = _noise(rng, target_offset + size + FRAME)
    expected = target_image.copy()
    expected[target_offset : target_offset + size] = source_image[source_offset : source_offset + size]
    ends: list[tuple[str, str, str]] = [("H2D", "host", "d0"), ("D2H", "d0", "host"), ("D2D", "d0", "d0")]
    ends += [("across", "d0", other) for other in others]
    for direction, from_where, to_where in ends:
        row.case(direction=direction, bytes=size, target_offset=target_offset, source_offset=source_offset)
        moves = Moves(abi)
        source = _place(abi, moves, stream, from_where, source_image)
        target = _place(abi, moves, stream, to_where, target_image)
        moves.copy(stream, abi.copy_args(target, source, size, target_offset, source_offset))
        for end in (target, source):
            _fetch(abi, moves, stream, end)
        ends_after = zip(
            ("destination", "source"), (target, source), (expected, source_image), moves.run(), strict=True
        )
        for what, end, image, data in ends_after:
            got = np.frombuffer(data, dtype=np.uint8)
            if not np.array_equal(got, image):
                index = int(np.flatnonzero(got != image)[0])
                inside = target_offset <= index < target_offset + size
                row.fail(
                    f"the {what} of a copy holds a wrong byte" + ("" if inside else " outside of the copied range"),
                    index=index,
                    expected=int(image[index]),
                    got=int(got[index]),
                )
            _release(abi, end)


def _place(abi: Abi, moves: Moves, stream: Stream, where: str, image: Bytes) -> Block | HostBuffer:
    if where == "host":
        buffer = abi.host_buffer(len(image), guard=True)
        moves.write(buffer, image.tobytes())
        return buffer
    block = abi.alloc(where, len(image))
    moves.upload(abi_stream(abi, stream, where), block, image.tobytes())
    return block


def abi_stream(abi: Abi, stream: Stream, device: str) -> Stream:
    """A stream of the device: the given one where it fits, else one kept for this row."""
    if stream.device == device:
        return stream
    kept: dict[str, Stream] = abi.__dict__.setdefault("_side_streams", {})
    if device not in kept:
        kept[device] = abi.stream(device)
    return kept[device]


def _fetch(abi: Abi, moves: Moves, stream: Stream, end: Block | HostBuffer) -> None:
    if isinstance(end, HostBuffer):
        moves.read(end)
    else:
        moves.download(abi_stream(abi, stream, end.device), end)


def _release(abi: Abi, end: Block | HostBuffer) -> None:
    if isinstance(end, HostBuffer):
        abi.release_host(end)
    else:
        abi.free(end)


def _check_fill(row: Row, abi: Abi, rng: np.random.Generator, stream: Stream, width: int, count: int) -> None:
    offset = width * int(rng.integers(1, 40))
    pattern = int(rng.integers(0, 2**63)) * 2 + 1
    row.case(fill_width=width, count=count, offset=offset, pattern=hex(pattern))
    image = _noise(rng, offset + width * count + FRAME)
    expected = image.copy()
    low = (pattern % 2 ** (8 * width)).to_bytes(width, "little")
    expected[offset : offset + width * count] = np.frombuffer(low * count, dtype=np.uint8)
    block = abi.alloc("d0", len(image))
    abi.upload(stream, block, image.tobytes())
    abi.fill(stream, block, pattern, width, count, offset)
    got = abi.download(stream, block)
    row.check(
        got == expected.tobytes(),
        "a fill wrote wrong bytes or beyond its range",
        index=first_difference(got, expected.tobytes()),
    )
    abi.free(block)
