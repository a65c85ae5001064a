"""`torch-fl coverage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch_fl.coverage_command import coverage
from torch_fl_spec.cli import SHORT_HELP, main

pytestmark = pytest.mark.usefixtures("devices")

MODEL = """
import torch
from torch import nn

def make():
    return nn.Linear(3, 2), torch.rand(4, 3)

def learn():
    return nn.Linear(3, 2), (torch.rand(4, 3),), nn.MSELoss(), torch.rand(4, 2)

def sorts():
    return nn.Sequential(nn.Linear(3, 2), Sorted()), torch.rand(4, 3), lambda y: y.sum()

class Sorted(nn.Module):
    def forward(self, x):
        return x.sort(-1).values

def wrong():
    return nn.Linear(3, 2), torch.rand(4, 5)

def alone():
    return nn.Linear(3, 2)

def raises():
    raise OSError("no weights\\nhere")

number = 3
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "trained_model.py"
    file.write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(coverage, arguments)


def test_is_a_command_of_torch_fl() -> None:
    assert "coverage" in SHORT_HELP
    assert main.get_command(None, "coverage") is coverage  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["trained_model.py", "trained_model"])
def test_all_on_the_device(script: Path, place: str) -> None:
    result = run(f"{place}:make")
    assert result.exit_code == 0, result.output
    first, headings, *rows = result.output.splitlines()
    assert first.endswith("(100% native)")
    assert headings.split()[:3] == ["operator", "dtypes", "tier"]
    assert [row.split()[:5] for row in rows if "addmm" in row] == [["aten::addmm", "f32", "native", "1", "0"]]


def test_what_goes_to_the_cpu(script: Path) -> None:
    result = run(f"{script}:sorts", "--device", "fl:1", "--json")
    assert result.exit_code == 1, result.output
    told = json.loads(result.output)
    assert told["device"] == "fl:1"
    assert {row["tier"] for row in told["rows"] if row["operator"].startswith("aten::sort")} == {"cpu"}


def test_a_loss_with_targets_and_the_forward_pass_alone(script: Path) -> None:
    assert "forward and backward: " in run(f"{script}:learn").output
    alone = run(f"{script}:learn", "--no-backward")
    assert alone.output.splitlines()[0].startswith("5 calls on fl:0, forward: "), alone.output
    assert {line.split()[4] for line in alone.output.splitlines()[2:]} == {"0"}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("trained_model.py", "names no function"),
        ("missing.py:make", "missing.py: no such file"),
        ("no_such_module:make", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("trained_model.py:build", "has no function 'build'"),
        ("trained_model.py:number", "is a int, not a function"),
        ("trained_model.py:alone", "returns a Linear, not (model, example_inputs)"),
        ("trained_model.py:raises", "raises OSError: no weights"),
        ("trained_model.py:wrong", "cannot be followed to its end: RuntimeError: "),
    ],
)
def test_what_is_wrong_is_one_line(script: Path, where: str, words: str) -> None:
    result = run(where)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert len(result.output.splitlines()) == 1


def test_devices_that_are_not_there(script: Path) -> None:
    for device, word in (("fl:99", "fl:99"), ("cpu", "name fl:0"), ("what", "what")):
        result = run("trained_model.py:make", "--device", device)
        assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
        assert word in result.output
