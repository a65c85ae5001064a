"""Folders and files of this user that have to be readable or writable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from torch_fl_spec.cache import cache_dir

from .finding import Finding, ok, problem, warning

_BRIDGE_BYTES = 100_000_000  # what compiling one takes


def check(settings: Path | None) -> Iterator[Finding]:
    """settings: where the configuration file is looked for."""
    yield from _cache(cache_dir())
    if settings is not None:
        yield from _settings(settings)


def _cache(folder: Path) -> Iterator[Finding]:
    elsewhere = "point TORCH_FL_CACHE at a folder of your own"
    nearest = _nearest(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        text = f"{folder} cannot be written: {nearest} belongs to {_owner(nearest)}"
        yield problem(text, f"{elsewhere}, or `sudo chown -R $USER {folder}` where it is yours")
        return
    status = os.statvfs(nearest)
    if status.f_flag & os.ST_NOEXEC:
        yield problem(
            f"{folder} lies on a file system that is mounted noexec: no bridge can be loaded there", elsewhere
        )
    free = shutil.disk_usage(nearest).free
    if free < _BRIDGE_BYTES:
        yield warning(
            f"{folder}: {free / 1e6:.0f} MB are free, compiling a bridge takes 100", f"make room, or {elsewhere}"
        )
    foreign = [path for path in sorted(folder.glob("*")) if path.is_dir() and not os.access(path, os.W_OK | os.X_OK)]
    for path in foreign:
        text = f"{path} cannot be written: it belongs to {_owner(path)}; a command was run as another user once"
        yield problem(text, f"`sudo chown -R $USER {folder}`")
    if not foreign:
        yield ok(f"{folder} can be written" if folder.exists() else f"{folder} does not exist yet and can be made")


def _settings(path: Path) -> Iterator[Finding]:
    try:
        if path.exists() and not os.access(path, os.R_OK):
            yield problem(f"{path} cannot be read: it belongs to {_owner(path)}", f"`sudo chown $USER {path}`")
    except OSError as error:
        yield problem(f"{path} cannot be reached: {error.strerror}", f"`sudo chown -R $USER {path.parent}`")


def _nearest(path: Path) -> Path:
    """The path, or the innermost folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"
