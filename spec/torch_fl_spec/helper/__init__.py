"""The C helper: gates, records and loops that run without Python. `load()` compiles it once per machine.

The library is cached under the user cache by the hash of its sources, the header and the compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from .. import abi

FOLDER = Path(__file__).parent
_FLAGS = ["-std=c11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]

_loaded: Any = None


class HelperUnavailable(Exception):
    """The helper could not be compiled; the text says what to install or shows the compiler's words."""


def _compiler() -> str:
    name = (os.environ.get("CC", "").split() or ["cc"])[0]
    found = shutil.which(name)
    if found is None:
        raise HelperUnavailable(
            f"no C compiler: {name!r} is not on PATH. Install one (Debian: apt-get install gcc) or set CC; "
            "it is needed once, for the driver's small C helper"
        )
    return found


def _key(compiler: str, sources: list[Path]) -> str:
    """Names a build: the compiler as a file stands for its version, asking it would cost a process."""
    digest = hashlib.sha256()
    stat = Path(compiler).resolve().stat()
    digest.update(f"{compiler} {stat.st_size} {stat.st_mtime_ns} {_FLAGS}".encode())
    for path in [*sources, FOLDER / "torch_fl_helper.h", abi.HEADER_PATH]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(compiler: str, sources: list[Path], library: Path) -> None:
    import subprocess
    import tempfile

    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        temporary = Path(scratch) / library.name
        includes = [f"-I{abi.INCLUDE_DIR}", f"-I{FOLDER}"]
        command = [compiler, *_FLAGS, *includes, "-o", str(temporary), *map(str, sources), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise HelperUnavailable(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
        temporary.replace(library)


def library_path() -> Path:
    """The compiled helper, built when this machine has none for these sources; raises HelperUnavailable."""
    compiler = _compiler()
    sources = sorted(FOLDER.glob("*.c"))
    library = abi.cache_dir() / "helper" / f"torch_fl_helper_{_key(compiler, sources)}.so"
    if not library.exists():
        try:
            _compile(compiler, sources, library)
        except OSError as error:
            raise HelperUnavailable(
                f"cannot write {library.parent}: {error.strerror}; point TORCH_FL_CACHE at a writable folder"
            ) from None
    return library


def load() -> Any:
    """The helper as a cffi library."""
    global _loaded
    if _loaded is None:
        _loaded = abi.ffi.dlopen(str(library_path()), os.RTLD_NOW | os.RTLD_LOCAL)
    return _loaded
