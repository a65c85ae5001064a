"""Builds the reference vendor with edits: only the units that an edit reaches are compiled, the rest is linked again.

Libraries are cached by the content of everything that goes into them, so any number of processes may ask at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock
from torch_fl_spec import abi, kits

from .corpus import REFERENCE, ROOT, Edit

_FOLDERS = ("runtime/reference", "vendor_kits/sdk/include", "spec/torch_fl_spec/include")
_SOURCES = ("*.c", "*.h", "*.inc", "Makefile", "plugin.map", "*.o", "*.d")


class BuildFailed(Exception):
    """The compiler's own words."""


def build(
    edits: Sequence[Edit] = (),
    *,
    personality: str = "reference",
    flags: Sequence[str] = (),
    recompile: Sequence[str] = (),
    units: Sequence[str] = (),
    sources: Mapping[str, Path] | None = None,
) -> Path:
    """The library of the edited reference vendor; raises StaleEdit or BuildFailed.

    flags: for the units that are compiled. recompile: patterns of sources to be compiled though no edit reaches
    them. units: patterns of the sources that are compiled anew where a header is edited; the others keep it as it
    was. sources: further sources by the name they get, which may be that of one they take the place of.
    """
    texts = _edited(edits)
    name = f"libfl_{personality}.so"
    extra = [*flags, *recompile, "units", *units, name, *_texts(sources or {})]
    folder = abi.cache_dir() / "twins" / _digest(texts, extra)
    library = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not library.exists():
            _make(library, texts, flags, recompile, units, sources or {})
    return library


def _edited(edits: Iterable[Edit]) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for edit in edits:
        path = edit.path
        texts[path] = edit.applied_to(texts.get(path) or path.read_text(encoding="utf-8"))
    return texts


def _digest(texts: dict[Path, str], extra: Sequence[str]) -> str:
    digest = hashlib.sha256(_source_digest().encode())
    for path, text in sorted(texts.items()):
        digest.update(f"{path.relative_to(ROOT)}\0{text}\0".encode())
    digest.update("\0".join(extra).encode())
    return digest.hexdigest()[:24]


def _texts(sources: Mapping[str, Path]) -> list[str]:
    read = [path for source in sources.values() for path in (source, *sorted(source.parent.glob("*.h")))]
    return [*sources, *(path.read_text(encoding="utf-8") for path in read)]


@functools.cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".inc", ".map") or path.name == "Makefile":
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _make(
    library: Path,
    texts: dict[Path, str],
    flags: Sequence[str],
    recompile: Sequence[str],
    units: Sequence[str],
    sources: Mapping[str, Path],
) -> None:
    kits.resolve("reference").ensure_built()
    with tempfile.TemporaryDirectory(prefix="torch-fl-twin-") as temporary:
        copy = Path(temporary)
        for folder in _FOLDERS:
            shutil.copytree(ROOT / folder, copy / folder, ignore=_ignored)
        reference = copy / REFERENCE.relative_to(ROOT)
        for path, text in texts.items():
            (copy / path.relative_to(ROOT)).write_text(text, encoding="utf-8")
            _forget_objects(reference, path, units)
        for pattern in recompile:
            for source in reference.glob(pattern):
                _object_of(reference, source).unlink(missing_ok=True)
        for name, path in sources.items():
            shutil.copy(path, reference / name)
            _object_of(reference, reference / name).unlink(missing_ok=True)
            for header in path.parent.glob("*.h"):
                shutil.copy(header, reference)
        _run_make(reference, library.name, flags)
        built = reference / "build" / library.name
        subprocess.run(["strip", "--strip-debug", built], check=True)
        fresh = library.with_suffix(".new")
        shutil.copy(built, fresh)
        fresh.rename(library)


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Leave out what the build doesn't need: sanitized objects, libraries, Python."""
    kept = {name for pattern in _SOURCES for name in names if Path(name).match(pattern)}
    inner = {"build", "kernels", "torch_fl", "sdk"}
    return {name for name in names if name not in kept and name not in inner}


def _object_of(reference: Path, source: Path) -> Path:
    return (reference / "build" / source.relative_to(reference)).with_suffix(".o")


def _forget_objects(reference: Path, edited: Path, units: Sequence[str]) -> None:
    """Remove the objects of the units that read the edited file, and make the others look newer than it."""
    for rules in (reference / "build").rglob("*.d"):
        words = rules.read_text(encoding="utf-8").replace(":", " ").split()
        source = rules.relative_to(reference / "build").with_suffix(".c")
        if not any(Path(word).name == edited.name for word in words):
            continue
        if not units or any(source.match(pattern) and source.parent == Path(pattern).parent for pattern in units):
            rules.with_suffix(".o").unlink(missing_ok=True)
        else:
            os.utime(rules.with_suffix(".o"))


def _run_make(reference: Path, target: str, flags: Sequence[str]) -> None:
    includes = [reference.parents[1] / folder for folder in _FOLDERS[1:]]
    # -w: a defect may leave something unused; debug information would fill the cache.
    options = " ".join(["-w", "-g0", *flags])
    command = ["make", "-s", "-C", str(reference), f"SANITIZE={options}", f"build/{target}"]
    environment = {**os.environ, "FL_INCLUDE": ":".join(map(str, includes))}
    environment.pop("MAKEFLAGS", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
