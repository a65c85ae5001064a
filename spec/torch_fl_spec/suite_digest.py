"""The digest of the suite's own sources: which judge gave a verdict, and by which rules.

The three packages that decide (specification, reports, suite) are found without importing them, so a gate
computes the digest of its installation without torch. A wheel and a checkout of the same sources give the
same digest: what only one of them carries is left out.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("torch_fl_conformance", "torch_fl_reports", "torch_fl_spec")
_SUFFIXES = frozenset({".c", ".css", ".h", ".j2", ".json", ".py", ".yaml"})
# Compiled from the YAML beside it; copies of kits and SDK headers exist in wheels only.
_LEFT_OUT = ("torch_fl_spec/operators.json", "torch_fl_spec/bundled_kits/", "torch_fl_spec/include/torch_fl/sdk/")


@functools.lru_cache(maxsize=1)
def suite_digest() -> str:
    """sha256 (hex) over "<sha256 of file>  <package/relative path>" lines of every source, sorted by path.

    Computed once per process: the sources that were there when somebody first asked.
    Raises FileNotFoundError when one of the packages is not installed.
    """
    lines = sorted((name, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in _sources())
    text = "".join(f"{digest}  {name}\n" for name, digest in lines)
    return hashlib.sha256(text.encode()).hexdigest()


def _sources() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        root = _folder(package)
        for path in root.rglob("*"):
            name = f"{package}/{path.relative_to(root).as_posix()}"
            if path.suffix in _SUFFIXES and path.is_file() and not name.startswith(_LEFT_OUT):
                yield name, path


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"package {package} is not installed, so the suite has no digest")
    return Path(spec.origin).parent
