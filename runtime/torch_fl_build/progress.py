"""What a build says on stderr: a line that counts on a terminal, its first and last line anywhere else."""

from __future__ import annotations

import sys


class Progress:
    """Writes to stderr, if there is one."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._counts = self._stream is not None and self._stream.isatty()
        self._open = False  # whether the terminal's last line is one that counts

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{self._erase()}torch_fl: {text}\n")
        self._open = False

    def step(self, text: str) -> None:
        """A line that the next one replaces; only on a terminal."""
        if self._counts:
            self._write(f"{self._erase()}torch_fl: {text}")
            self._open = True

    def _erase(self) -> str:
        return "\r\033[K" if self._open else ""

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
