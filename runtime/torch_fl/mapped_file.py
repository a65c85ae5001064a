"""Which bytes a loaded library has: the digest is taken before it is loaded, and holds only if nothing moved since."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Digest:
    """sha256 of a file, and the marks by which a change of it shows: device, inode, size, times."""

    path: Path  # absolute, links resolved
    sha256: str
    marks: tuple[int, ...]

    @staticmethod
    def take(path: Path) -> Digest:
        """Read the file; raises OSError."""
        path = path.resolve()
        state = hashlib.sha256()
        with path.open("rb") as file:
            marks = _marks(os.fstat(file.fileno()))
            while block := file.read(_BLOCK):
                state.update(block)
        return Digest(path, state.hexdigest(), marks)

    def doubt(self, address: int) -> str | None:
        """Why the code at an address of this process may be of other bytes than these; None where it is theirs.

        To be asked once the library is loaded. What is written into the file later is another matter: it changes the
        memory of every process that has mapped it, on any system.
        """
        try:
            now = _marks(self.path.stat())
            mapped = _file_at(address)
        except OSError as error:
            return f"{self.path} cannot be checked after loading: {error}"
        if now != self.marks:
            return f"{self.path} changed while it was loaded"
        if mapped != str(self.path):
            return f"{self.path} is not the file that was loaded; that was {mapped or 'no file'}"
        return None


def _marks(stat: os.stat_result) -> tuple[int, ...]:
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _file_at(address: int) -> str:
    """The mapped file that an address lies in, as the kernel names it (" (deleted)" behind one that is gone)."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(end, 16) for end in fields[0].split("-"))
            if first <= address < last:
                return fields[5] if len(fields) == 6 else ""
    return ""
