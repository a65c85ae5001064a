"""Compiles the little plugins of tests/spec/plugins, each once per test session."""

from __future__ import annotations

import subprocess
from pathlib import Path

from torch_fl_spec import abi

SOURCES = Path(__file__).parent / "plugins"
_FLAGS = ["-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


class PluginBuilder:
    """`builder("good")` is the path of good.c's library."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> Path:
        library = self._folder / f"{name}.so"
        if not library.exists():
            source = SOURCES / f"{name}.c"
            subprocess.run(["cc", *_FLAGS, f"-I{abi.INCLUDE_DIR}", "-o", library, source], check=True)
        return library
