"""The function that a user names on a command line: FILE.py:FUNCTION or MODULE:FUNCTION."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_FORM = "FILE.py:FUNCTION or MODULE:FUNCTION"


class Unusable(click.ClickException):
    """What a command's user named cannot be used: one line, without the command's usage, which is right."""

    exit_code = 2


class NotFound(ValueError):
    """There is no such function, or what it stands in cannot be imported; one line that says which."""


def find(where: str) -> Callable[..., Any]:
    """The function. Its file or module is imported, not run as a script, with its neighbours in reach."""
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise NotFound(f"{where!r} names no function: write {_FORM}")
    module = _module(place)
    if not hasattr(module, name):
        raise NotFound(f"{place} has no function {name!r}")
    function = getattr(module, name)
    if not callable(function):
        raise NotFound(f"{name!r} of {place} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    """Of what the error says."""
    lines = str(error).splitlines()
    return lines[0] if lines else "it does not say why"


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, "")  # modules of this folder, as `python -m` has it
        return _imported(place, lambda: importlib.import_module(place))
    file = Path(place)
    if not file.is_file():
        raise NotFound(f"{place}: no such file")
    sys.path.insert(0, str(file.resolve().parent))  # its neighbours, as `python FILE` has it
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    loader = spec.loader
    return _imported(place, lambda: loader.exec_module(module)) or module


def _imported(place: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise NotFound(f"{place} cannot be imported: {type(error).__name__}: {first_line(error)}") from error
