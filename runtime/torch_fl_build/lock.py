"""One builder at a time, however many processes start at once."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .progress import Progress


@contextmanager
def builders_lock(path: Path, progress: Progress) -> Iterator[int]:
    """Hold the lock; yields its file descriptor. Raises OSError where the folder takes no lock.

    The kernel holds it for as long as any process has the descriptor open: builders pass it on to what they start.
    Where a builder is killed, the lock is free once its compilers have ended too, and no stale one is ever left.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(descriptor, progress)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, progress: Progress) -> None:
    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    begin = time.monotonic()
    progress.say(f"process {holder} is building the bridge; waiting for it")
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    progress.say(f"waited {time.monotonic() - begin:.1f} s")
