"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest

from tests.spec.plugin_builder import PluginBuilder


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> PluginBuilder:
    """plugin("good"): the library of tests/spec/plugins/good.c."""
    return PluginBuilder(tmp_path_factory.mktemp("plugins"))
