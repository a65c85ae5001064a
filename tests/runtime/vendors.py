"""Vendors for discovery's tests: kits around plugins/vendor.c, and what installed packages would announce."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torch_fl_spec import abi, bundled, kits

BUNDLED = {"reference": bundled.reference(), "reference_inline": bundled.reference_inline()}
HERE = Path(__file__).parent
_FLAGS = ["-std=gnu11", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
_INCLUDES = [f"-I{abi.INCLUDE_DIR}", f"-I{HERE.parent / 'spec' / 'plugins'}"]


@dataclass
class Point:
    """An entry point that gives a folder, or raises."""

    name: str
    folder: Path | Exception
    value: str = "some_package:folder"

    def load(self) -> Point:
        """The function that it names."""
        return self

    def __call__(self) -> Path:
        if isinstance(self.folder, Exception):
            raise self.folder
        return self.folder


@dataclass
class Vendors:
    """Makes kits below `folder` and installs them, as far as kits.py can see."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    points: dict[str, Point] = field(default_factory=dict)

    def kit(self, name: str, options: Mapping[str, str] | None = None, **defines: object) -> Path:
        """A kit folder with a built library; defines: of plugins/vendor.c, VENDOR is the name unless given."""
        folder = self.folder / name
        folder.mkdir()
        library = folder / f"lib{name}.so"
        values = {"VENDOR": f'"{name}"', **defines}
        command = ["cc", *_FLAGS, *_INCLUDES, *(f"-D{key}={value}" for key, value in values.items())]
        subprocess.run([*command, "-o", library, HERE / "plugins" / "vendor.c"], check=True)
        lines = [f'name = "{name}"', f'library = "{library.name}"', "[options]"]
        lines += [f'{key} = "{value}"' for key, value in (options or {}).items()]
        (folder / "vendor.toml").write_text("\n".join(lines))
        return folder

    def install(self, *names: str) -> None:
        """Announce kits of these names, in this order, and no others; the two bundled ones are known, too."""
        for name in names:
            if name in BUNDLED and not (self.folder / name).exists():
                self._copy(BUNDLED[name])
        self.announce(*(Point(name, self.folder / name) for name in names))

    def _copy(self, original: Path) -> None:
        """A kit like a bundled one around a copy of its library.

        Another file is another plugin, with devices of its own that nobody in this process has opened.
        """
        kit = kits.read(original)
        folder = self.folder / kit.name
        folder.mkdir()
        (folder / "vendor.toml").write_text(
            f'name = "{kit.name}"\nlibrary = "{kit.library.name}"\nbuild = ["true"]\nsources = ["vendor.toml"]\n'
        )
        shutil.copy(kit.ensure_built(), folder)

    def announce(self, *points: Point) -> None:
        """The same with entry points of any kind."""
        self.points = {point.name: point for point in points}
        self.monkeypatch.setattr(kits, "_entry_points", lambda: self.points)
