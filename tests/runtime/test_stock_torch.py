"""Stock torch behaves as before once torch_fl is imported: one transcript without it and one with it, compared."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Transcript = dict[str, list[str]]

#: What registering a backend changes by torch's own rules: a backend from outside is the accelerator from the moment
#: its name is registered, whatever else is there (at::accelerator::getAccelerator), and `fl:0` is no device before.
ACCELERATOR: Transcript = {
    "current_accelerator": ["device(type='fl')"],
    "generic_device_module": ["'torch_fl.fl'"],
    "pinning": ["True"],  # for the accelerator
}

#: Names that torch's own generators of methods add.
ADDED = {
    "attributes": [{"fl", "is_fl"}, {"fl"}, {"fl", "is_fl"}],  # of tensors, modules, storages
    "names_of_torch": [{"fl"}],
}


def transcript(settings: Path, *arguments: str) -> Transcript:
    """Of a process of its own, which nothing but the settings tells about devices."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_FL_", "PYTHONWARNINGS"))}
    if "TORCH_FL_CACHE" in os.environ:
        clean["TORCH_FL_CACHE"] = os.environ["TORCH_FL_CACHE"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.stock_behaviours", *arguments],
        cwd=ROOT,
        env=clean | {"TORCH_FL_CONFIG": str(settings), "TORCH_FL_VENDORS": "reference"},
        capture_output=True,
        text=True,
        timeout=3000,  # the first import may have to build the bridge
    )
    assert done.returncode == 0, done.stderr
    found: Transcript = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "config.yaml"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def stock(settings: Path) -> Transcript:
    return transcript(settings)


@pytest.fixture(scope="module")
def with_torch_fl(settings: Path) -> Transcript:
    return transcript(settings, "torch_fl")


def test_nothing_changes_but_what_torch_changes_for_any_backend(stock: Transcript, with_torch_fl: Transcript) -> None:
    allowed = {*ACCELERATOR, *ADDED, "data_loader_with_pinning"}
    same = [name for name in stock if name not in allowed]
    assert len(same) >= 40
    assert list(with_torch_fl) == list(stock)
    assert {name: with_torch_fl[name] for name in same} == {name: stock[name] for name in same}


@pytest.mark.parametrize("name", ACCELERATOR)
def test_a_registered_backend_is_the_accelerator(name: str, with_torch_fl: Transcript) -> None:
    assert with_torch_fl[name] == ACCELERATOR[name]


def test_a_loader_that_pins_gives_the_same_batches_and_no_complaint(
    stock: Transcript, with_torch_fl: Transcript
) -> None:
    assert with_torch_fl["data_loader_with_pinning"] == stock["data_loader"]


@pytest.mark.parametrize("name", ADDED)
def test_names_are_added_and_none_is_taken(name: str, stock: Transcript, with_torch_fl: Transcript) -> None:
    before, after = _names(stock[name]), _names(with_torch_fl[name])
    assert [mine - theirs for theirs, mine in zip(before, after, strict=True)] == ADDED[name]
    assert [theirs - mine for theirs, mine in zip(before, after, strict=True)] == [set()] * len(before)


def _names(lines: list[str]) -> list[set[str]]:
    listed = ast.literal_eval(lines[0])
    return [set(names) for names in (listed if isinstance(listed, tuple) else (listed,))]


def test_work_on_the_cpu_loads_no_plugin(with_torch_fl: Transcript) -> None:
    assert with_torch_fl["plugins_loaded_so_far"] == ["False"]
