"""Stand-in sources for the bridge: two small files that compile in a second, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.building.standin import StandIn


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of built bridges in it, which does not exist yet."""
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path / "cache" / "bridge"


@pytest.fixture
def standin(tmp_path: Path, cache: Path) -> StandIn:
    """Sources whose module has one attribute, answer: 42."""
    return StandIn(tmp_path / "sources")
