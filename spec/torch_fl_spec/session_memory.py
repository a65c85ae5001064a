"""Page-mapped host memory that outlives calls. `HostBuffer` is such memory under a name."""

from __future__ import annotations

import mmap
from typing import Any

from . import abi

ffi, libc = abi.ffi, abi.libc

PAGE = mmap.PAGESIZE
_MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def map_pages(size: int) -> Any:
    """Zeroed read-write pages as char*."""
    pointer = libc.mmap(ffi.NULL, size, mmap.PROT_READ | mmap.PROT_WRITE, _MAP_FLAGS, -1, 0)
    if int(ffi.cast("intptr_t", pointer)) == -1:
        raise MemoryError(f"mmap of {size} bytes failed")
    return ffi.cast("char*", pointer)


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
