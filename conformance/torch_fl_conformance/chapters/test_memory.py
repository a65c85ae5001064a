"""Chapter memory: locations, overlap, alignment, bounds, contents, exhaustion (FL-MEM-001 to 008)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, CallResult, Stream
from torch_fl_conformance.large_memory import check_far_offsets, check_large_blocks, check_wrong_frees
from torch_fl_conformance.payload import WORD, Affine, affine, words_of
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

MANY_BLOCKS = 1024
OFFSETS = (0, WORD, 3 * WORD, 7 * WORD, 4096 + WORD)


def _noise(rng: np.random.Generator, size: int) -> bytes:
    return rng.integers(0, 256, size, dtype=np.uint8).tobytes()


def _try_alloc(abi: Abi, device: str, size: int, alignment: int = 0, save: str | None = None) -> CallResult:
    args = struct("fl_mem_alloc_args", {"bytes": size, "alignment": alignment})
    return abi.call("memory.alloc", device, args, out("uint64_t", save=save))


@rule("FL-MEM-001")
def test_locations_are_base_and_offset(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """Fill, copy and kernel act at base + byte_offset, and give at any offset what they give at offset 0."""
    row.require("fill", "copy", "kernel")
    words = 61
    size = words * WORD
    for device in (f"d{i}" for i in range(len(abi.devices))):
        stream = abi.stream(device)
        payload = Affine.of(abi, device)
        x = rng.integers(0, 2**32, words, dtype=np.uint32)
        b = rng.integers(0, 2**32, words, dtype=np.uint32)
        for offset in OFFSETS:
            blocks = [abi.alloc(device, 4096 + 4 * size) for _ in range(3)]
            images = [_noise(rng, block.bytes) for block in blocks]
            for block, image in zip(blocks, images, strict=True):
                abi.upload(stream, block, image)
            target, left, right = blocks

            row.case(what="fill", device=device, byte_offset=offset)
            row.label("fill")
            abi.fill(stream, target, 0x51, 1, size, offset)
            expected = bytearray(images[0])
            expected[offset : offset + size] = b"\x51" * size
            _expect(row, abi, stream, target, bytes(expected))

            row.case(what="copy", device=device, byte_offset=offset)
            row.label("copy")
            abi.copy(stream, target, left, size, OFFSETS[1], offset)
            expected[OFFSETS[1] : OFFSETS[1] + size] = images[1][offset : offset + size]
            _expect(row, abi, stream, target, bytes(expected))

            if payload is not None:
                row.case(what="kernel", device=device, byte_offset=offset)
                row.label("kernel")
                abi.upload(stream, left, x.tobytes(), offset)
                abi.upload(stream, right, b.tobytes(), offset)
                payload.run(stream, target, left, right, 77, words, (offset, offset, offset))
                expected[offset : offset + size] = affine(77, x, b).tobytes()
                _expect(row, abi, stream, target, bytes(expected))
            for block in blocks:
                abi.free(block)
        check_far_offsets(row, abi, device, rng)


def _expect(row: Row, abi: Abi, stream: Stream, block: Block, expected: bytes) -> None:
    got = abi.download(stream, block)
    if got == expected:
        return
    index = next(i for i in range(len(got)) if got[i] != expected[i])
    row.fail(
        "a block holds other bytes than its location's last writer left there",
        index=index,
        expected=expected[index : index + 8].hex(),
        got=got[index : index + 8].hex(),
    )


@dataclass
class _Ranges:
    """The live ranges of a device and what each holds."""

    live: dict[int, tuple[Block, int]] = field(default_factory=dict)

    def overlapping(self, block: Block) -> Block | None:
        for other, _ in self.live.values():
            if block.base < other.base + other.bytes and other.base < block.base + block.bytes:
                return other
        return None


@rule("FL-MEM-002")
def test_live_ranges_never_overlap(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """A random program of allocations, fills and frees: no overlap by address, none by content."""
    size_zero = _try_alloc(abi, "d0", 0)
    row.check(
        size_zero.status == header.FL_INVALID_ARGUMENT,
        f"an allocation of 0 bytes: {size_zero}, expected INVALID_ARGUMENT",
    )
    device, steps = "d0", effort.pick(500, 4000)
    stream, ranges = abi.stream(device), _Ranges()
    for step in range(steps):
        grow = not ranges.live or (len(ranges.live) < 60 and rng.random() < 0.6)
        if grow:
            size = int(rng.choice((rng.integers(1, 300), rng.integers(1, 5000), rng.integers(4000, 70_000))))
            alignment = int(rng.choice((0, 0, 64, 256, 4096)))
            row.case(step=step, call="alloc", bytes=size, alignment=alignment)
            alignment = min(alignment, abi.device_info(device)["max_align"])
            block = abi.alloc(device, size, alignment)
            row.check(block.base != 0, "mem_alloc returned base 0")
            other = ranges.overlapping(block)
            row.check(
                other is None,
                "mem_alloc returned a range that overlaps a live one",
                base=hex(block.base),
                live=None if other is None else (hex(other.base), other.bytes),
            )
            value = int(rng.integers(1, 256))
            abi.fill(stream, block, value)
            ranges.live[block.base] = (block, value)
        else:
            base = list(ranges.live)[int(rng.integers(len(ranges.live)))]
            block, value = ranges.live.pop(base)
            row.case(step=step, call="free", bytes=block.bytes, base=hex(base))
            _expect(row, abi, stream, block, bytes([value]) * block.bytes)
            abi.free(block)
    for index in range(len(abi.devices)):
        check_large_blocks(row, abi, f"d{index}", rng, effort.pick(24, 80))
    for block, value in ranges.live.values():
        row.case(step="end", bytes=block.bytes, base=hex(block.base))
        _expect(row, abi, stream, block, bytes([value]) * block.bytes)


@rule("FL-MEM-003")
def test_bases_are_aligned(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Every base is a multiple of max(alloc_align, requested), also for small blocks and while fragmented."""
    for index, info in enumerate(abi.devices):
        device = f"d{index}"
        least, most = info["alloc_align"], info["max_align"]
        row.case(device=device, alloc_align=least, max_align=most)
        for name, value in (("alloc_align", least), ("max_align", most)):
            row.check(value > 0 and value & (value - 1) == 0, f"{name} is no power of two", got=value)
        row.check(64 <= least <= 65536, "alloc_align is not within 64 ... 65536", got=least)
        row.check(most >= least, "max_align is below alloc_align", alloc_align=least, max_align=most)
        held: list[Block] = []
        alignments = [0] + [1 << k for k in range(most.bit_length())]
        for alignment in alignments:
            for size in (
                1,
                int(rng.integers(1, 64)),
                *map(int, rng.integers(64, 20_000, effort.pick(6, 60))),
                int(rng.integers(1 << 20, 1 << 23)),
            ):
                row.case(device=device, bytes=size, alignment=alignment)
                row.label("alignment above size" if alignment > size else "size above alignment")
                block = abi.alloc(device, size, alignment)
                due = max(least, alignment)
                row.check(
                    block.base % due == 0,
                    "a base is not a multiple of max(alloc_align, requested)",
                    base=hex(block.base),
                    expected_multiple_of=due,
                    remainder=block.base % due,
                )
                held.append(block)
                if len(held) > 40:
                    abi.free(held.pop(int(rng.integers(len(held)))))
        for block in held:
            abi.free(block)
        for wrong in (2 * most, 4 * most, 3, least + 1, 3 * least):
            result = _try_alloc(abi, device, 64, wrong)
            row.case(device=device, alignment=wrong)
            row.check(
                result.status == header.FL_INVALID_ARGUMENT,
                f"an alignment that is above max_align or no power of two: {result}, expected INVALID_ARGUMENT",
            )
    row.require("alignment above size", "size above alignment")


@rule("FL-MEM-004")
def test_any_element_offset_is_accepted(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Kernels take any byte_offset that is a multiple of the element size, copies and fills any at all."""
    stream = abi.stream()
    payload = Affine.of(abi)
    row.require("kernel", "copy", "fill")
    for words in effort.pick((1, 7, 64), (1, 2, 3, 5, 7, 15, 16, 17, 63, 64, 65, 1023)):
        blocks = [abi.alloc("d0", words * WORD + 256) for _ in range(3)]
        x = rng.integers(0, 2**32, words, dtype=np.uint32)
        b = rng.integers(0, 2**32, words, dtype=np.uint32)
        for _ in range(effort.pick(6, 12)):
            offsets = tuple(int(v) * WORD for v in rng.integers(0, 64, 3))
            assert len(offsets) == 3
            if payload is not None:
                row.case(what="kernel", words=words, byte_offsets=offsets)
                row.label("kernel")
                abi.upload(stream, blocks[1], x.tobytes(), offsets[1])
                abi.upload(stream, blocks[2], b.tobytes(), offsets[2])
                payload.run(stream, blocks[0], blocks[1], blocks[2], 5, words, offsets)
                got = words_of(abi.download(stream, blocks[0], offsets[0], words * WORD))
                wrong = np.flatnonzero(got != affine(5, x, b))
                row.check(not len(wrong), "a kernel at an element-aligned offset is wrong", index=wrong[:1])
            target, source = (int(v) for v in rng.integers(0, 256, 2))
            size = words * WORD
            row.case(what="copy", bytes=size, target_offset=target, source_offset=source)
            row.label("copy")
            data = _noise(rng, size)
            abi.upload(stream, blocks[1], data, source)
            abi.copy(stream, blocks[0], blocks[1], size, target, source)
            got_bytes = abi.download(stream, blocks[0], target, size)
            row.check(got_bytes == data, "a copy at a byte offset is wrong")
            row.case(what="fill", bytes=size, offset=target)
            row.label("fill")
            abi.fill(stream, blocks[2], 0x77, 1, size, target)
            row.check(
                abi.download(stream, blocks[2], target, size) == b"\x77" * size,
                "a fill at a byte offset is wrong",
            )
        for block in blocks:
            abi.free(block)


@rule("FL-MEM-005")
def test_accesses_stay_inside(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Writers that end flush with their allocation leave every other live allocation as it was."""
    stream = abi.stream()
    payload = Affine.of(abi)
    row.require("kernel", "copy", "fill")
    granules = (abi.device_info("d0")["alloc_align"], 4096)
    sizes = {WORD * n for n in (1, 3, 17, 63)} | {g + d for g in granules for d in (-WORD, 0, WORD)}
    for size in sorted(sizes):
        # Many neighbours, so that some of them do adjoin the block under test whatever the allocator's order.
        crowd = [abi.alloc("d0", size) for _ in range(effort.pick(12, 40))]
        images = [_noise(rng, size) for _ in crowd]
        for block, image in zip(crowd, images, strict=True):
            abi.upload(stream, block, image)
        for position in range(0, len(crowd), 3):
            target = crowd[position]
            writer = ("fill", "copy", "kernel")[position // 3 % 3]
            row.case(writer=writer, bytes=size, base=hex(target.base))
            if writer == "kernel" and payload is not None:
                left, right = crowd[position - 1], crowd[position - 2]
                payload.run(stream, target, left, right, 3, size // WORD)
                x, b = (words_of(images[p]) for p in (position - 1, position - 2))
                images[position] = affine(3, x, b).tobytes()
                row.label("kernel")
            elif writer == "copy":
                data = _noise(rng, size)
                abi.upload(stream, target, data)
                images[position] = data
                row.label("copy")
            else:
                abi.fill(stream, target, 0xD7)
                images[position] = b"\xd7" * size
                row.label("fill")
            for block, image in zip(crowd, images, strict=True):
                _expect(row, abi, stream, block, image)
        for block in crowd:
            abi.free(block)


@rule("FL-MEM-006")
def test_results_do_not_depend_on_old_contents(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """Kernels, fills and copies give the same bytes whatever their output held, in fresh and in reused blocks."""
    stream = abi.stream()
    payload = Affine.of(abi)
    row.require("kernel")
    words = 300
    size = words * WORD
    x, b = (rng.integers(0, 2**32, words, dtype=np.uint32) for _ in range(2))
    for trial in range(8):
        left, right = abi.alloc("d0", size), abi.alloc("d0", size)
        abi.upload(stream, left, x.tobytes())
        abi.upload(stream, right, b.tobytes())
        for poison in (None, 0x00, 0xFF, 0xA5, 0x5A):
            target = abi.alloc("d0", size)
            row.case(trial=trial, poison=poison)
            if poison is not None:
                abi.fill(stream, target, poison)
            if payload is not None:
                row.label("kernel")
                payload.run(stream, target, left, right, 9, words)
                _expect(row, abi, stream, target, affine(9, x, b).tobytes())
            abi.free(target)
        abi.free(left)
        abi.free(right)


@rule("FL-MEM-008", exclusive=True)
def test_exhaustion_is_survived(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """OUT_OF_MEMORY is reported as such, leaves the device usable, and ends when one block is freed."""
    for device in (f"d{i}" for i in range(len(abi.devices))):
        stream = abi.stream(device)
        total = _check_info(row, abi, device)
        row.case(device=device, bytes=total + 1)
        for size in (total + 1, 2 * total, 1 << 62):
            result = _try_alloc(abi, device, size)
            row.check(
                result.status == header.FL_OUT_OF_MEMORY,
                f"an allocation above the device's total: {result}, expected OUT_OF_MEMORY",
                bytes=size,
            )
        check_wrong_frees(row, abi, device)
        _check_many(row, abi, device)
        _check_return(row, abi, device, rng)
        free_before, _ = abi.mem_info(device)
        held = _exhaust(row, abi, device, total)
        row.check(held, "no allocation of any size succeeded on an idle device")
        _check_reuse(row, abi, device, held)
        _check_work(row, abi, stream, device, rng, "a full device", held)
        for block in held:
            abi.free(block)
        _check_work(row, abi, stream, device, rng, "a device that had been full", [])
        free_after, _ = abi.mem_info(device)
        # A workspace of the payload kernel may have been taken meanwhile.
        back = free_after >= free_before - (1 << 20)
        row.check(back, "memory did not come back after frees", before=free_before, after=free_after)


def _check_info(row: Row, abi: Abi, device: str) -> int:
    free, total = abi.mem_info(device)
    row.case(device=device, free=free, total=total)
    row.check(0 <= free <= total, "mem_info: not 0 <= free <= total", free=free, total=total)
    declared = abi.device_info(device)["total_bytes"]
    row.check(0 < total <= declared, "mem_info's total is not within total_bytes", total=total, declared=declared)
    block = abi.alloc(device, free // 4)
    during, total_during = abi.mem_info(device)
    row.check(total_during == total, "mem_info's total has changed", before=total, after=total_during)
    row.check(
        during <= free - free // 8,
        "mem_info's free does not react to an allocation of a quarter of it",
        before=free,
        during=during,
        allocated=free // 4,
    )
    abi.free(block)
    after, _ = abi.mem_info(device)
    row.check(after > during, "mem_info's free does not react to a free", during=during, after=after)
    return total


def _check_many(row: Row, abi: Abi, device: str) -> None:
    """Blocks are handles, too: so many of them live at once."""
    held: list[Block] = []
    while len(held) < MANY_BLOCKS:
        row.case(what="small blocks that live at once", device=device, live=len(held))
        held.append(abi.alloc(device, 256))
    for block in held:
        abi.free(block)


def _check_return(row: Row, abi: Abi, device: str, rng: np.random.Generator) -> None:
    """Blocks of odd sizes come back whole: info's free may fall while caches fill, but not in every window."""
    storm = {"do": "loop", "name": "alloc_storm", "device": int(device[1:]), "threads": 1, "max_bytes": 70_001}
    free = []
    for window in range(8):
        row.case(device=device, window=window)
        outcome = abi.driver.execute({**storm, "count": 1000, "seed": int(rng.integers(2**32))}, timeout=60.0)
        row.check(not outcome["failures"], "blocks of odd sizes that come and go: a call failed", **outcome)
        free.append(abi.mem_info(device)[0])
    falls = all(later < earlier for earlier, later in itertools.pairwise(free))
    row.check(not falls, "free memory falls as blocks of odd sizes come and go", free=free)


def _exhaust(row: Row, abi: Abi, device: str, total: int) -> list[Block]:
    """Allocate, untouched, in halving sizes until even 64 KiB fail."""
    held: list[Block] = []
    size, taken = 1 << (total.bit_length() - 2), 0
    while size >= 1 << 16:
        name = abi.driver.name("b")
        result = _try_alloc(abi, device, size, save=name)
        row.case(device=device, bytes=size, taken=taken)
        if result.ok:
            held.append(abi.keep(Block(name, device, size, result.value)))
            taken += size
            row.check(taken <= total, "more memory was handed out than the device has", taken=taken, total=total)
            continue
        row.check(
            result.status == header.FL_OUT_OF_MEMORY,
            f"a full device: {result}, expected OUT_OF_MEMORY",
            bytes=size,
        )
        size //= 2
    return held


def _check_reuse(row: Row, abi: Abi, device: str, held: list[Block]) -> None:
    for position in {0, len(held) // 2, len(held) - 1}:
        block = held[position]
        row.case(device=device, freed_and_asked_again=block.bytes)
        abi.free(block)
        name = abi.driver.name("b")
        result = _try_alloc(abi, device, block.bytes, save=name)
        row.check(result.ok, f"a block was freed on a full device and an equal one asked for: {result}")
        held[position] = abi.keep(Block(name, device, block.bytes, result.value))


def _check_work(
    row: Row, abi: Abi, stream: Stream, device: str, rng: np.random.Generator, where: str, held: list[Block]
) -> None:
    """A kernel, a fill and a copy on memory that is already there (or newly taken where there is room)."""
    words = 256
    size = words * WORD
    if held:
        smallest = min(held, key=lambda block: block.bytes)
        blocks, offsets = [smallest] * 3, (0, size, 2 * size)
    else:
        blocks, offsets = [abi.alloc(device, size) for _ in range(3)], (0, 0, 0)
    row.case(device=device, where=where)
    x, b = (rng.integers(0, 2**32, words, dtype=np.uint32) for _ in range(2))
    abi.upload(stream, blocks[1], x.tobytes(), offsets[1])
    abi.upload(stream, blocks[2], b.tobytes(), offsets[2])
    payload = Affine.of(abi, device)
    if payload is not None:
        payload.run(stream, blocks[0], blocks[1], blocks[2], 21, words, offsets)
        got = words_of(abi.download(stream, blocks[0], offsets[0], size))
        row.check(np.array_equal(got, affine(21, x, b)), f"a kernel on {where} gave wrong values")
    abi.fill(stream, blocks[0], 0x42, 1, size, offsets[0])
    got_bytes = abi.download(stream, blocks[0], offsets[0], size)
    row.check(got_bytes == b"\x42" * size, f"a fill on {where} gave wrong bytes")
    if not held:
        for block in blocks:
            abi.free(block)
