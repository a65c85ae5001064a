"""What a report says besides its rows: subject, interface, suite, run and environment."""

from __future__ import annotations

import datetime
import errno
import hashlib
import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_fl_spec import INTERFACE, __version__
from torch_fl_spec.registry import load_registry
from torch_fl_spec.suite_digest import suite_digest

from torch_fl_conformance.code_files import CodeFile
from torch_fl_conformance.settings import RunSettings


def run_metadata(
    settings: RunSettings,
    *,
    libraries: Sequence[Mapping[str, str]],
    began: float,
    ended: float,
    workers: int,
    partial: bool,
    interrupted: bool,
    exit_code: int,
    arguments: Sequence[str],
) -> dict[str, Any]:
    """The report's parts but its rows.

    libraries: path and sha256 of what the plugin brought along. began, ended: seconds since the epoch. arguments:
    pytest's.
    """
    described = settings.description
    return {
        "interface": INTERFACE,
        "subject": {
            "vendor": str(described["name"]),
            "version": str(described["version"]),
            "files": [dict(settings.plugin)],
            "libraries": [dict(library) for library in libraries],
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
        settings,
        libraries=settings.libraries,
        began=0.0,
        ended=0.0,
        workers=1,
        partial=True,
        interrupted=False,
        exit_code=1,
        arguments=(),
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
    """Name, sha256 and size in bytes of a file; raises OSError."""
    if not path.is_file() and path.exists():  # a pipe or a device, which may never end
        raise OSError(errno.EINVAL, "no regular file")
    content = path.read_bytes()
    return {"name": path.name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def library_facts(code: Iterable[CodeFile], plugin: Path) -> list[dict[str, str]]:
    """Path and sha256 of what was in drivers beside the plugin; a path occurs once for each of its contents."""
    return [{"path": path, "sha256": digest} for path, digest in sorted(code) if path != str(plugin.resolve())]


def plugin_change(settings: RunSettings, code: Iterable[CodeFile]) -> str | None:
    """How the plugin's bytes have changed since the run began, None where they have not.

    code: what was in the drivers, which also tells of a change that was taken back.
    """
    path = Path(settings.driver.library)
    judged = str(settings.plugin["sha256"])
    try:
        now = file_facts(path)["sha256"]
    except OSError as error:
        return f"{path.name} can no longer be read ({error.strerror})"
    for digest in sorted({now} | {digest for held, digest in code if held == str(path.resolve())}):
        if digest != judged:
            return f"{path.name} had sha256 {judged} when the run began, and then {digest}"
    return None


def instant(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
