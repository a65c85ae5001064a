"""Starts the process that measures one combination; whatever ends the wait, the process and its children are gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_fl.tuning.record import TuneError

_LAST_LINES = 12  # of what it wrote to stderr
_KILLED = 5.0  # seconds that a killed process gets to be gone


def run(task: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What torch_fl.tuning.trial says of the task; TuneError, which begins with `name`, where it says nothing."""
    with tempfile.TemporaryDirectory(prefix="torch-fl-tune-") as folder:
        result, said = Path(folder, "result"), Path(folder, "stderr")
        process = None
        with said.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "torch_fl.tuning.trial", str(result), json.dumps(task)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,  # so that it can be ended with all that it has started
                )
                process.wait()
            finally:
                if process is not None:
                    _end(process)
        if not result.exists():
            raise TuneError(
                f"{name}: {_ended(process.returncode)} before it was measured\n{_last_lines(said)}".rstrip()
            )
        found: dict[str, Any] = json.loads(result.read_text())
    if "wrong" in found:
        raise TuneError(found["wrong"])
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED)


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"its process was ended by signal {signal.Signals(-code).name}"
    return f"its process was ended by signal {-code}"


def _last_lines(said: Path) -> str:
    lines = [line for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-_LAST_LINES:])
