"""Python in a process of its own, with devices of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> str:
    """What `python ...` prints; fails, with all it wrote, where it fails."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_FL_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**settings, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def script(code: str, **environment: str) -> str:
    """The same for a program's text."""
    return run("-c", code, **environment)
