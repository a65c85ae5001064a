"""`torch-fl build`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch_fl_build import load, sources
from torch_fl_build.command import build

from tests.runtime.building.standin import StandIn


@pytest.fixture
def loaded(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The command builds the stand-in; what it loads is written down."""
    paths: list[Path] = []
    monkeypatch.setattr(sources, "bridge", lambda: standin.sources)
    monkeypatch.setattr(load, "module", paths.append)
    return paths


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build, arguments)


def test_it_builds_and_loads_and_says_where_and_how_long(loaded: list[Path], cache: Path) -> None:
    done = run()
    assert done.exit_code == 0
    (path,) = loaded
    assert path.parent == cache
    said, took = done.stdout.splitlines()
    assert said == str(path)
    assert took.startswith("built in ")
    again = run()
    assert again.stdout.splitlines() == [str(path), "stood already"]
    assert run("--force").stdout.splitlines()[1].startswith("built in ")
    assert loaded == [path] * 3


def test_it_builds_into_a_folder(loaded: list[Path], cache: Path, tmp_path: Path) -> None:
    done = run("--into", str(tmp_path / "wheel" / "prebuilt"))
    assert done.exit_code == 0
    assert loaded[0].parent == tmp_path / "wheel" / "prebuilt"
    assert not list(cache.glob("*.so"))


def test_what_cannot_be_built_is_one_message(loaded: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nosuchcxx")
    done = run()
    assert (done.exit_code, loaded) == (1, [])
    assert done.stderr.startswith(
        "Error: the bridge to this torch has to be compiled once, and there is no C++ compiler"
    )
