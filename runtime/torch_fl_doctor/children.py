"""A child process with a time limit, whatever runs in it: its notes are kept, also where it hangs or is killed.

    child = run("torch_fl_doctor.vendor_child", ["acme"], patience=lambda step: 30)
    child.notes        # what its `Notes` wrote, one dict each
    child.end          # "exit code 0", "signal SIGSEGV", "no answer for 30 s"

Neither notes nor output go through a pipe: a process that the child leaves behind would keep it open.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_LOOK = 0.05  # seconds between two looks at the notes
_KILLED = 5.0  # seconds that a killed process gets to be gone
_LAST_LINES = 3  # of what it printed


@dataclass(frozen=True)
class Child:
    """How a child ended.

    finished: it came to its own end. gave_up: it had to be killed. step: that it noted last. said: its last lines of
    output.
    """

    notes: tuple[Mapping[str, Any], ...]
    finished: bool
    end: str
    said: str
    gave_up: bool = False

    @property
    def step(self) -> str:
        """The last step that it began."""
        return next((note["step"] for note in reversed(self.notes) if "step" in note), "start")

    def find(self, key: str) -> Any:
        """The value of the last note with this key, None where there is none."""
        return next((note[key] for note in reversed(self.notes) if key in note), None)


class Notes:
    """A child's side: appends lines of JSON to the file that its first argument names."""

    def __init__(self, path: str) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, **values: Any) -> None:
        """One note, whole even if the process dies in the next moment; from any thread."""
        os.write(self._file, (json.dumps(values, default=str) + "\n").encode())

    def end(self) -> NoReturn:
        """The last note; how the plugin takes a process's end is not asked here."""
        self.write(finished=True)
        os._exit(0)


def run(module: str, arguments: Sequence[str], patience: Callable[[str], float]) -> Child:
    """Run `python -m module NOTES *arguments`; killed when it has noted nothing for patience(last step) seconds."""
    with tempfile.TemporaryDirectory(prefix="torch-fl-doctor-") as folder:
        notes, output = Path(folder, "notes"), Path(folder, "output")
        notes.touch()
        with output.open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(notes), *arguments],
                env={**os.environ, "TORCH_FL_AUTOLOAD": "0"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            end = _watch(process, notes, patience)
        finally:
            end_of_kill = _kill(process)
        read = _read(notes)
        finished = bool(read) and read[-1].get("finished") is True
        said = _last_lines(output)
        return Child(read, finished, end_of_kill or end or _ended(process.returncode), said, gave_up=end is not None)


def _watch(process: subprocess.Popen[bytes], notes: Path, patience: Callable[[str], float]) -> str | None:
    """Wait for the end; None where it came by itself, else why nobody waits any longer."""
    size, step, since = 0, "start", time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_LOOK)
            return None
        if notes.stat().st_size > size:
            size, since = notes.stat().st_size, time.monotonic()
            step = next((note["step"] for note in reversed(_read(notes)) if "step" in note), step)
        if time.monotonic() - since > patience(step):
            return f"no answer for {patience(step):g} s"


def _kill(process: subprocess.Popen[bytes]) -> str | None:
    """End it and what it left behind in its session; says so where the kernel does not let it go."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=_KILLED)
    except subprocess.TimeoutExpired:
        return f"it cannot be killed: process {process.pid} hangs in the kernel, most likely in the vendor's driver"
    return None


def _read(notes: Path) -> tuple[Mapping[str, Any], ...]:
    lines = notes.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]  # what has no end yet is no note
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            note = json.loads(line)
            if isinstance(note, dict):
                found.append(note)
    return tuple(found)


def _last_lines(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 8192))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-_LAST_LINES:])


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
