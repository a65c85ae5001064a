"""The reference vendor's libraries: they build, keep their promises in C, export one symbol, and are reproducible."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "runtime" / "reference"
SDK = ROOT / "vendor_kits" / "sdk" / "include"
SPEC = ROOT / "spec" / "torch_fl_spec" / "include"
LIBRARIES = ("libfl_reference.so", "libfl_reference_inline.so")


def run(*command: str, **environment: str) -> str:
    """Output of a command that must succeed; what it said is shown where it does not."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_c_checks_pass_on_both_libraries() -> None:
    programs = len(list(Path(__file__).parent.glob("*_check.c")))
    said = run("make", "-s", "-C", str(Path(__file__).parent), "check")
    assert f"{2 * programs} runs passed" in said


@pytest.mark.parametrize("library", LIBRARIES)
def test_exactly_one_symbol_is_exported_and_none_of_ours_imported(library: str) -> None:
    run("make", "-s", "-C", str(REFERENCE))
    built = str(REFERENCE / "build" / library)
    exported = run("nm", "-D", "--defined-only", built).split()
    assert exported[2::3] == ["fl_plugin_query_v1"]
    imported = run("nm", "-D", "--undefined-only", built).split()
    assert not [name for name in imported if name.startswith("fl_")]


def test_equal_sources_give_equal_bytes_wherever_they_lie(tmp_path: Path) -> None:
    run("make", "-s", "-C", str(REFERENCE))
    elsewhere = tmp_path / "some" / "other place" / "kit"
    shutil.copytree(REFERENCE, elsewhere, ignore=shutil.ignore_patterns("build"))
    headers = tmp_path / "headers"
    shutil.copytree(SPEC, headers)
    shutil.copytree(SDK, headers, dirs_exist_ok=True)
    run("make", "-s", "-j2", "-C", str(elsewhere), FL_INCLUDE=str(headers))
    for library in LIBRARIES:
        here, there = (folder / "build" / library for folder in (REFERENCE, elsewhere))
        assert hashlib.sha256(here.read_bytes()).digest() == hashlib.sha256(there.read_bytes()).digest()


@pytest.mark.parametrize("header", sorted(path.name for path in (SDK / "torch_fl" / "sdk").glob("*.h")))
def test_sdk_headers_stand_alone(header: str, tmp_path: Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text(
        f'#include "torch_fl/sdk/{header}"\n#include "torch_fl/sdk/{header}"\nint main(void) {{ return 0; }}\n'
    )
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{SPEC}", f"-I{SDK}"]
    run("gcc", *flags, "-pthread", "-o", str(tmp_path / "alone"), str(source), "-lm")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("FL_REFERENCE_DEVICES", "many"), ("FL_REFERENCE_DEVICES", "65"), ("FL_REFERENCE_MEMORY", "8Q")],
)
def test_environment_that_makes_no_sense_is_named(variable: str, value: str, tmp_path: Path) -> None:
    program = tmp_path / "open"
    source = tmp_path / "open.c"
    source.write_text(
        '#include "harness.h"\n'
        "int main(int argc, char** argv) {\n"
        "  (void)argc;\n"
        "  load(argv[1]);\n"
        "  char text[200] = {0};\n"
        "  fl_error err = {sizeof err, FL_KIND_ERROR, 0, 0, 0, text, sizeof text, 0};\n"
        "  fl_device_open_args args = {sizeof args, FL_KIND_DEVICE_OPEN_ARGS, NULL, NULL};\n"
        "  fl_device device = NULL;\n"
        "  CHECK(plugin->device->open(0, &args, &device, &err) == FL_FAILED_PRECONDITION);\n"
        "  puts(text);\n"
        "}\n"
    )
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{SPEC}", f"-I{Path(__file__).parent}", "-pthread"]
    run("gcc", *flags, "-o", str(program), str(source), "-ldl")
    run("make", "-s", "-C", str(REFERENCE))
    assert variable in run(str(program), str(REFERENCE / "build" / LIBRARIES[0]), **{variable: value})
