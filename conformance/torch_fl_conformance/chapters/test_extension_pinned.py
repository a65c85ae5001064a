"""Chapter extension.pinned: host memory that copies neither capture nor wait for (FL-PINNED-001 to 004)."""

from __future__ import annotations

import itertools

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, host, out
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import HostBuffer
from torch_fl_conformance.moves import first_difference
from torch_fl_conformance.ordering import gates_work, still_pending
from torch_fl_conformance.pinned_calls import Pinned, is_pinned, need_pinned, pin, register, unpin, unregister
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

ALIGNMENT = 64
PAGE = 4096
MIB = 1 << 20


@rule("FL-PINNED-001", exclusive=True)
def test_pinned_memory_is_allocated_and_freed(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Aligned, apart from each other, usable to the last byte; wrong sizes and pointers refused; nothing leaks."""
    need_pinned(row, abi)
    row.require("refusal", "every byte")
    for device in (f"d{index}" for index in range(len(abi.devices))):
        sizes = [1, 7, 63, 64, 65, 4095, 4096, 4097, MIB + 1, *(int(n) for n in rng.integers(1, 100_000, 20))]
        blocks = []
        for size in sizes:
            row.case(device=device, bytes=size)
            blocks.append(pin(abi, size, device))
            address = blocks[-1].address
            row.check(
                address and address % ALIGNMENT == 0, f"pinned memory at {address:#x}, expected 64-byte alignment"
            )
        ordered = sorted(blocks, key=lambda block: block.address)
        for low, high in itertools.pairwise(ordered):
            row.check(
                low.address + low.bytes <= high.address,
                "two live ranges of pinned memory overlap",
                first=[hex(low.address), low.bytes],
                second=[hex(high.address), high.bytes],
            )
        for number, block in enumerate(blocks):
            abi.write(block.buffer, _pattern(number, block.bytes))
        for number, block in enumerate(blocks):
            row.case(device=device, bytes=block.bytes, what="content")
            got = abi.read(block.buffer)
            at = first_difference(got, _pattern(number, block.bytes))
            row.check(at < 0, "pinned memory does not hold what was written", index=at)
            row.label("every byte")
        _refused_frees(row, abi, device, blocks[-1])
        for block in blocks:
            unpin(abi, block)
    _freed_memory_returns(row, abi, effort.pick(60, 600))


def _pattern(number: int, size: int) -> bytes:
    return (bytes(range(number % 251 + 1, 256)) * (size // (255 - number % 251) + 1))[:size]


def _refused_frees(row: Row, abi: Abi, device: str, block: Pinned) -> None:
    """0 bytes, and pointers that alloc did not give, are refused; the memory stays as it is."""
    ordinary = abi.host_buffer(PAGE)
    before = abi.read(block.buffer)
    row.case(device=device, bytes=0)
    none = abi.expect(header.FL_INVALID_ARGUMENT, "pinned.alloc", device, 0, out("void*"))
    row.check(all(none.untouched), "a refused alloc wrote its out parameter")
    wrong: dict[str, Arg] = {
        "ordinary memory": host(ordinary),
        "a byte behind the begin": block.address + 1,
        "64 bytes behind the begin": block.address + ALIGNMENT,
        "NULL": None,
    }
    for what, pointer in wrong.items():
        row.case(device=device, free=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "pinned.free", device, pointer)
        row.label("refusal")
    register(abi, ordinary, device=device)
    row.case(device=device, free="registered memory")
    abi.expect(header.FL_INVALID_ARGUMENT, "pinned.free", device, host(ordinary))
    unregister(abi, ordinary, device=device)
    row.check(abi.read(block.buffer) == before, "a refused free changed pinned memory")


def _freed_memory_returns(row: Row, abi: Abi, cycles: int) -> None:
    """4 MiB, touched and freed again and again, need not much more than 4 MiB."""
    row.case(what="alloc, touch, free", cycles=cycles, bytes=4 * MIB)
    before = abi.driver.execute({"do": "resources"})["rss"]
    for _ in range(cycles):
        block = pin(abi, 4 * MIB)
        command = {"do": "host_write", "name": block.ref, "offset": 0, "fill": 1, "bytes": 4 * MIB}
        abi.driver.execute(command)
        unpin(abi, block)
    grown = abi.driver.execute({"do": "resources"})["rss"] - before
    row.check(grown < cycles * 4 * MIB // 2, "free does not release pinned memory", grown=grown, cycles=cycles)


@rule("FL-PINNED-002")
def test_pinned_copies_are_in_stream_order(row: Row, abi: Abi, effort: Effort) -> None:
    """Behind a gate the calls return, nothing is written early, and the source is read when its turn has come."""
    need_pinned(row, abi)
    if gates_work(abi):
        row.require("gated")
    for device in (f"d{index}" for index in range(len(abi.devices))):
        for size in effort.pick((1, 4097, MIB), (1, 63, 64, 4095, 4096, 4097, 65_537, MIB, 16 * MIB + 3)):
            first, second = pin(abi, size, device), pin(abi, size, device)
            _ordered(row, abi, first.buffer, second.buffer, device, kind="allocated")
            unpin(abi, first)
            unpin(abi, second)


def _ordered(row: Row, abi: Abi, there: HostBuffer, back: HostBuffer, device: str, *, kind: str) -> None:
    """fill a; a -> there; there -> b; b -> back, all submitted before the stream may go on.

    A copy that captures `there` at its submit takes the old bytes to b. Offsets leave a byte at either end alone
    where there is room.
    """
    size = there.bytes
    margin = 1 if size > 2 else 0
    length = size - 2 * margin
    row.case(device=device, bytes=length, offset=margin, memory=kind)
    stream, a, b = abi.stream(device), abi.alloc(device, size), abi.alloc(device, size)
    abi.fill(stream, b, 0x77)
    abi.sync(stream)
    for buffer in (there, back):
        abi.write(buffer, b"\x11" * size)
    gate = abi.gate(stream) if gates_work(abi) else None
    abi.fill(stream, a, 0x5E)
    copies = [
        ("device to pinned", abi.copy_args(there, a, length, margin, margin)),
        ("pinned to device", abi.copy_args(b, there, length, margin, margin)),
        ("device to pinned", abi.copy_args(back, b, length, margin, margin)),
    ]
    for direction, args in copies:
        abi.queue("pinned copier", "memory.copy", stream, args)
        results, pending = abi.join("pinned copier", 5.0)
        if pending and gate is not None:
            gate.open()
        row.check(not pending, f"a copy, {direction} memory, did not return while its stream was stalled")
        row.check(results[-1].ok, f"{results[-1]} for a copy, {direction} memory, expected OK")
    if gate is not None:
        still_pending(
            abi,
            row,
            lambda: abi.read(there) != b"\x11" * size or abi.read(back) != b"\x11" * size,
            "a copy wrote pinned memory before the work ahead of it in its stream",
            device=device,
        )
        gate.open()
    abi.sync(stream)
    for what, buffer in (("the first", there), ("the last", back)):
        expected = b"\x11" * margin + b"\x5e" * length + b"\x11" * margin
        got = abi.read(buffer)
        at = first_difference(got, expected)
        old = at >= 0 and buffer is back and got[at] in (0x11, 0x77)
        row.check(
            at < 0,
            f"{what} destination in pinned memory holds wrong bytes"
            + (": the source was read before its turn" if old else ""),
            index=at,
            expected=expected[at],
            got=got[at],
        )
    for block in (a, b):
        abi.free(block)
    abi.destroy(stream)


@rule("FL-PINNED-003")
def test_ordinary_memory_can_be_pinned(row: Row, abi: Abi) -> None:
    """Registered memory behaves like allocated, until it is unregistered; overlaps and unknown pointers are refused."""
    need_pinned(row, abi)
    row.require("refusal", "again")
    if gates_work(abi):
        row.require("gated")
    for device in (f"d{index}" for index in range(len(abi.devices))):
        for size in (5 * PAGE, 3 * PAGE + 17):
            there, back = abi.host_buffer(size), abi.host_buffer(size)
            for _ in range(2):
                register(abi, there, device=device)
                register(abi, back, device=device)
                _ordered(row, abi, there, back, device, kind="registered")
                unregister(abi, there, device=device)
                unregister(abi, back, device=device)
                row.label("again")
            _captured_once_more(row, abi, there, device)
            _ordinary_part_is_captured(row, abi, there, device)
        _refused_ranges(row, abi, device)


def _captured_once_more(row: Row, abi: Abi, buffer: HostBuffer, device: str) -> None:
    """Unregistered memory is ordinary again: the source of a copy is the host's once the call has returned."""
    row.case(device=device, bytes=buffer.bytes, what="copy from unregistered memory")
    stream, block = abi.stream(device), abi.alloc(device, buffer.bytes)
    abi.write(buffer, b"\x2a" * buffer.bytes)
    abi.copy(stream, block, buffer)
    abi.write(buffer, b"\xd5" * buffer.bytes)
    got = abi.download(stream, block)
    row.check(got == b"\x2a" * buffer.bytes, "unregistered memory was read after the copy had returned")
    abi.free(block)
    abi.destroy(stream)


def _ordinary_part_is_captured(row: Row, abi: Abi, buffer: HostBuffer, device: str) -> None:
    """A source that begins in pinned memory and goes on behind it: the ordinary part is the host's on return."""
    row.case(device=device, bytes=buffer.bytes, what="copy from memory of which the first page is pinned")
    stream, block = abi.stream(device), abi.alloc(device, buffer.bytes)
    abi.write(buffer, b"\x3e" * buffer.bytes)
    register(abi, buffer, 0, PAGE, device)
    gate = abi.gate(stream) if gates_work(abi) else None
    abi.queue("mixed copier", "memory.copy", stream, abi.copy_args(block, buffer))
    _, pending = abi.join("mixed copier", 0.5)
    if pending and gate is not None:
        gate.open()
        abi.join("mixed copier", 20.0)
    abi.write(buffer, b"\xc1" * (buffer.bytes - PAGE), PAGE)
    if gate is not None:
        gate.open()
    got = abi.download(stream, block)
    unregister(abi, buffer, 0, device)
    row.check(got == b"\x3e" * buffer.bytes, "ordinary memory behind pinned memory was read after the copy returned")
    abi.free(block)
    abi.destroy(stream)


def _refused_ranges(row: Row, abi: Abi, device: str) -> None:
    buffer, owned = abi.host_buffer(8 * PAGE), pin(abi, 4 * PAGE, device)
    register(abi, buffer, 2 * PAGE, 3 * PAGE, device)
    wrong: dict[str, tuple[Arg, int]] = {
        "the same range": (host(buffer, 2 * PAGE), 3 * PAGE),
        "a part of it": (host(buffer, 3 * PAGE), 100),
        "its last byte": (host(buffer, 5 * PAGE - 1), 1),
        "a range that ends in it": (host(buffer, 0), 2 * PAGE + 1),
        "a range that begins in it": (host(buffer, 4 * PAGE), 4 * PAGE),
        "a range around it": (host(buffer, 0), 8 * PAGE),
        "a part of what alloc gave": (owned.address + PAGE, PAGE),
        "0 bytes": (host(buffer, 6 * PAGE), 0),
        "NULL": (None, PAGE),
    }
    for what, (pointer, size) in wrong.items():
        row.case(device=device, register=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "pinned.register_range", device, pointer, size)
        row.label("refusal")
    unknown: dict[str, Arg] = {
        "never registered": host(buffer, 0),
        "inside a registered range": host(buffer, 3 * PAGE),
        "what alloc gave": owned.address,
        "NULL": None,
    }
    for what, pointer in unknown.items():
        row.case(device=device, unregister=what)
        abi.expect(header.FL_INVALID_ARGUMENT, "pinned.unregister_range", device, pointer)
        row.label("refusal")
    row.case(device=device, register="the pages beside a registered range")
    register(abi, buffer, PAGE, PAGE, device)
    register(abi, buffer, 5 * PAGE, PAGE, device)
    for offset in (PAGE, 2 * PAGE, 5 * PAGE):
        unregister(abi, buffer, offset, device)
    row.case(device=device, unregister="a second time")
    abi.expect(header.FL_INVALID_ARGUMENT, "pinned.unregister_range", device, host(buffer, 2 * PAGE))
    unpin(abi, owned)


@rule("FL-PINNED-004")
def test_pinned_bytes_are_known(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """1 inside, 0 outside: at both ends, all over small ranges, for memory of other kinds, before and after."""
    need_pinned(row, abi)
    row.require("inside", "outside")
    buffer, block = abi.host_buffer(6 * PAGE), abi.alloc("d0", PAGE)
    live = [pin(abi, size) for size in (1, 65, PAGE + 1)]

    def told(pointer: Arg, expected: int, what: str) -> None:
        row.case(what=what)
        got = is_pinned(abi, pointer)
        row.check(got == expected, f"is_pinned gives {got} for {what}, expected {expected}")
        row.label("inside" if expected else "outside")

    def free_of_pinned(address: int) -> bool:
        return not any(owned.address <= address < owned.address + owned.bytes for owned in live)

    for owned in live:
        inside = {0, owned.bytes - 1, *(int(n) for n in rng.integers(0, owned.bytes, 8))}
        for place in sorted(inside):
            told(owned.address + place, 1, f"byte {place} of {owned.bytes} that alloc gave")
        for place in (-1, owned.bytes):
            if free_of_pinned(owned.address + place):
                told(owned.address + place, 0, f"the byte at {place} beside {owned.bytes} that alloc gave")
    told(None, 0, "NULL")
    told(host(abi.host_buffer(PAGE)), 0, "ordinary memory")
    if free_of_pinned(block.base):
        told(block.base, 0, "device memory")
    offset, size = PAGE + 100, 2 * PAGE + 11
    told(host(buffer, offset), 0, "memory before it is registered")
    register(abi, buffer, offset, size)
    for place in (0, 1, PAGE, size - 1):
        told(host(buffer, offset + place), 1, f"byte {place} of {size} that are registered")
    for place in (-1, size):
        told(host(buffer, offset + place), 0, f"the byte at {place} beside {size} that are registered")
    unregister(abi, buffer, offset)
    told(host(buffer, offset), 0, "memory after it was unregistered")
    freed = live.pop()
    unpin(abi, freed)
    told(freed.address, 0, "memory that was freed")
    for owned in live:
        unpin(abi, owned)
