"""What a report is about: the bytes that were loaded, and the libraries that came into the drivers with them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_fl_conformance.code_files import code_files
from torch_fl_conformance.metadata import library_facts, plugin_change

from .conftest import ROOT, Pytest, compile_plugin
from .test_recording import settings_of

SUITE = str(ROOT / "conformance")
ROW = "--row=neg/r1/generic/i64"

ODD_KERNEL = """
#include <dlfcn.h>
#include <stdio.h>
#define KERNELS ODD
#define ODD {.struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = "aten::neg", .variant = "generic", \\
  .revision = 1, .n_types = 1, .rows = rows, .n_rows = 2, .row_stride = sizeof(fl_kernel_row), \\
  .layouts = FL_LAYOUT_STRIDED, .max_ndim = 2, .flags = FL_KERNEL_INPLACE_OK | FL_KERNEL_DETERMINISTIC, \\
  .plan = neg_plan, .run = odd_run}
#include "torch_fl/plugin.h"
static fl_status odd_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);
#include "fake.h"
static fl_status odd_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  THE_ODD_THING;
  return neg_run(kernel, stream, call, err);
}
EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  *out = &root;
  return FL_OK;
}
"""


def odd_plugin(library: Path, does: str) -> Path:
    """The honest fake, whose kernel does something else besides each time it runs."""
    library.parent.mkdir(exist_ok=True)
    source = library.with_suffix(".c")
    source.write_text(ODD_KERNEL.replace("THE_ODD_THING", does))
    return compile_plugin(source, library)


def report_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return data


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_library_that_only_a_kernel_loads_is_listed(
    run_pytest: Pytest, tmp_path: Path, good_library: Path, workers: tuple[str, ...]
) -> None:
    hidden = tmp_path / "hidden" / "implementation.bin"
    hidden.parent.mkdir()
    shutil.copy(good_library, hidden)
    plugin = odd_plugin(tmp_path / "kit" / "lazy.so", f'(void)dlopen("{hidden}", RTLD_NOW | RTLD_LOCAL)')
    run_pytest(SUITE, f"--vendor={plugin}", ROW, "--report=r", *workers)
    subject = report_of(tmp_path / "r")["subject"]
    digest = hashlib.sha256(hidden.read_bytes()).hexdigest()
    assert subject["libraries"] == [{"path": str(hidden), "sha256": digest}]


def test_a_plugin_that_is_replaced_during_the_run_passes_nothing(run_pytest: Pytest, tmp_path: Path) -> None:
    library = tmp_path / "kit" / "swap.so"
    odd_plugin(library, f'(void)rename("{library}.next", "{library}")')
    Path(f"{library}.next").write_bytes(library.read_bytes() + b"another build")
    judged = hashlib.sha256(library.read_bytes()).hexdigest()
    done = run_pytest(SUITE, f"--vendor={library}", ROW, "--report=r")
    report = report_of(tmp_path / "r")
    assert done.returncode == 3, done.stdout
    assert report["subject"]["files"][0]["sha256"] == judged
    (row,) = report["rows"]
    assert row["verdict"] == "error"
    assert "swap.so had sha256" in row["message"]


def test_a_change_that_was_taken_back_is_one(tmp_path: Path, good_library: Path) -> None:
    """The end of the run finds the plugin as it was; a driver in between has held other bytes."""
    ((path, digest),) = code_files([str(good_library)])
    settings = settings_of(library=path, sha256=digest)
    assert plugin_change(settings, {(path, digest)}) is None
    change = plugin_change(settings, {(path, digest), (path, "5" * 64)})
    assert change is not None
    assert "5" * 64 in change


def test_code_is_told_by_its_bytes_alone(tmp_path: Path, good_library: Path) -> None:
    """Neither the name nor the place of a library hides it, Python's own folder included."""
    import _cffi_backend

    data = tmp_path / "weights.so"
    data.write_bytes(b"no code at all")
    python = str(Path(_cffi_backend.__file__).resolve())
    assert python.startswith((sys.prefix, sys.base_prefix))
    found = code_files([str(data), str(good_library), python, "/dev/zero", str(tmp_path / "gone.so")])
    listed = [entry["path"] for entry in library_facts(found, good_library)]
    assert listed == [python]


def test_other_bytes_with_the_times_of_the_first_are_seen(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    digests = set()
    for content in (b"\x7fELF one", b"\x7fELF two"):
        library.write_bytes(content)
        os.utime(library, ns=(10**18, 10**18))
        digests |= {digest for _, digest in code_files([str(library)])}
    assert len(digests) == 2
