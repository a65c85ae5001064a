"""The kernel runner, one per test session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .kernel_runner import KernelRunner, build_library


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelRunner]:
    """Runs kernels of the freshly built reference library; closing it must leave no problem behind.

    The library is a copy, which this process loads beside the original: its devices stay free for other tests.
    """
    library = Path(shutil.copy(build_library(), tmp_path_factory.mktemp("reference")))
    runner = KernelRunner(library)
    yield runner
    assert runner.close() == []
