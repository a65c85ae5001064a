"""Fixtures of the suite's own tests: small plugins built on the spot, and pytest runs in a child process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FAKES = ROOT / "tests" / "spec" / "plugins"
INCLUDES = [f"-I{ROOT / 'spec' / 'torch_fl_spec' / 'include'}", f"-I{FAKES}"]

Pytest = Callable[..., "subprocess.CompletedProcess[str]"]


def compile_plugin(source: Path, library: Path) -> Path:
    """Build a one-file plugin."""
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([compiler, *flags, *INCLUDES, "-o", str(library), str(source)], check=True)
    return library


@pytest.fixture(scope="session")
def good_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The honest fake: one INLINE device, one kernel."""
    return compile_plugin(FAKES / "good.c", tmp_path_factory.mktemp("good") / "good.so")


@pytest.fixture(scope="session")
def ill_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake whose kernels crash, hang and exit."""
    return compile_plugin(HERE / "plugins" / "ill" / "ill.c", tmp_path_factory.mktemp("ill") / "ill.so")


@pytest.fixture
def ill_kit(tmp_path: Path) -> Path:
    """The same as a kit folder of its own, so that parallel tests do not build into one another."""
    kit = tmp_path / "ill"
    shutil.copytree(HERE / "plugins" / "ill", kit, ignore=shutil.ignore_patterns("build"))
    text = (kit / "vendor.toml").read_text()
    text = text.replace("-I../../../../spec/torch_fl_spec/include -I../../../spec/plugins", " ".join(INCLUDES))
    (kit / "vendor.toml").write_text(text)
    return kit


@pytest.fixture
def run_pytest(tmp_path: Path) -> Pytest:
    """run_pytest(*arguments, timeout=...) -> the finished child; it runs in an empty folder."""

    def run(*arguments: str, timeout: float = 300, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture(scope="session", autouse=True)
def interruptible_children() -> None:
    """Children inherit an ignored SIGINT, as that of a background job; tests of Ctrl-C need it to reach them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
