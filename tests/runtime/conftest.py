"""Fixtures of the runtime's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_fl import config
from torch_fl_spec.cache import cache_dir

from tests.spec.plugin_builder import PluginBuilder

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test fails where one of its threads does."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"))


@pytest.fixture(scope="package", autouse=True)
def _one_bridge() -> Iterator[None]:
    """Processes of a test that has a HOME of its own must not build a bridge of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_FL_CACHE", str(cache_dir()))
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a file, and an environment without a word for us."""
    for name in ("TORCH_FL_CONFIG", *config.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> PluginBuilder:
    """plugin("good"): the library of tests/spec/plugins/good.c."""
    return PluginBuilder(tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="session")
def devices(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The devices of this process, found here: two of the reference vendor, then two of reference_inline.

    The first two run asynchronously and have linear addresses, the last two do everything at once and have handles.
    """
    from torch_fl import fl

    settings = tmp_path_factory.mktemp("settings") / "config.yaml"
    settings.write_text("fallback: {on_fallback: ignore}\n")
    with pytest.MonkeyPatch.context() as patch:
        for variable in config.ENVIRONMENT:
            patch.delenv(variable, raising=False)
        patch.setenv("TORCH_FL_CONFIG", str(settings))
        patch.setenv("TORCH_FL_VENDORS", "reference,reference_inline")
        patch.setenv("FL_REFERENCE_DEVICES", "2")
        fl.init()
    names = tuple(f"fl:{index}" for index in range(fl.device_count()))
    assert names == ("fl:0", "fl:1", "fl:2", "fl:3"), "something looked for devices before this fixture"
    return names
