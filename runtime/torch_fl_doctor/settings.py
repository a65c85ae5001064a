"""The configuration: what holds and where it came from, and what looks like a setting and is none."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text
from torch_fl_spec.printable import printable

from .finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from torch_fl.config import Loaded, Setting

#: Variables that are read elsewhere than in the configuration.
_OTHERS = ("TORCH_FL_CONFIG", "TORCH_FL_CACHE", "TORCH_FL_AUTOLOAD", "TORCH_FL_CUDA_COMPAT")


def table(settings: tuple[Setting, ...]) -> Table:
    """Every value and its source."""
    made = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from"):
        made.add_column(heading, overflow="fold")
    for setting in settings:
        made.add_row(*(Text(printable(cell)) for cell in (setting.key, shown(setting.value), setting.source)))
    return made


def shown(value: Any) -> str:
    """As the file would have it."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)


def file_line() -> str:
    """Which file was looked for, and whether it is there; never raises."""
    from torch_fl import config

    path = config.file()
    if path is None:
        return "no file: there is no home directory, and TORCH_FL_CONFIG is not set"
    named = "TORCH_FL_CONFIG names it" if os.environ.get("TORCH_FL_CONFIG") else "TORCH_FL_CONFIG can name another"
    try:
        there = path.is_file()
    except OSError as error:
        return f"{path}: {error.strerror} ({named})"
    return f"{path} ({named})" if there else f"{path}: not there ({named})"


def load() -> tuple[Loaded, list[str]]:
    """What holds, and what is wrong, a line each; with something wrong the defaults."""
    from torch_fl import config

    try:
        return config.load(), []
    except config.ConfigError as error:
        return config.Loaded(config.Config()), str(error).splitlines()


def check(loaded: Loaded, wrong: list[str]) -> Iterator[Finding]:
    """wrong: as `load` has it."""
    from torch_fl import config

    yield ok(f"file: {file_line()}")
    for line in wrong:
        yield problem(line, "until it is right, the first use of a device raises this; above, the defaults were used")
    set_here = [setting for setting in loaded.settings() if setting.source != "default"]
    for setting in set_here:
        yield ok(f"{setting.key}: {shown(setting.value)} ({setting.source})")
    if not set_here and not wrong:
        yield ok("nothing is set: the defaults hold")
    yield from _unread_file(config.file() if loaded.file is None else None)
    known = {*config.ENVIRONMENT, *_OTHERS}
    for name in sorted(name for name in os.environ if name.startswith("TORCH_FL_") and name not in known):
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}?" if near else f"those that are: {', '.join(sorted(known))}"
        yield warning(f"{name} is set, and nothing reads it", meant)


def _unread_file(expected: Any) -> Iterator[Finding]:
    """A file beside the one that is looked for, under a name that is easily mistaken for it."""
    if expected is None or not os.access(expected.parent, os.R_OK | os.X_OK):
        return
    for path in sorted({*expected.parent.glob("*.yml"), *expected.parent.glob("*.yaml")} - {expected}):
        yield warning(
            f"{path} is there, and is not read", f"rename it to {expected.name}, or set TORCH_FL_CONFIG={path}"
        )
