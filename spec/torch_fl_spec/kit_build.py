"""Builds a kit's library when it is older than its sources: one builder at a time, nothing half-written."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import abi, bundled

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from .kits import Kit

_LAST_LINES = 60  # of a failed command's output
_LAST_BYTES = 1 << 15


class KitError(Exception):
    """A kit cannot be found, read or built."""


def ensure_built(kit: Kit, announce: Callable[[str], None] | None = None) -> Path:
    """The kit's library, built if need be; raises KitError. announce: gets each command before it runs."""
    _regular_file(kit)
    if not kit.build:
        if not kit.library.exists():
            raise KitError(f"{kit.name}: {kit.library} does not exist and the kit has no build commands")
        return kit.library
    tree = tree_of(kit)
    if _is_fresh_and_whole(kit, tree):
        return kit.library
    if not os.access(tree, os.W_OK):
        kit = _in_cache(kit, tree)
        tree = tree_of(kit)
    return _build_locked(kit, tree, announce or _on_stderr)


def _on_stderr(line: str) -> None:
    """A build may take long, and its own words come only if it fails."""
    sys.stderr.write(f"building the plugin of {line}\n")


def _regular_file(kit: Kit) -> None:
    """Raise KitError where the library's name leads to a folder, to what has no end (a pipe, a device) or nowhere."""
    try:
        mode = kit.library.stat().st_mode
    except FileNotFoundError:
        return  # not built yet
    except OSError as error:
        raise KitError(f"{kit.name}: {str(kit.library)[:200]}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise KitError(f"{kit.name}: {kit.library} is {what}, not a library")


def tree_of(kit: Kit) -> Path:
    """The folder that holds both the kit and its library (a kit may share its parent's build folder)."""
    return Path(os.path.commonpath([kit.folder, kit.library.parent]))


def newest_source(kit: Kit) -> float:
    """Modification time of the newest source, header of the interface and vendor.toml."""
    found = [kit.folder / "vendor.toml"]
    for pattern in kit.sources:
        found += _glob(kit.folder, pattern)
    if len(found) == 1:
        raise KitError(f"{kit.folder / 'vendor.toml'}: sources: no file matches {', '.join(kit.sources) or '[]'}")
    for folder in bundled.include_dirs():
        found += folder.rglob("*.h")
    return max(path.stat().st_mtime for path in found if path.is_file())


def _glob(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern relative to the folder; leading ../ allowed."""
    while pattern.startswith("../"):
        folder, pattern = folder.parent, pattern[3:]
    return [path for path in folder.glob(pattern) if path.is_file()]


def _is_fresh(library: Path, newest: float) -> bool:
    return library.exists() and library.stat().st_mtime >= newest


def _is_fresh_and_whole(kit: Kit, tree: Path) -> bool:
    """Fresh, and not half written: while another process links it, the file is there and new."""
    if not _is_fresh(kit.library, newest_source(kit)):
        return False
    try:
        with _lock(tree):
            return _is_fresh(kit.library, newest_source(kit))
    except OSError:  # where nobody can take the lock, nobody builds
        return True


def _lock(tree: Path) -> BaseFileLock:
    from filelock import FileLock

    locks = abi.cache_dir() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(tree).encode()).hexdigest()[:16]
    return FileLock(locks / f"{name}.lock")


def _build_locked(kit: Kit, tree: Path, announce: Callable[[str], None]) -> Path:
    with _lock(tree):
        newest = newest_source(kit)
        if not _is_fresh(kit.library, newest):  # else another process has built it meanwhile
            _build(kit, newest, announce)
    return kit.library


def _build(kit: Kit, newest: float, announce: Callable[[str], None]) -> None:
    before = kit.library.stat().st_mtime_ns if kit.library.exists() else None
    try:
        for command in kit.build:
            _run(kit, command, announce)
    except BaseException:
        # What a broken or interrupted command left must not pass for a library.
        if kit.library.is_file() and kit.library.stat().st_mtime_ns != before:
            kit.library.unlink()
        raise
    if not kit.library.exists():
        raise KitError(f"{kit.name}: the build commands succeeded but made no {kit.library}")
    _regular_file(kit)
    if kit.library.stat().st_mtime < newest:
        # The build saw no need (a header that it does not use): from now on neither do we.
        os.utime(kit.library, (newest, newest))


def _run(kit: Kit, command: tuple[str, ...] | str, announce: Callable[[str], None]) -> None:
    environment = {
        **os.environ,
        "FL_INCLUDE": ":".join(map(str, bundled.include_dirs())),
        "FL_PYTHON": sys.executable,
    }
    shown = command if isinstance(command, str) else " ".join(command)
    announce(f"{kit.name}: {shown}")
    with tempfile.TemporaryFile() as printed:  # no pipe: what a command leaves in the background would keep it open
        try:
            done = subprocess.run(
                command,
                shell=isinstance(command, str),
                cwd=kit.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise KitError(f"{kit.name}: cannot run `{shown}`: {error.strerror}") from None
        printed.seek(max(0, printed.tell() - _LAST_BYTES))
        output = "\n".join(printed.read().decode(errors="replace").splitlines()[-_LAST_LINES:])
    if done.returncode:
        raise KitError(f"{kit.name}: `{shown}` in {kit.folder} ended with {done.returncode}:\n{output}")


def _in_cache(kit: Kit, tree: Path) -> Kit:
    """The same kit in a writable copy of its tree, named by the sources' content."""
    from .kits import read

    digest = hashlib.sha256(str(tree).encode())
    for path in sorted({p for pattern in (*kit.sources, "vendor.toml") for p in _glob(kit.folder, pattern)}):
        digest.update(path.name.encode() + path.read_bytes())
    copy = abi.cache_dir() / "kits" / f"{kit.name}-{digest.hexdigest()[:16]}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{copy.name}.{os.getpid()}.{time.monotonic_ns()}")
        shutil.copytree(tree, partial, ignore=shutil.ignore_patterns("build", "__pycache__"))
        for path in (partial, *partial.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        try:
            partial.rename(copy)
        except OSError:  # another process was first
            shutil.rmtree(partial)
    return read(copy / kit.folder.relative_to(tree))
