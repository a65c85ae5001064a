"""The wheel: what is in it, and that an installed copy is the same suite as the checkout."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from torch_fl_spec.suite_digest import suite_digest

ROOT = Path(__file__).parents[2]
REFERENCE = "torch_fl_spec/bundled_kits/reference"
# From linux/prctl.h and linux/capability.h.
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The command's output; fails with all of it where the command fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the working tree, whatever it holds besides its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder), ".")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Paths inside the wheel."""
    return set(zipfile.ZipFile(wheel).namelist())


def test_a_prebuilt_bridge_comes_along_in_a_wheel_of_its_platform(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "tests", "torch-fl-report"))
    module = tree / "runtime" / "torch_fl" / "prebuilt" / "_bridge-id.so"
    module.parent.mkdir()
    module.write_bytes(b"a module")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        ".",
        str(tree),
        cwd=tmp_path,
    )
    (built,) = tmp_path.glob("*.whl")
    assert "torch_fl/prebuilt/_bridge-id.so" in zipfile.ZipFile(built).namelist()
    assert f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in built.name
    assert "-none-any" not in built.name


def install(wheel: Path, folder: Path) -> dict[str, str]:
    """An environment in which a fresh installation below `folder` comes before the checkout, with caches of its own."""
    target = folder / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return environment | {"PYTHONPATH": str(target), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An installation for tests that don't change it."""
    return install(wheel, tmp_path_factory.mktemp("installed"))


def sources(folder: str, *patterns: str) -> set[str]:
    """Files of the checkout below a folder, relative to it; what is built there left out."""
    root = ROOT / folder
    found = (path.relative_to(root) for pattern in patterns for path in root.rglob(pattern))
    return {path.as_posix() for path in found if "build" not in path.parts}


def test_every_source_is_in_it(names: set[str]) -> None:
    for package, folder in (
        ("torch_fl_spec", "spec/torch_fl_spec"),
        ("torch_fl_reports", "reports/torch_fl_reports"),
        ("torch_fl_conformance", "conformance/torch_fl_conformance"),
        ("torch_fl", "runtime/torch_fl"),
        ("torch_fl_build", "runtime/torch_fl_build"),
        ("torch_fl_doctor", "runtime/torch_fl_doctor"),
    ):
        patterns = ("*.py", "*.c", "*.cpp", "*.h", "*.yaml", "*.json", "*.txt", "*.j2", "*.css", "py.typed")
        missing = {f"{package}/{name}" for name in sources(folder, *patterns)} - names
        assert not missing
    assert "torch_fl_spec/include/torch_fl/plugin.h" in names
    assert "torch_fl_spec/operators.json" in names
    sdk = sources("vendor_kits/sdk/include/torch_fl/sdk", "*.h")
    assert sdk
    assert not {f"torch_fl_spec/include/torch_fl/sdk/{name}" for name in sdk} - names


def test_reference_vendor_is_in_it_as_sources(names: set[str]) -> None:
    patterns = ("*.c", "*.h", "*.inc", "Makefile", "plugin.map", "vendor.toml")
    missing = {f"{REFERENCE}/{name}" for name in sources("runtime/reference", *patterns)} - names
    assert not missing


def test_nothing_built_is_in_it(names: set[str]) -> None:
    built = [name for name in names if name.endswith((".o", ".so", ".d", ".pyc")) or "build" in name.split("/")]
    assert not built


def test_nothing_else_is_in_it(names: set[str]) -> None:
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {
        "torch_fl_spec",
        "torch_fl_reports",
        "torch_fl_conformance",
        "torch_fl",
        "torch_fl_build",
        "torch_fl_doctor",
    }


def test_installed_copy_is_the_same_suite(installed: dict[str, str], tmp_path: Path) -> None:
    script = "from torch_fl_spec import suite_digest as s; print(s.__file__, s.suite_digest())"
    file, digest = run(sys.executable, "-c", script, cwd=tmp_path, env=installed).split()
    assert Path(file).is_relative_to(installed["PYTHONPATH"])
    assert digest == suite_digest()


def test_installed_copy_collects_the_same_rows(installed: dict[str, str], tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "--vendor=reference")

    def rows(output: str) -> list[str]:
        found = (line.rpartition("chapters/")[2] for line in output.splitlines() if "::" in line)
        return sorted(found)

    there = rows(run(*command, "--pyargs", "torch_fl_conformance", cwd=tmp_path, env=installed))
    here = rows(run(*command, "conformance"))
    assert len(here) > 500
    assert there == here


def test_installed_copy_builds_a_vendors_kit(installed: dict[str, str], tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    shutil.copytree(ROOT / "examples" / "minimal_vendor", kit, ignore=shutil.ignore_patterns("build"))
    shown = run(sys.executable, "-m", "torch_fl_spec.cli", "kit", "show", str(kit), cwd=tmp_path, env=installed)
    assert "minimal 0.1.0" in shown


def test_read_only_installation_builds_in_the_cache(wheel: Path, tmp_path: Path) -> None:
    environment = install(wheel, tmp_path) | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    site = tmp_path / "site"
    locked = [path for path in (site, *site.rglob("*")) if path.is_dir()]
    for folder in locked:
        folder.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "torch_fl_spec.cli", "kit", "show", "reference_inline"],
            cwd=tmp_path,
            env=environment,
            preexec_fn=_obey_permissions,
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        for folder in locked:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tmp_path}/cache/" in done.stdout
    assert not (site / REFERENCE / "build").exists()


def _obey_permissions() -> None:
    """Root writes into read-only folders; without this capability it doesn't. Others lack it anyway."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
