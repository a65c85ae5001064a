"""The folder in which a document's commands run: a checkout after `make certify`, as far as documents look at it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from torch_fl_reports.closed_set import closed_set
from torch_fl_reports.declared import Declarations
from torch_fl_reports.registry import instant_text
from torch_fl_reports.writer import write_report
from torch_fl_spec.describe_process import describe
from torch_fl_spec.kits import resolve

from tests.reports import honest

ROOT = Path(__file__).parents[2]
_LINKED = ("SPEC.md", "ci", "conformance", "docs", "runtime", "spec", "vendor_kits")


def lay_out(folder: Path) -> None:
    """The checkout's rooms in `folder`, the example as a copy of its own."""
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("build"))


def prepare(folder: Path) -> None:
    """The same and a report of the reference vendor.

    The report is written from rows that are assumed to pass, not from a run, which other tests do: documents
    only hand it in.
    """
    lay_out(folder)
    run = _run_of_the_reference()
    declared = Declarations.model_validate(run["declarations"])
    draw = random.Random(1)
    rows = [honest.row(expected, draw) for expected in closed_set("core", declared)]
    write_report(run, rows, folder / "torch-fl-report" / "reference")


def _run_of_the_reference() -> dict[str, Any]:
    kit = resolve("reference")
    library = kit.ensure_built()
    described = describe(library, kit.option_string)
    now = datetime.now(timezone.utc)
    data = library.read_bytes()
    run = honest.run_data()
    run["subject"] = {
        "vendor": described["name"],
        "version": described["version"],
        "files": [{"name": library.name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}],
    }
    run["abi"] |= {"header_id": described["header_id"], "table_hash": described["table_hash"]}
    run["run"] |= {"start": instant_text(now - timedelta(minutes=1)), "end": instant_text(now), "seconds": 60.0}
    run["declarations"] = {key: described[key] for key in ("devices", "kernels", "extensions")}
    return run


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command in the folder, with this environment's tools first; stderr is part of stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COLUMNS"))}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
