"""Memory that the driver lends to a plugin for one call.

`Loan` is one struct, list or scalar: bytes between sentinels or ending exactly at an unreadable page, a
snapshot taken before the call, a check after it, and poison at the end so that a plugin which keeps
the pointer reads nonsense [FL-THREAD-008]. Loans are cut from regions; the usual region is a slab, which rests for
many calls before it is lent again, so that a kept pointer finds poison and not the next call's structs.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

from . import abi
from .session_memory import PAGE, map_pages

ffi, libc = abi.ffi, abi.libc

POISON = 0xA5  # freed or never-written bytes
SENTINEL = 0x5C  # bytes around a loan
_MARGIN = 64
_SLAB = 1 << 14  # bytes; holds the loans of nearly every call
_SLABS = 128  # of all threads; the one that has rested longest, poisoned, is lent again
_POISONED = memoryview(bytes((POISON,)) * _SLAB)


class _Region:
    """One piece of memory, the part of it that is cut into loans, and the bytes of that part when it was sealed."""

    __slots__ = ("before", "memory", "pointer", "size", "used", "view")

    def __init__(self, memory: Any, size: int) -> None:
        self.memory = memory
        self.size = size
        self.pointer = ffi.cast("char*", memory)
        self.view = ffi.buffer(self.pointer, size)
        self.used = 0
        self.before = b""

    def seal(self) -> None:
        self.before = self.view[: self.used]

    def release(self) -> None:
        self.view[:] = bytes((POISON,)) * self.size


class _GuardedRegion(_Region):
    """Whole pages before one that faults."""

    __slots__ = ()

    def __init__(self, size: int) -> None:
        super().__init__(map_pages(size + PAGE), size)
        libc.mprotect(self.memory + size, PAGE, 0)

    def release(self) -> None:
        libc.munmap(self.memory, self.size + PAGE)


class _Slab(_Region):
    __slots__ = ("poisoned",)

    def __init__(self) -> None:
        super().__init__(ffi.new("int64_t[]", _SLAB // 8), _SLAB)
        self.view[:] = _POISONED  # also, pages that are touched now do not look like a leak later
        self.poisoned = 0  # bytes that were lent last

    def release(self) -> None:
        self.view[: self.used] = _POISONED[: self.used]
        self.poisoned, self.used, self.before = self.used, 0, b""
        _resting.append(self)

    def was_written_to(self) -> bool:
        """Whether somebody has kept a pointer into it and written through it while it rested."""
        return bool(self.view[: self.poisoned] != _POISONED[: self.poisoned])


# All made at once, so that a process does not grow call by call. A deque's operations are atomic.
_resting = deque(_Slab() for _ in range(_SLABS))


def _slab() -> _Slab:
    try:
        return _resting.popleft()
    except IndexError:  # other threads hold them all
        return _Slab()


class Loan:
    """`size` bytes at `.pointer` (char*, 8-byte aligned unless guarded with an odd size)."""

    __slots__ = ("_end", "_first", "_region", "_start", "pointer", "size", "writable")

    def __init__(self, region: _Region, whole: int, start: int, size: int, fill: int) -> None:
        self.size = size
        self._region = region
        self._first = region.used
        self._end = region.used = region.used + whole
        self._start = start
        self.pointer = region.pointer + (self._first + start)
        region.view[self._first : self._end] = _fresh(whole, start, size, fill)
        #: (first, end) byte ranges within the loan that the call may change.
        self.writable: list[tuple[int, int]] = []

    def intact(self) -> bool:
        """True when nothing outside `writable` has changed since the lender's `seal`."""
        now, before = self._now(), self._before()
        if now == before:
            return True
        if not self.writable:
            return False
        masked_now, masked_before = bytearray(now), bytearray(before)
        for first, end in self.writable:
            masked_now[self._start + first : self._start + end] = bytes(end - first)
            masked_before[self._start + first : self._start + end] = bytes(end - first)
        return masked_now == masked_before

    def untouched(self) -> bool:
        """True when no byte at all has changed since `seal`."""
        return self._now() == self._before()

    def _now(self) -> bytes:
        found: bytes = self._region.view[self._first : self._end]
        return found

    def _before(self) -> bytes:
        return self._region.before[self._first : self._end]


class Lender:
    """The loans of one call. Used by one thread at a time."""

    __slots__ = ("_regions", "_slab", "found_late_writes")

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        self._slab: _Slab | None = None
        #: Memory that this call is lent was written to after an earlier call that had it.
        self.found_late_writes = False

    def lend(self, size: int, fill: int = 0, guard: bool = False) -> Loan:
        """`size` bytes of `fill`; guard: the last one lies before an unreadable page."""
        if guard:
            body = -(-max(size, 1) // PAGE) * PAGE
            return Loan(self._add(_GuardedRegion(body)), body, body - size, size, fill)
        whole = _MARGIN + -(-size // 8) * 8 + _MARGIN
        if whole > _SLAB:
            return Loan(self._add(_Region(ffi.new("int64_t[]", whole // 8), whole)), whole, _MARGIN, size, fill)
        if self._slab is None or self._slab.used + whole > _SLAB:
            self._slab = _slab()
            self.found_late_writes = self.found_late_writes or self._slab.was_written_to()
            self._add(self._slab)
        return Loan(self._slab, whole, _MARGIN, size, fill)

    def _add(self, region: _Region) -> _Region:
        self._regions.append(region)
        return region

    def seal(self) -> None:
        """Remember every byte; the call follows."""
        for region in self._regions:
            region.seal()

    def release(self) -> None:
        """Poison, then give the memory back: from here on a kept pointer reads nonsense or faults."""
        for region in self._regions:
            region.release()
        self._regions.clear()
        self._slab = None


@lru_cache(1024)  # calls repeat a few sizes, and a buffer is filled fastest from ready bytes
def _fresh(whole: int, start: int, size: int, fill: int) -> bytes:
    """A loan's bytes between its sentinels, before anything is written into it."""
    return b"".join((bytes((SENTINEL,)) * start, bytes((fill,)) * size, bytes((SENTINEL,)) * (whole - start - size)))
