"""Which shared libraries a plugin needs, and which of them the loader does not find."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch_fl_spec.elf import needed_libraries

_FOUND = re.compile(r"^\s*\S+ => (/.*) \(0x[0-9a-f]+\)$", re.M)
_MISSING = re.compile(r"^\s*(\S+) => not found$", re.M)
_TOO_OLD = re.compile(r"^(.*): (version `[^']+' not found \(required by .*\))$", re.M)
_SECONDS = 30.0


@dataclass(frozen=True)
class Needed:
    """What the loader finds for a library. found: all of them, itself first. missing: (name, who needs it).

    too_old: libraries that are there in a version that lacks something, in the loader's words.
    """

    found: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...] = ()
    too_old: tuple[str, ...] = ()

    @property
    def complaints(self) -> list[str]:
        """One for each library that stands in the way."""
        lacks = [f"{name}, which {needer} needs, is not found" for name, needer in self.missing]
        return lacks + list(self.too_old)


def needed_by(library: Path) -> Needed:
    """Asks the loader itself, by way of ldd, which runs nothing of the library; without ldd nothing is known."""
    said = _ldd(library)
    found = (library, *map(Path, _FOUND.findall(said)))
    missing = tuple((name, _needer(name, found)) for name in dict.fromkeys(_MISSING.findall(said)))
    return Needed(found, missing, tuple(f"{path}: {why}" for path, why in _TOO_OLD.findall(said)))


def _ldd(library: Path) -> str:
    program = shutil.which("ldd")
    if program is None:
        return ""
    with tempfile.TemporaryFile() as output, suppress(subprocess.TimeoutExpired):
        command = [program, str(library.resolve())]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=_SECONDS)
        output.seek(0)
        return output.read().decode("utf-8", "replace")
    return ""


def _needer(name: str, libraries: tuple[Path, ...]) -> str:
    for path in libraries:
        with suppress(OSError, ValueError):
            if name in needed_libraries(path):
                return str(path)
    return "one of its libraries"
