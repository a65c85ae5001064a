"""Processes that a plugin has left behind: they end with the run, whatever session they have put themselves into.

Linux gives a process whose parent has ended to its nearest ancestor that asks for such.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

_PR_SET_CHILD_SUBREAPER = 36
_MOST_GENERATIONS = 1000  # of processes that fork faster than they are ended


def adopt_until_end(config: pytest.Config) -> None:
    """From now on such processes become children of this one, which ends them when pytest does."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    config.add_cleanup(_end)


def _end() -> None:
    """Kill all children that are not of this process's own session, as its workers and compilers are."""
    for _ in range(_MOST_GENERATIONS):
        found = list(_foreign_children())
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _foreign_children() -> Iterator[int]:
    own = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # Behind the name, which may hold anything: state, parent, process group, session.
                _, parent, _, session = (entry / "stat").read_text(errors="replace").rpartition(") ")[2].split()[:4]
                if int(parent) == os.getpid() and int(session) != own:
                    yield int(entry.name)
