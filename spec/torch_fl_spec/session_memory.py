"""Memory that the driver lends to a plugin for one call, and host buffers that outlive calls.

`Loan` is one struct, list or scalar: bytes between sentinels or ending exactly at an unreadable page, a
snapshot taken before the call, a check after it, and poison at the end so that a plugin which keeps
the pointer reads nonsense [FL-THREAD-008]. `HostBuffer` is page-mapped host memory under a name.
"""

from __future__ import annotations

import mmap
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

    __slots__ = ("_before", "_mapped", "_memory", "_whole", "_whole_size", "pointer", "size", "writable")

    def __init__(self, size: int, fill: int = 0, guard: bool = False) -> None:
        self.size = size
        self._mapped = 0
        if guard:
            body = -(-max(size, 1) // PAGE) * PAGE
            self._mapped = body + PAGE
            self._memory = map_pages(self._mapped)
            libc.mprotect(self._memory + body, PAGE, 0)
            self._whole, self._whole_size = self._memory, body
            self.pointer = self._memory + body - size
        else:
            self._whole_size = _MARGIN + -(-size // 8) * 8 + _MARGIN
            self._memory = ffi.new("int64_t[]", self._whole_size // 8)
            self._whole = ffi.cast("char*", self._memory)
            self.pointer = self._whole + _MARGIN
        ffi.buffer(self._whole, self._whole_size)[:] = bytes((SENTINEL,)) * self._whole_size
        ffi.buffer(self.pointer, size)[:] = bytes((fill,)) * size
        self._before = b""
        #: (first, end) byte ranges within the loan that the call may change.
        self.writable: list[tuple[int, int]] = []

    def seal(self) -> None:
        """Remember every byte; the call follows."""
        self._before = ffi.buffer(self._whole, self._whole_size)[:]

    def intact(self) -> bool:
        """True when nothing outside `writable` has changed since `seal`."""
        now = ffi.buffer(self._whole, self._whole_size)[:]
        if now == self._before:
            return True
        if not self.writable:
            return False
        masked_now, masked_before = bytearray(now), bytearray(self._before)
        start = int(self.pointer - self._whole)
        for first, end in self.writable:
            masked_now[start + first : start + end] = bytes(end - first)
            masked_before[start + first : start + end] = bytes(end - first)
        return masked_now == masked_before

    def untouched(self) -> bool:
        """True when no byte at all has changed since `seal`."""
        return bool(ffi.buffer(self._whole, self._whole_size)[:] == self._before)

    def release(self) -> None:
        """Poison, then give the memory back."""
        if self._mapped:
            libc.munmap(self._memory, self._mapped)
            self._mapped = 0
        else:
            ffi.buffer(self._whole, self._whole_size)[:] = bytes((POISON,)) * self._whole_size


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
