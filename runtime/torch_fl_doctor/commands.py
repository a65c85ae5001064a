"""`torch-fl doctor` and `torch-fl config`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from torch_fl_spec.printable import printable

from . import bridgeless, folders, installation, log_file, nodes, settings
from .finding import Finding, guarded, show, warning
from .vendors import Vendors

_WIDE = 10_000  # characters


def _console() -> Console:
    """For texts of others, which are no markup; in a file or a pipe no line is folded."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


@click.command()
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a vendor's driver, or torch, may take over one step.",
)
def doctor(patience: float) -> None:
    """Say why a device is missing, and what to do: driver, permissions, configuration, log.

    Looks at every vendor in a process of its own, so that a driver that hangs or crashes is a line here. Compiles no
    bridge. Exit: 0, 1 where there is a problem.
    """
    bridgeless.prepare()
    console = _console()
    loaded, wrong = settings.load()
    vendors = Vendors(loaded, patience)
    sections: dict[str, Callable[[], Iterable[Finding]]] = {
        "installation": lambda: installation.check(patience),
        "driver": vendors.check,
        "permission": lambda: _permissions(vendors),
        "configuration": lambda: settings.check(loaded, wrong),
        "log": lambda: log_file.check(loaded.config.logging),
    }
    found: list[Finding] = []
    for name, check in sections.items():
        console.print(name, style="bold")
        with console.status("asking"):
            for finding in guarded(check):
                found.append(finding)
                show(console, finding)
    counts = {state: sum(finding.state == state for finding in found) for state in ("problem", "warning")}
    console.print(f"problems: {counts['problem']}, warnings: {counts['warning']}", style="bold")
    sys.exit(1 if counts["problem"] else 0)


def _permissions(vendors: Vendors) -> Iterator[Finding]:
    from torch_fl import config

    yield from nodes.check(vendors.used, nodes.existing(nodes.KNOWN))
    for word, patterns in vendors.absent.items():
        yield warning(
            f"{word}'s libraries name {', '.join(patterns)}, and there is no such file",
            "is the kernel driver loaded (lsmod, dmesg)? A container has to be started with the card's device files",
        )
    yield from folders.check(config.file())


@click.group(name="config")
def configuration() -> None:
    """Look at the configuration that programs go by."""


@configuration.command(name="show")
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def show_settings(as_json: bool) -> None:
    """Show every value in force, and the line or variable that it came from.

    Exit: 0, 2 where the configuration is wrong.
    """
    bridgeless.prepare()
    loaded, wrong = settings.load()
    if wrong:
        _refuse(wrong)
    if as_json:
        from torch_fl import config

        values = [{"key": each.key, "value": each.value, "source": each.source} for each in loaded.settings()]
        path = config.file()
        file = {"path": None if path is None else os.fspath(path), "read": loaded.file is not None}
        click.echo(json.dumps({"file": file, "settings": values}, indent=2))
        return
    console = _console()
    console.print(f"file: {printable(settings.file_line())}")
    console.print(settings.table(loaded.settings()))


@configuration.command(name="check")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def check_file(file: Path) -> None:
    """Say whether FILE is a right configuration, whatever the environment says besides.

    Exit: 0, 2 where it is wrong.
    """
    bridgeless.prepare()
    from torch_fl.config import ConfigError
    from torch_fl.config_file import read

    try:
        read(file, {})
    except ConfigError as error:
        _refuse(str(error).splitlines())
    click.echo(f"{file}: nothing wrong")


def _refuse(lines: Iterable[str]) -> NoReturn:
    for line in lines:
        click.echo(printable(line), err=True)
    sys.exit(2)
