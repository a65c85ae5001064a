"""Describes a plugin in a process of its own, so that one that crashes or hangs costs one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from .loader import PluginRefused

_SECONDS = 60.0
_MARK = "torch-fl-describe:"


def describe(library: Path, options: str = "") -> dict[str, Any]:
    """The session's `describe` of a library; raises PluginRefused."""
    command = [sys.executable, "-m", __name__, str(library), options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise PluginRefused([f"{library} did not answer within {_SECONDS:.0f} s while it was loaded"]) from None
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            answer: dict[str, Any] = json.loads(line[len(_MARK) :])
            if "refused" in answer:
                raise PluginRefused(answer["refused"])
            return answer["described"]  # type: ignore[no-any-return]
    code = done.returncode
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    raise PluginRefused([f"{library} ended its process with {ended} while it was loaded"])


def _main(library: str, options: str) -> None:
    from .session import Session

    try:
        answer: dict[str, Any] = {"described": Session(library, options).execute({"do": "describe"})}
    except PluginRefused as refusal:
        answer = {"refused": refusal.reasons}
    print(f"\n{_MARK}{json.dumps(answer)}", flush=True)
    os._exit(0)  # the answer is out; how the plugin leaves is another check's matter


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
