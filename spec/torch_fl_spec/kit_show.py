"""`torch-fl kit show`: a kit and its plugin's declarations on a terminal."""

from __future__ import annotations

import difflib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .describe_process import describe
from .kits import Kit, KitError, resolve
from .loader import PluginRefused
from .printable import printable
from .registry import load_registry


def show(vendor: str) -> None:
    """Print; exit code 2 with one line where there is nothing to show."""
    try:
        kit = resolve(vendor)
        library = kit.ensure_built()
        described = describe(library, kit.option_string)
    except KitError as error:
        _end(str(error))
    except PluginRefused as refusal:
        _end("\n".join(f"{vendor}: {reason}" for reason in refusal.reasons))
    console = Console(highlight=False, markup=False, emoji=False)  # names come from the plugin
    console.print(_head(kit, library, described))
    console.print(_devices(described["devices"]))
    console.print(_kernels(described["kernels"]))
    for line in _unknown(described["kernels"]):
        console.print(printable(f"not in the operator registry, ignored: {line}"), soft_wrap=True)


def _end(text: str) -> Any:
    click.echo(printable(text), err=True)
    sys.exit(2)


def _head(kit: Kit, library: Path, described: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    extensions = ", ".join(f"{name} r{revision}" for name, revision in described["extensions"].items())
    for key, value in (
        ("plugin", f"{described['name']} {described['version']}"),
        ("library", str(library)),
        ("header", described["header_id"]),
        ("kernel table", described["table_hash"]),
        ("extensions", extensions or "none"),
        ("options", kit.option_string or "none"),
    ):
        table.add_row(Text(key, style="bold"), printable(value))
    return table


def _devices(devices: list[dict[str, Any]]) -> Table:
    table = Table(title="Devices", title_justify="left")
    ordered = any(device["priority_greatest"] != device["priority_least"] for device in devices)
    headings = ["#", "name", "streams", "addresses", "memory", "alignment", *(["priorities"] if ordered else [])]
    for heading in headings:
        table.add_column(heading)
    for device in devices:
        priorities = f"{device['priority_greatest']} to {device['priority_least']}"
        independent = "independent" if device["independent_streams"] else "dependent"
        table.add_row(
            str(device["index"]),
            printable(device["name"] or "unnamed"),
            f"{device['execution_model']}, {independent}",
            device["address_model"],
            f"{device['total_bytes'] / 2**30:.2f} GiB",
            f"{device['alloc_align']} to {device['max_align']}",
            *([priorities] if ordered else []),
        )
    return table


def _kernels(tables: list[list[dict[str, Any]]]) -> Table:
    table = Table(title="Kernels", title_justify="left")
    for heading in ("operator", "variant", "tier", "dtypes", "devices"):
        table.add_column(heading)
    owners: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for index, kernels in enumerate(tables):
        for kernel in kernels:
            dtypes = " ".join(",".join(row["dtypes"]) for row in kernel["rows"])
            key = (f"{printable(kernel['op'])} r{kernel['revision']}", kernel["variant"], kernel["tier"], dtypes)
            owners[key].append(index)
    for key, devices in sorted(owners.items()):
        table.add_row(*key, " ".join(map(str, devices)))
    return table


def _unknown(tables: list[list[dict[str, Any]]]) -> Iterator[str]:
    """What the tables claim of operators, revisions and dtype rows that no run judges."""
    registry = load_registry()
    revisions = defaultdict(list)
    for name, revision in registry.operators:
        revisions[name].append(f"r{revision}")
    claimed = {
        (kernel["op"], kernel["revision"], tuple(row["dtypes"]))
        for kernels in tables
        for kernel in kernels
        for row in kernel["rows"]
    }
    for op, revision in sorted({(op, revision) for op, revision, _ in claimed}):
        operator = registry.get(op, revision)
        if operator is None:
            near = revisions.get(op) or difflib.get_close_matches(op, revisions, 1, 0.7)
            yield f"{op} r{revision}" + (f" ({near[0]}?)" if near else "")
            continue
        rows = sorted(row for name, number, row in claimed if (name, number) == (op, revision))
        yield from (f"{op} r{revision} in {','.join(row)}" for row in rows if row not in operator.rows)
