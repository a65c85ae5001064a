"""Rows that need the device to themselves: a readers-and-writer lock between processes.

Every row holds the lock as a reader; an exclusive one (memory exhausted, slopes, timing) as the writer. A
turnstile that a waiting writer holds keeps new readers from overtaking it for ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


class DeviceLock:
    """One lock per set of devices, named by their uuids; it holds across all processes of a user."""

    def __init__(self, uuids: Sequence[str]) -> None:
        name = hashlib.sha256("\n".join(sorted(uuids)).encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"torch-fl-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._turnstile = FileLock(folder / f"{name}.turnstile")
        self._path = folder / f"{name}.rows"

    @contextmanager
    def hold(self, exclusive: bool) -> Iterator[None]:
        """Hold the lock, as the only one or beside others that are not exclusive."""
        with self._path.open("a") as file:
            with self._turnstile:
                fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
