"""Builds the bridge, unless it is built: `ensure` is what both `import torch_fl` and `torch-fl build` come to."""

from __future__ import annotations

import errno
import os
import shutil
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from . import BridgeUnavailable, cache, compiler
from .lock import builders_lock
from .ninja_build import CompilationFailed, NinjaBuild
from .progress import Progress
from .sources import Sources, digest

#: Built modules, and folders of objects, that are kept; a machine may hold several torch versions and checkouts.
_KEEP_MODULES = 8
_KEEP_WORK = 3


@dataclass(frozen=True)
class Built:
    """A module that can be loaded; seconds is None where it stood already."""

    path: Path
    seconds: float | None


def ensure(sources: Sources, *, force: bool = False, into: Path | None = None) -> Built:
    """The bridge for the torch that is installed, built if need be; raises BridgeUnavailable.

    force: compiles everything anew. into: the folder of the module instead of the cache; made if need be.
    """
    files = sources.read()
    identity = cache.identity(files)
    found = None if into else cache.find(sources, identity)
    if found and not force:
        return Built(found, None)
    why_not = obstacle()
    if why_not:
        raise BridgeUnavailable(why_not)
    using = compiler.find()
    assert using is not None
    target = (into or cache.root()) / cache.file_name(sources, identity, using.fingerprint)
    try:
        return _build_locked(sources, files, using, target, force)
    except OSError as error:
        raise BridgeUnavailable(_no_room(error, target.parent)) from None


def obstacle() -> str | None:
    """Why no bridge can be compiled on this machine, and what to do; None where nothing is known to be in the way."""
    if compiler.find() is None:
        return _no_compiler(compiler.missing())
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return _no_compiler("Python's own headers are missing (Debian: apt-get install python3-dev)")
    return None


def _build_locked(
    sources: Sources, files: dict[str, bytes], using: compiler.Compiler, target: Path, force: bool
) -> Built:
    progress = Progress()
    root = cache.root()
    for folder in {root, target.parent}:
        folder.mkdir(parents=True, exist_ok=True)
    with builders_lock(root / "lock", progress) as descriptor:
        if target.exists() and not force:  # another process has built it meanwhile
            return Built(target, None)
        begin = time.monotonic()
        work = root / f"work-{_work_key(sources, using)}"
        if force and work.exists():
            shutil.rmtree(work)
        run = NinjaBuild(sources, files, using, work, progress)
        progress.say(f"compiling the bridge to {run.torch_name} with {' '.join(using.words)}, {run.units} units, once")
        try:
            module = run.run(keep_open=descriptor)
        except CompilationFailed as failure:
            raise BridgeUnavailable(_failed(failure)) from None
        _publish(module, run.log, target)
        seconds = time.monotonic() - begin
        progress.say(f"compiled in {seconds:.1f} s: {target}")
        _prune(root)
    return Built(target, seconds)


def _work_key(sources: Sources, using: compiler.Compiler) -> str:
    """Objects can be used again, also by another checkout, for the same torch, Python, flags and compiler."""
    import torch

    return digest({}, torch.__file__, sources.module, cache.identity({}), using.fingerprint)[:16]


def _publish(module: Path, log: Path, target: Path) -> None:
    """Whoever looks sees the whole module or none, also where power fails."""
    for source, place in ((log, target.with_name(f"{target.name}.log")), (module, target)):
        partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
        try:
            with source.open("rb") as reader, partial.open("wb") as writer:
                shutil.copyfileobj(reader, writer)
                writer.flush()
                os.fsync(writer.fileno())
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)


def _prune(root: Path) -> None:
    """Remove what killed builders left and what has not been built for longest; the caller holds the lock."""
    for path in root.glob("*.partial"):
        path.unlink()
    for path in _oldest(root, f"*{cache.SUFFIX}", _KEEP_MODULES):
        path.unlink()
        path.with_name(f"{path.name}.log").unlink(missing_ok=True)
    for path in _oldest(root, "work-*", _KEEP_WORK):
        shutil.rmtree(path)


def _oldest(root: Path, pattern: str, keep: int) -> list[Path]:
    return sorted(root.glob(pattern), key=lambda path: path.stat().st_mtime_ns, reverse=True)[keep:]


def _no_compiler(why: str) -> str:
    return (
        f"the bridge to this torch has to be compiled once, and {why}. Install one (Debian: apt-get install g++, "
        "Fedora: dnf install gcc-c++, conda: conda install gxx) or set CXX. Or build where there is one, with the same "
        "Python and torch: TORCH_FL_CACHE=folder torch-fl build; bring the folder here and set TORCH_FL_CACHE to it"
    )


def _no_room(error: OSError, folder: Path) -> str:
    text = f"cannot build the bridge in {folder}: {error.strerror} ({error.filename or folder})"
    if error.errno == errno.ENOSPC:
        return f"{text}; free some space, or point TORCH_FL_CACHE at a folder with 100 MB of it"
    return f"{text}; point TORCH_FL_CACHE at a writable folder, or run `torch-fl build` as a user who may write there"


def _failed(failure: CompilationFailed) -> str:
    hint = ""
    if "No space left on device" in failure.output:
        hint = "\nThe disk is full: free some space, or point TORCH_FL_CACHE at a folder with 100 MB of it."
    words = f"the bridge could not be compiled. The compiler's last words:\n{failure.output}"
    return f"{words}\nAll of them: {failure.log}{hint}"
