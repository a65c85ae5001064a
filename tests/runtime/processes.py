"""Runs Python code that uses devices in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300  # seconds; for the process that hangs


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code (indentation is removed) with both reference vendors; its exit status is the caller's to check."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"TORCH_FL_VENDORS": "reference,reference_inline"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


def prints(code: str, **environment: str) -> list[str]:
    """The lines that the code prints; it must succeed and say nothing on stderr."""
    done = run_python(code, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()
