"""The kernel runner, one per test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kernel_runner import KernelRunner, build_library


@pytest.fixture(scope="session")
def kernels() -> Iterator[KernelRunner]:
    """Runs kernels of the freshly built reference library; closing it must leave no problem behind."""
    runner = KernelRunner(build_library())
    yield runner
    assert runner.close() == []
