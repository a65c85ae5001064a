"""The log: whether it can be written, and what the last run that looked for devices has left in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from torch_fl.config import Logging

#: As torch_fl.log writes them: time, process, level, logger.
_LINE = re.compile(r"^(?P<time>\S+ \S+) (?P<process>\d+) (?P<level>[A-Z]+) torch_fl\.devices: (?P<text>.*)")
_TAIL = 1 << 18  # bytes
_MOST = 5
_DEBUG = "TORCH_FL_LOG_LEVEL=debug TORCH_FL_LOG_PATH=torch_fl.log before a command writes each step of the search"


def check(logging: Logging) -> Iterator[Finding]:
    """logging: that part of the configuration."""
    if logging.path is None:
        yield ok("the log goes to stderr" if logging.level else "no log is kept", _DEBUG)
        return
    path = Path(logging.path)
    why_not = _why_not(path)
    if why_not:
        text = f"the log cannot be written to {path}: {why_not}"
        yield problem(text, "make the folder, or name another path; until then lines go to stderr")
        return
    yield ok(f"the log can be written to {path}, level {logging.level or 'info'}")
    if path.is_file() and os.access(path, os.R_OK):
        yield from _last_run(path)


def _why_not(path: Path) -> str | None:
    if path.exists():
        if path.is_dir():
            return "it is a folder"
        return None if os.access(path, os.W_OK) else "no permission"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return None if os.access(path.parent, os.W_OK | os.X_OK) else f"no permission in {path.parent}"


def _last_run(path: Path) -> Iterator[Finding]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    found = [match for match in map(_LINE.match, lines) if match]
    if not found:
        yield ok("it has no line about devices yet")
        return
    run = [match for match in found if match["process"] == found[-1]["process"]]
    bad = [match for match in run if match["level"] in ("WARNING", "ERROR")]
    for match in bad[-_MOST:]:
        yield warning(f"the last run, {match['time']}: {match['text']}", "compare with what was found above")
    if not bad:
        yield ok(f"the last run's last line, {run[-1]['time']}: {run[-1]['text']}")
