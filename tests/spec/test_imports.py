"""Rooms import only rooms above them, and the normative room stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "torch_fl_spec": ROOT / "spec" / "torch_fl_spec",
    "torch_fl_reports": ROOT / "reports" / "torch_fl_reports",
    "torch_fl_conformance": ROOT / "conformance" / "torch_fl_conformance",
    "torch_fl_build": ROOT / "runtime" / "torch_fl_build",
    "torch_fl": ROOT / "runtime" / "torch_fl",
    "torch_fl_doctor": ROOT / "runtime" / "torch_fl_doctor",
}
MAY_IMPORT = {
    "torch_fl_spec": set[str](),
    "torch_fl_reports": {"torch_fl_spec"},
    "torch_fl_conformance": {"torch_fl_spec", "torch_fl_reports"},
    "torch_fl_build": {"torch_fl_spec", "torch_fl"},  # one room; torch_fl only where its autoload is asked for
    "torch_fl": {"torch_fl_spec", "torch_fl_reports", "torch_fl_build"},
    "torch_fl_doctor": {"torch_fl_spec", "torch_fl_build", "torch_fl"},
}
OURS = {*ROOMS, "torch_fl"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level names of absolute imports, those inside functions and of import_module("...") included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(a.value).split(".")[0] for a in node.args if isinstance(a, ast.Constant))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    files = sorted(ROOMS[room].rglob("*.py"))
    assert files
    for path in files:
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if name in OURS - {room}:
                assert name in MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", ["torch_fl_spec", "torch_fl_reports"])
def test_nothing_of_the_room_mentions_torch_as_an_import(room: str) -> None:
    for path in ROOMS[room].rglob("*.py"):
        names = set(imported(ast.parse(path.read_text(encoding="utf-8"))))
        assert "torch" not in names, path.relative_to(ROOT)


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_all_of_the_spec_room_loads_no_torch() -> None:
    code = (
        "import importlib, pkgutil, torch_fl_spec\n"
        "for found in pkgutil.walk_packages(torch_fl_spec.__path__, 'torch_fl_spec.'):\n"
        "    importlib.import_module(found.name)\n"
    )
    assert "torch" not in modules_after(code)


def test_what_the_driver_imports_is_light() -> None:
    heavy = {"torch", "numpy", "yaml", "pydantic", "pytest", "hypothesis"}
    assert not heavy & modules_after("import torch_fl_spec.session, torch_fl_spec.registry")
