"""The C helper: compiled once, and clear when it cannot be."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest
from torch_fl_spec import abi, helper
from torch_fl_spec.helper import HelperUnavailable
from torch_fl_spec.session_process import process_state

ffi = abi.ffi


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_compiled_once_per_cache(empty_cache: Path) -> None:
    library = helper.library_path()
    assert library.is_relative_to(empty_cache)
    built = library.stat().st_mtime_ns
    assert helper.library_path() == library
    assert library.stat().st_mtime_ns == built
    assert [path.name for path in library.parent.iterdir()] == [library.name]  # no scratch is left


def test_without_a_compiler_the_error_says_what_to_install(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    with pytest.raises(HelperUnavailable, match=r"no C compiler: 'cc' is not on PATH\. Install one"):
        helper.library_path()


def test_a_failing_compiler_is_quoted(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = empty_cache / "mycc"
    compiler.write_text("#!/bin/sh\necho 'disk is tired' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(HelperUnavailable, match="disk is tired"):
        helper.library_path()
    assert list((empty_cache / "helper").iterdir()) == []


def test_an_unwritable_cache_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "file"))
    with pytest.raises(HelperUnavailable, match="point TORCH_FL_CACHE at a writable folder"):
        helper.library_path()


def test_a_gate_holds_its_task_until_it_is_opened() -> None:
    library = helper.load()
    gate, status = library.flh_gate_new(), ffi.new("fl_status*")
    thread = threading.Thread(target=library.flh_gate_task, args=(gate, abi.FL_ASYNC_FAILURE))
    thread.start()
    assert library.flh_gate_wait(gate, 1, 10**10)
    assert not library.flh_gate_wait(gate, 4, 10**7)
    assert library.flh_gate_state(gate, status) == 1
    library.flh_gate_open(gate)
    thread.join(10)
    assert library.flh_gate_state(gate, status) == 7
    assert status[0] == abi.FL_ASYNC_FAILURE


def test_a_record_counts_beyond_what_it_can_keep() -> None:
    library = helper.load()
    record = library.flh_record_new(2)
    for value in (5, 6, 7):
        library.flh_record_task(library.flh_record_ticket(record, value), abi.FL_OK)
    assert library.flh_record_count(record) == 3
    entries = ffi.new("flh_entry[]", 3)
    assert library.flh_record_read(record, entries, 3) == 2
    assert [entries[n].value for n in range(2)] == [5, 6]


def test_a_changed_umask_shows() -> None:
    """Also where the process has no descriptor left to read it with: it is then as before, not changed."""
    untouched = process_state()
    before = os.umask(0o123)
    try:
        changed = {name for name, value in process_state().items() if value != untouched[name]}
    finally:
        os.umask(before)
    assert changed == {"umask"}
    assert process_state() == untouched
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert process_state()["umask"] == untouched["umask"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
