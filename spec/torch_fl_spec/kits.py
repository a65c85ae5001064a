"""Vendor kits: find one by name, folder or library, read its vendor.toml, and build it when it is stale.

    kit = resolve("reference")     # entry point of group torch_fl.vendors, kit folder, or a .so
    library = kit.ensure_built()

Every failure is a KitError: one line that says what to do, or the compiler's own words.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from . import kit_build

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

GROUP = "torch_fl.vendors"
MANIFEST = "vendor.toml"

_KEYS = ("name", "library", "build", "sources", "env", "options")

KitError = kit_build.KitError


@dataclass(frozen=True)
class Kit:
    """A vendor's plugin and how to make it.

    folder: where build commands run. library: absolute path, which need not exist before `ensure_built`.
    build: commands, argv lists or shell strings. sources: glob patterns relative to the folder.
    env: names of variables that the driver passes on. options: device_open's.
    """

    name: str
    folder: Path
    library: Path
    build: tuple[tuple[str, ...] | str, ...] = ()
    sources: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def option_string(self) -> str:
        """ "key=value;key=value" for device_open; "" for none."""
        return ";".join(f"{key}={value}" for key, value in self.options.items())

    def ensure_built(self, announce: Callable[[str], None] | None = None) -> Path:
        """The library, built first where it is older than its sources; raises KitError.

        announce: gets each build command as one line before it runs; by default it is shown on stderr.
        """
        return kit_build.ensure_built(self, announce)


def resolve(vendor: str | Path) -> Kit:
    """The kit that a user's word means: a vendor name, a kit folder, or a plugin's .so; raises KitError."""
    text = os.fspath(vendor)
    known = _entry_points()
    if os.sep not in text and text in known:
        return read(_folder_of(known[text]))
    path = Path(text)
    try:
        if path.is_dir():
            return read(path)
        found = path.is_file()
    except OSError as error:  # a name that no file system takes
        raise KitError(f"{text[:80]}: {error.strerror}") from None
    if found:
        name = re.sub(r"[^a-z0-9_]", "_", path.name.split(".")[0].removeprefix("lib").lower())
        return Kit(name=name, folder=path.resolve().parent, library=path.resolve())
    names = ", ".join(sorted(known)) or "none is installed"
    raise KitError(f"{text}: no such vendor, kit folder or library; vendor names: {names}")


def installed() -> list[str]:
    """Names of the vendors whose kits are installed, sorted."""
    return sorted(_entry_points())


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def _folder_of(point: metadata.EntryPoint) -> Path:
    try:
        return Path(point.load()())
    except Exception as error:  # whatever a vendor's package raises becomes one line
        raise KitError(f"vendor {point.name!r}: {point.value} failed with {type(error).__name__}: {error}") from None


def read(folder: Path) -> Kit:
    """The kit of a folder; raises KitError naming file, key and what is allowed."""
    folder = folder.resolve()
    path = folder / MANIFEST
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KitError(f"{folder} is no vendor kit: it has no {MANIFEST}") from None
    except OSError as error:
        raise KitError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KitError(f"{path}: {error}") from None
    manifest = _Manifest(path, data)
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise manifest.problem(unknown[0], f"unknown key; allowed: {', '.join(_KEYS)}")
    name = manifest.string("name")
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise manifest.problem("name", f"{name!r}; allowed: lower-case letters, digits and _")
    return Kit(
        name=name,
        folder=folder,
        library=Path(os.path.normpath(folder / manifest.string("library"))),
        build=manifest.commands("build"),
        sources=manifest.patterns("sources"),
        env=manifest.strings("env"),
        options=manifest.options("options"),
    )


class _Manifest:
    """Typed reading of a vendor.toml."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self._path = path
        self._data = data
        for key, value in data.items():
            if _holds_nul(value):
                raise self.problem(key, "a NUL character, which neither a path nor a command can hold")

    def problem(self, key: str, text: str) -> KitError:
        return KitError(f"{self._path}: {key}: {text}")

    def string(self, key: str) -> str:
        value = self._data.get(key)
        if not isinstance(value, str) or not value:
            raise self.problem(key, "missing" if value is None else "a non-empty string is needed")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.problem(key, "a list of strings is needed")
        return tuple(value)

    def patterns(self, key: str) -> tuple[str, ...]:
        """Glob patterns below the folder, or beside it with leading ../."""
        patterns = self.strings(key)
        for pattern in patterns:
            try:
                next(Path().glob(re.sub(r"^(\.\./)+", "", pattern)), None)
            except (ValueError, NotImplementedError) as error:
                raise self.problem(key, f"{pattern!r} is no pattern relative to the folder: {error}") from None
        return patterns

    def commands(self, key: str) -> tuple[tuple[str, ...] | str, ...]:
        value = self._data.get(key, [])
        if not isinstance(value, list):
            raise self.problem(key, 'a list of commands is needed, each a string or a list ["make", "-s"]')
        commands: list[tuple[str, ...] | str] = []
        for command in value:
            if isinstance(command, str):
                commands.append(command)
            elif isinstance(command, list) and command and all(isinstance(word, str) for word in command):
                commands.append(tuple(command))
            else:
                raise self.problem(key, f"{command!r} is neither a string nor a list of strings")
        return tuple(commands)

    def options(self, key: str) -> dict[str, str]:
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            raise self.problem(key, "a table of strings is needed")
        for option, setting in value.items():
            if not isinstance(setting, str):
                raise self.problem(f"{key}.{option}", "a string is needed")
            if re.search(r"[;=]", option) or ";" in setting:
                raise self.problem(f"{key}.{option}", "';' and '=' separate options and cannot be part of one")
        return dict(value)


def _holds_nul(value: Any) -> bool:
    """Whether a NUL hides in a value of TOML; C ends a string there, and the system calls refuse it."""
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(entry) for key, entry in value.items())
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value
