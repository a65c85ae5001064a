"""Memory that the driver lends to a plugin for one call, and host buffers that outlive calls.

`Loan` is one struct, list or scalar: bytes between sentinels or ending exactly at an unreadable page, a
snapshot taken before the call, a check after it, and poison at the end so that a plugin which keeps
the pointer reads nonsense [FL-THREAD-008]. `HostBuffer` is page-mapped host memory under a name.
"""

from __future__ import annotations

import mmap
from functools import lru_cache
from typing import Any

from . import abi

ffi, libc = abi.ffi, abi.libc

PAGE = mmap.PAGESIZE
POISON = 0xA5  # freed or never-written bytes
SENTINEL = 0x5C  # bytes around a loan
_MARGIN = 64

_PROTECTION = {"none": 0, "read": mmap.PROT_READ, "readwrite": mmap.PROT_READ | mmap.PROT_WRITE}
_MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def map_pages(size: int) -> Any:
    """Zeroed read-write pages as char*."""
    pointer = libc.mmap(ffi.NULL, size, _PROTECTION["readwrite"], _MAP_FLAGS, -1, 0)
    if int(ffi.cast("intptr_t", pointer)) == -1:
        raise MemoryError(f"mmap of {size} bytes failed")
    return ffi.cast("char*", pointer)


class Loan:
    """`size` bytes at `.pointer` (char*, 8-byte aligned unless guarded with an odd size)."""

    __slots__ = ("_before", "_bytes", "_mapped", "_memory", "_start", "pointer", "size", "writable")

    def __init__(self, size: int, fill: int = 0, guard: bool = False) -> None:
        self.size = size
        self._mapped = 0
        if guard:
            body = -(-max(size, 1) // PAGE) * PAGE
            self._mapped = body + PAGE
            self._memory = map_pages(self._mapped)
            libc.mprotect(self._memory + body, PAGE, 0)
            whole, whole_size, self._start = self._memory, body, body - size
        else:
            whole_size, self._start = _MARGIN + -(-size // 8) * 8 + _MARGIN, _MARGIN
            self._memory = ffi.new("int64_t[]", whole_size // 8)
            whole = ffi.cast("char*", self._memory)
        self.pointer = whole + self._start
        self._bytes = ffi.buffer(whole, whole_size)
        self._bytes[:] = _fresh(whole_size, self._start, size, fill)
        self._before = b""
        #: (first, end) byte ranges within the loan that the call may change.
        self.writable: list[tuple[int, int]] = []

    def seal(self) -> None:
        """Remember every byte; the call follows."""
        self._before = self._bytes[:]

    def intact(self) -> bool:
        """True when nothing outside `writable` has changed since `seal`."""
        now = self._bytes[:]
        if now == self._before:
            return True
        if not self.writable:
            return False
        masked_now, masked_before = bytearray(now), bytearray(self._before)
        for first, end in self.writable:
            masked_now[self._start + first : self._start + end] = bytes(end - first)
            masked_before[self._start + first : self._start + end] = bytes(end - first)
        return masked_now == masked_before

    def untouched(self) -> bool:
        """True when no byte at all has changed since `seal`."""
        return bool(self._bytes[:] == self._before)

    def release(self) -> None:
        """Poison, then give the memory back."""
        if self._mapped:
            libc.munmap(self._memory, self._mapped)
            self._mapped = 0
        else:
            self._bytes[:] = _poison(len(self._bytes))


@lru_cache(1024)  # calls repeat a few sizes, and a buffer is filled fastest from ready bytes
def _fresh(whole: int, start: int, size: int, fill: int) -> bytes:
    """A loan's bytes between its sentinels, before anything is written into it."""
    return b"".join((bytes((SENTINEL,)) * start, bytes((fill,)) * size, bytes((SENTINEL,)) * (whole - start - size)))


@lru_cache(256)
def _poison(size: int) -> bytes:
    return bytes((POISON,)) * size


class HostBuffer:
    """Page-mapped host memory; with `guard` its last byte lies before an unreadable page."""

    def __init__(self, size: int, fill: int = 0, guard: bool = False) -> None:
        self.size = size
        self._body = -(-max(size, 1) // PAGE) * PAGE
        self._memory = map_pages(self._body + (PAGE if guard else 0))
        self._mapped = self._body + (PAGE if guard else 0)
        if guard:
            libc.mprotect(self._memory + self._body, PAGE, 0)
        self.pointer = self._memory + (self._body - size if guard else 0)
        if fill:
            ffi.memmove(self.pointer, bytes((fill,)) * size, size)

    def view(self, offset: int, size: int) -> Any:
        """A writable buffer over [offset, offset + size); raises ValueError outside the buffer."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset}..{offset + size} of a host buffer of {self.size}")
        return ffi.buffer(self.pointer + offset, size)

    def protect(self, mode: str) -> None:
        """mode: none, read or readwrite; the whole pages that hold the buffer."""
        if libc.mprotect(self._memory, self._body, _PROTECTION[mode]):
            raise OSError("mprotect failed")

    def release(self) -> None:
        """Unmap: a later access by the plugin faults."""
        if self._mapped:
            libc.munmap(self._memory, self._mapped)
            self._mapped = 0


class AdoptedBuffer(HostBuffer):
    """Memory that a plugin has handed out, under a host buffer's name; it stays the plugin's."""

    def __init__(self, address: int, size: int) -> None:
        self.size = size
        self._body = self._mapped = 0  # nothing to unmap
        self._memory = self.pointer = ffi.cast("char*", address)

    def protect(self, mode: str) -> None:
        """Refused: the pages around may hold anything."""
        raise OSError(f"adopted memory cannot be protected ({mode})")
