"""Files with machine code that were in a driver, by their bytes: what a report says was judged.

Looked at when a row begins and when a driver ends, so that a library counts that a kernel loads only when it runs.
What has no file - memory, a file that is deleted already - and what is closed again within its row is not seen.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

CodeFile = tuple[str, str]
"""(path, sha256)"""
CODE = pytest.StashKey[set[CodeFile]]()
"""Where a pytest config keeps what the drivers of its process have held."""


def code_files(paths: Iterable[str]) -> set[CodeFile]:
    """Those of the files that are ELF, whatever they are called and wherever they lie."""
    found = set()
    for path in paths:
        try:
            status = Path(path).stat()
            if stat.S_ISREG(status.st_mode):
                digest = _digest(path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
                found |= {(path, digest)} if digest else set()
        except OSError:  # it has gone
            continue
    return found


@cache
def _digest(path: str, inode: int, written: int, changed: int, size: int) -> str:
    """sha256 of a file in this state, "" for one that is no ELF file."""
    del inode, written, changed, size  # these tell one state from another; only `changed` cannot be set back
    with Path(path).open("rb") as file:
        magic = file.read(4)
        return hashlib.sha256(magic + file.read()).hexdigest() if magic == b"\x7fELF" else ""
