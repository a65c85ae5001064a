"""Where a built bridge lies, and whether it is the right one.

A module's file name carries two keys. Its identity says what it is: sources, flags, torch, Python. The second is the
fingerprint of the compiler that made it. Where sources were edited, or another torch is installed, the identity is
another one and nothing is found: a stale module cannot be loaded. Content is hashed rather than times compared: it
costs a few milliseconds, and times lie after `cp -p`, `rsync -t` and `pip install`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from torch_fl_spec.cache import cache_dir

from . import compiler
from .sources import Sources, digest

#: `.cpython-311-x86_64-linux-gnu.so`: interpreter, ABI and machine.
SUFFIX = EXTENSION_SUFFIXES[0]

#: Part of a wheel that brings its bridge along; `torch-fl build --into` fills it.
PREBUILT = Path(__file__).parent.with_name("torch_fl") / "prebuilt"


def root() -> Path:
    """The folder of built bridges; it need not exist."""
    return cache_dir() / "bridge"


def identity(files: dict[str, bytes]) -> str:
    """Names a bridge by all that it depends on, but for who compiled it."""
    import torch

    return digest(files, *compiler.FLAGS, str(torch.__version__), str(torch.version.git_version), SUFFIX)


def file_name(sources: Sources, identity: str, fingerprint: str) -> str:
    """The name of a module's file."""
    return f"{sources.module}-{identity}-{fingerprint}{SUFFIX}"


def find(sources: Sources, identity: str) -> Path | None:
    """A module of this identity that came with the package, else one of this compiler (of any, if there is none)."""
    prebuilt = next(_of_any_compiler(PREBUILT, sources, identity), None)
    if prebuilt:
        return prebuilt
    using = compiler.find()
    if using is None:
        return next(_of_any_compiler(root(), sources, identity), None)
    path = root() / file_name(sources, identity, using.fingerprint)
    return path if path.exists() else None


def _of_any_compiler(folder: Path, sources: Sources, identity: str) -> Iterator[Path]:
    return iter(sorted(folder.glob(file_name(sources, identity, "*"))))
