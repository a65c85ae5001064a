"""What a report says besides its rows: subject, interface, suite, run and environment."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_fl_spec import INTERFACE, __version__
from torch_fl_spec.registry import load_registry
from torch_fl_spec.suite_digest import suite_digest

from torch_fl_conformance.settings import RunSettings


def run_metadata(
    settings: RunSettings,
    *,
    began: float,
    ended: float,
    workers: int,
    partial: bool,
    interrupted: bool,
    exit_code: int,
    arguments: Sequence[str],
) -> dict[str, Any]:
    """The report's parts but its rows. began, ended: seconds since the epoch. arguments: pytest's."""
    described = settings.description
    return {
        "interface": INTERFACE,
        "subject": {
            "vendor": str(described["name"]),
            "version": str(described["version"]),
            "files": [file_facts(Path(settings.driver.library))],
            "libraries": [dict(library) for library in settings.libraries],
        },
        "abi": {key: described[key] for key in ("header_id", "minor", "table_hash")},
        "suite": {
            "version": __version__,
            "source_digest": suite_digest(),
            "registry_digest": load_registry().digest,
        },
        "run": {
            "seed": settings.seed,
            "effort": settings.effort.name,
            "profile": settings.profile,
            "start": instant(began),
            "end": instant(ended),
            "workers": workers,
            "partial": partial,
            "interrupted": interrupted,
            "in_process": settings.in_process,
            "exit": exit_code,
            "seconds": round(ended - began, 3),
            "command": shlex.join(["pytest", *arguments]),
            "options": dict(settings.options),
        },
        "environment": environment(settings.driver.pass_env),
        "declarations": {key: described[key] for key in ("devices", "kernels", "extensions")},
    }


def trial_metadata(settings: RunSettings) -> dict[str, Any]:
    """The same for a run that has not begun, to see whether it can be reported at all."""
    return run_metadata(
        settings, began=0.0, ended=0.0, workers=1, partial=True, interrupted=False, exit_code=1, arguments=()
    )


def environment(pass_env: Sequence[str]) -> dict[str, Any]:
    """The machine and the software that judged; the kit's variables with their values."""
    return {
        "os": _os_name(),
        "kernel": platform.release(),
        "cpu": _cpu_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "env": {name: os.environ[name] for name in pass_env if name in os.environ},
    }


def file_facts(path: Path) -> dict[str, Any]:
    """Name, sha256 and size in bytes of a file."""
    content = path.read_bytes()
    return {"name": path.name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def library_facts(before: set[str], after: set[str], ours: Sequence[Path], plugin: Path) -> list[dict[str, str]]:
    """Path and sha256 of the shared libraries that came into the driver with the plugin.

    before, after: files mapped ahead of loading and once the devices are open. ours: folders whose libraries
    belong to the suite and to Python.
    """
    facts = []
    for name in sorted(after - before):
        path = Path(name)
        if path == plugin or ".so" not in path.name or not path.is_file():
            continue
        if not any(path.is_relative_to(folder) for folder in ours):
            facts.append({"path": name, "sha256": file_facts(path)["sha256"]})
    return facts


def instant(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def python_folders() -> list[Path]:
    """Where Python and its packages keep their own libraries."""
    return [Path(folder).resolve() for folder in {sys.prefix, sys.base_prefix + "/lib/python3"} if folder]


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith(("model name", "Model name")):
            return line.partition(":")[2].strip()
    return platform.machine()
