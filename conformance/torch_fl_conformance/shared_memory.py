"""The one shared buffer between judge and driver: a memfd and a bump allocator over it."""

from __future__ import annotations

import mmap
import os

_ALIGN = 64
_ZEROS = memoryview(bytes(1 << 20))


class SharedMemory:
    """`size` bytes of anonymous memory with a file descriptor to hand to a child process.

    Regions are [offset, length] lists. A fresh object backs each driver process (`renew`), so that a child
    left behind by a dead one cannot write into the next one's data.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = -1
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._used = 0

    def renew(self) -> None:
        """A new, zeroed object; earlier views stay valid for who holds them, but lead nowhere."""
        self.close()
        self.fd = os.memfd_create("buffer")
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size)
        self._view = memoryview(self._map)
        self._used = 0

    @property
    def mapping(self) -> mmap.mmap:
        """This process's mapping of the whole buffer."""
        assert self._map is not None
        return self._map

    def reset(self) -> None:
        """All regions are free again; views of them must not be used any more."""
        self._used = 0

    @property
    def is_empty(self) -> bool:
        """Whether no region has been taken."""
        return self._used == 0

    def place(self, data: bytes | bytearray | memoryview) -> list[int]:
        """Copy `data` in."""
        source = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        region = self._take(source.nbytes)
        self.view(region)[:] = source
        return region

    def room(self, length: int) -> list[int]:
        """A zeroed region of `length` bytes."""
        region = self._take(length)
        self.view(region)[:] = _ZEROS[:length] if length <= len(_ZEROS) else bytes(length)
        return region

    def view(self, region: list[int]) -> memoryview:
        """The region's bytes, writable, without a copy."""
        assert self._map is not None
        offset, length = region
        return self._view[offset : offset + length]

    def close(self) -> None:
        """Give the descriptor back; the mapping goes with its last view."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self._map = None
        self._view = memoryview(b"")

    def _take(self, length: int) -> list[int]:
        offset = self._used
        if offset + length > self.size:
            raise MemoryError(f"a case needs more than the {self.size} bytes of shared memory")
        self._used = -(-(offset + length) // _ALIGN) * _ALIGN
        return [offset, length]
