"""`torch-fl config`: what holds and why, as a table and for programs; what is wrong, and exit 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch_fl import config
from torch_fl_doctor.commands import configuration

from . import settings_file

pytestmark = pytest.mark.usefixtures("home")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(configuration, arguments)


def rows(result: Result) -> dict[str, list[str]]:
    """Setting -> [value, source]."""
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()[2:]]
    return {key: [value, source.strip()] for key, value, source in lines}


def test_values_and_where_they_come_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings_file.write(home, "devices:\n  - type: acme\n    count: 2\nfallback: {on_fallback: error}\n")
    monkeypatch.setenv("TORCH_FL_PRECISION", "fast")
    result = run("show")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"file: {path} (TORCH_FL_CONFIG can name another)"
    shown = rows(result)
    assert shown["devices.0.type"] == ["acme", f"{path}:2"]
    assert shown["devices.0.count"] == ["2", f"{path}:3"]
    assert shown["fallback.on_fallback"] == ["error", f"{path}:4"]
    assert shown["fallback.enable_cpu_fallback"] == ["true", "default"]
    assert shown["precision"] == ["fast", "environment variable TORCH_FL_PRECISION"]
    assert list(shown) == [setting.key for setting in config.load().settings()]


def test_a_file_that_is_not_there_is_named(home: Path) -> None:
    first = run("show").stdout.splitlines()[0]
    assert first == f"file: {home}/.torch_fl/config.yaml: not there (TORCH_FL_CONFIG can name another)"


def test_for_programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.loads(run("show", "--json").stdout)
    assert shown["file"] == {"path": f"{home}/.torch_fl/config.yaml", "read": False}
    path = home / "other.yaml"
    path.write_text("pool: {memory_fraction: 0.5}\n")
    monkeypatch.setenv("TORCH_FL_CONFIG", str(path))
    shown = json.loads(run("show", "--json").stdout)
    assert shown["file"] == {"path": str(path), "read": True}
    assert [setting for setting in shown["settings"] if setting["source"] != "default"] == [
        {"key": "pool.memory_fraction", "value": 0.5, "source": f"{path}:1"}
    ]


def test_what_is_wrong_is_said_as_it_is_raised(home: Path) -> None:
    path = settings_file.write(home, "precision: quick\ncertified: maybe\n")
    result = run("show")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{path}:1: precision: 'quick' is not allowed; allowed: accurate, fast",
        f"{path}:2: certified: 'maybe' is not allowed; allowed: ignore, warn, require",
    ]


def test_a_named_file_that_is_not_there_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_CONFIG", str(home / "gone.yaml"))
    result = run("show")
    assert (result.exit_code, result.stderr) == (2, f"{home}/gone.yaml: no such file; TORCH_FL_CONFIG names it\n")


def test_nothing_but_text_reaches_the_terminal(home: Path) -> None:
    settings_file.write(home, 'devices: [{type: "\\e[31mred"}]\n')
    assert "\\x1b[31mred" in run("show").stdout


def test_a_file_can_be_checked_before_it_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_PRECISION", "nonsense")  # has no say about the file
    path = home / "next.yaml"
    path.write_text("precision: fast\n")
    assert (run("check", str(path)).exit_code, run("check", str(path)).stdout) == (0, f"{path}: nothing wrong\n")
    path.write_text("precison: fast\n")
    result = run("check", str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{path}:1: precison: unknown key; allowed: devices, pool, ")
    assert run("check", str(home / "gone.yaml")).exit_code == 2


def test_it_needs_neither_a_bridge_nor_torch() -> None:
    program = (
        "import sys; from torch_fl_doctor.commands import configuration\n"
        "try: configuration(['show'])\n"
        "finally: print(sorted({'torch', 'torch_fl._bridge'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
