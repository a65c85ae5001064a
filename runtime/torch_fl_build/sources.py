"""What the bridge is compiled from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import BridgeUnavailable
from .units import LIST

_SUFFIXES = (".cpp", ".h", LIST)


@dataclass(frozen=True)
class Sources:
    """A folder of C++ sources and headers, the include folder with torch_fl/plugin.h, and the module they make."""

    folder: Path
    include: Path
    module: str = "_bridge"

    def read(self) -> dict[str, bytes]:
        """Content by path: `src/core/error.cpp`, `include/torch_fl/plugin.h`; sorted. Raises BridgeUnavailable."""
        try:
            found = {f"src/{name}": path for name, path in _walk(self.folder)}
            headers = self.include / "torch_fl"
            found.update({f"include/torch_fl/{path.name}": path for path in headers.glob("*.h")})
            return {name: path.read_bytes() for name, path in sorted(found.items())}
        except OSError as error:
            raise BridgeUnavailable(f"the bridge's sources are incomplete: {error}; install torch-fl again") from None


def _walk(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.name.endswith(_SUFFIXES):
                yield f"{prefix}{entry.name}", Path(entry.path)


def bridge() -> Sources:
    """The sources of torch_fl's own bridge, in a checkout or an installation."""
    import torch_fl_spec

    package = Path(__file__).parent.with_name("torch_fl")
    return Sources(package / "bridge", Path(torch_fl_spec.__file__).parent / "include")


def digest(files: dict[str, bytes], *facts: str) -> str:
    """Names content and facts together: 32 hex digits of their sha256."""
    state = hashlib.sha256(repr(facts).encode())
    for name, content in files.items():
        state.update(f"\0{name}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()[:32]
