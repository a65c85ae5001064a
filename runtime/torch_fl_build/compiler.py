"""Which C++ compiler builds the bridge, and with which flags."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from dataclasses import dataclass

#: Part of a bridge's identity. Warnings don't stop a user's build (a future torch's macros may expand to some in our
#: code); they stay in its log, and the project's tests want none there.
FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra")

_USUAL = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Compiler:
    """A command, as words (`ccache g++` is two), and a fingerprint of the programs that they name."""

    words: tuple[str, ...]
    fingerprint: str

    def version(self) -> str:
        """First line of what it says of itself; "" where it says nothing. Starts a process."""
        import subprocess

        done = subprocess.run([*self.words, "--version"], capture_output=True, text=True, errors="replace")
        return done.stdout.partition("\n")[0]


def find() -> Compiler | None:
    """What $CXX says, else the first of the usual names on PATH; None where that isn't there."""
    asked = os.environ.get("CXX")
    for command in [asked] if asked else _USUAL:
        words = tuple(shlex.split(command))
        if words and shutil.which(words[0]):
            return Compiler(words, _fingerprint(words))
    return None


def _fingerprint(words: tuple[str, ...]) -> str:
    """Changes with the command and with every program in it: size and time of a file stand for its version."""
    state = hashlib.sha256()
    for word in words:
        state.update(f"{word}\0".encode())
        program = shutil.which(word)
        if program:
            program = os.path.realpath(program)
            stat = os.stat(program)  # noqa: PTH116 - on the way of every import
            state.update(f"{program}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return state.hexdigest()[:16]


def missing() -> str:
    """Why `find` found none."""
    asked = os.environ.get("CXX")
    if asked:
        return f"there is no C++ compiler: CXX is {asked!r}, and that is not on PATH"
    return f"there is no C++ compiler: none of {', '.join(_USUAL)} is on PATH"
