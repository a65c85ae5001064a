"""`import torch_fl`: light, quiet, and a clear ImportError where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from torch_fl_build import sources

#: What an import must not cost. torch itself imports numpy.
HEAVY = {"pydantic", "yaml", "rich", "matplotlib", "jinja2", "cffi", "ninja", "setuptools", "torch.utils.cpp_extension"}


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_FL_AUTOLOAD")}
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=3000,  # the first one may have to build the bridge
    )


def printed(script: str, **environment: str) -> str:
    done = python(script, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def last_line(script: str) -> str:
    done = python(script)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_it_registers_the_device_and_looks_for_none() -> None:
    script = "import torch, torch_fl; print(torch.device('fl:1'), torch.fl.__name__)"
    loads_a_plugin = "print('libfl_' in open('/proc/self/maps').read())"
    assert printed(f"{script}; {loads_a_plugin}") == "fl:1 torch_fl.fl\nFalse"


def test_it_imports_nothing_heavy() -> None:
    script = "import torch, sys; before = set(sys.modules); import torch_fl; print(*sorted(set(sys.modules) - before))"
    loaded = set(printed(script).split())
    assert "torch_fl._bridge" in loaded
    assert not HEAVY & loaded


def test_what_is_public_is_there_and_typed_names_are_lazy() -> None:
    missing = "{name for name in torch_fl.__all__ if not hasattr(torch_fl, name) or name not in dir(torch_fl)}"
    assert printed(f"import torch_fl; print({missing})") == "set()"
    assert printed("import torch_fl; print(hasattr(torch_fl, 'nosuch'))") == "False"
    asked_for_one = "import torch_fl, sys; torch_fl.FallbackWarning"
    assert printed(f"{asked_for_one}; print('torch_fl.devices' in sys.modules)") == "False"


def test_it_may_be_imported_before_torch_and_twice() -> None:
    script = "import torch_fl, importlib, torch; importlib.reload(torch_fl); print(torch.device('fl').type)"
    assert printed(script) == "fl"


@pytest.mark.parametrize("version", ["2.10.1", "2.15.0a0+gitabc", "3.0.0", "1.13.1+cu117", "strange"])
def test_a_torch_that_it_is_not_written_for_is_told_in_one_line(version: str) -> None:
    line = last_line(f"import torch; torch.__version__ = {version!r}; import torch_fl")
    assert line.endswith(
        f"torch-fl works with torch >=2.11,<2.15, and torch {version} is installed: pip install 'torch>=2.11,<2.15'"
    )
    assert line.startswith("torch_fl_build.BridgeUnavailable: ")


@pytest.mark.parametrize("version", ["2.11.0", "2.14.1+cpu", "2.14.0a0+git123"])
def test_torches_that_it_is_written_for_pass(version: str) -> None:
    script = f"import torch; torch.__version__ = {version!r}\nfrom torch_fl_build import supported; supported.check()"
    assert printed(script) == ""


def test_a_place_that_another_backend_has_is_told() -> None:
    line = last_line("import torch; torch.utils.rename_privateuse1_backend('other'); import torch_fl")
    assert line == (
        "ImportError: torch_fl: torch has one place for a backend from outside, and 'other' has taken it in this "
        "process: import torch_fl in a process that does not import 'other'"
    )


@pytest.mark.parametrize(("asked", "expected"), [(None, "False"), ("0", "False"), ("1", "True")])
def test_torch_loads_it_by_itself_only_where_that_is_asked_for(asked: str | None, expected: str) -> None:
    environment = {} if asked is None else {"TORCH_FL_AUTOLOAD": asked}
    assert printed("import torch, sys; print('torch_fl' in sys.modules)", **environment) == expected


def test_loaded_by_torch_it_is_whole() -> None:
    script = "import torch; print(torch.device('fl:0'), torch.fl.__name__, torch.ones(2).sum().item())"
    assert printed(script, TORCH_FL_AUTOLOAD="1") == "fl:0 torch_fl.fl 2.0"


def test_our_sources_compile_without_a_warning() -> None:
    """The log of the bridge that the tests use; a user's build may warn, if a later torch's macros do."""
    script = "import torch_fl, sys; print(sys.modules['torch_fl._bridge'].__file__)"
    path = printed(script)
    with open(f"{path}.log", encoding="utf-8") as log:  # noqa: PTH123
        text = log.read()
    assert "[" in text
    assert "warning:" not in text


def test_the_entry_point_costs_one_small_module() -> None:
    script = "import torch, sys; print(*sorted(name for name in sys.modules if name.startswith('torch_fl')))"
    assert printed(script) == "torch_fl_build torch_fl_build.autoload"


def test_the_bridge_has_sources() -> None:
    assert "src/module.cpp" in sources.bridge().read()
