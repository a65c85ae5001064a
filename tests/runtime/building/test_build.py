"""A build that cannot be says why and what to do, and leaves nothing broken behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from torch_fl_build import BridgeUnavailable, load
from torch_fl_build import sources as bridge_sources

from tests.runtime.building.standin import StandIn, Wrapper


def test_without_a_compiler_the_error_says_what_to_install(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BridgeUnavailable, match=r"none of c\+\+, g\+\+, clang\+\+ is on PATH\. Install one") as caught:
        standin.build()
    assert "TORCH_FL_CACHE=folder torch-fl build" in str(caught.value)


def test_a_compiler_that_was_asked_for_and_is_not_there(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nosuchcxx -m64")
    with pytest.raises(BridgeUnavailable, match="CXX is 'nosuchcxx -m64', and that is not on PATH"):
        standin.build()


def test_a_compiler_may_be_several_words(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++ -DANSWER=41")
    standin.header.write_text("int answer();\n")
    assert standin.loaded(standin.build().path) == 41


def test_a_compiler_is_quoted_with_the_path_of_the_source(standin: StandIn, cache: Path) -> None:
    standin.answer.write_text("int answer() { return forty_two; }\n")
    with pytest.raises(BridgeUnavailable) as caught:
        standin.build()
    text = str(caught.value)
    assert f"{standin.answer}:1:23: error: " in text
    assert "forty_two" in text
    assert "-fvisibility" not in text  # a command line says nothing to a user
    log = Path(text.rpartition("All of them: ")[2])
    assert "-fvisibility" in log.read_text()
    assert not list(cache.glob("*.so"))


def test_a_source_that_was_mended_is_built(standin: StandIn) -> None:
    right = standin.answer.read_text()
    standin.answer.write_text("int answer() { return forty_two; }\n")
    with pytest.raises(BridgeUnavailable):
        standin.build()
    standin.answer.write_text(right)
    assert standin.loaded(standin.build().path) == 42


def test_a_module_that_does_not_load_is_told_with_what_helps(standin: StandIn) -> None:
    standin.answer.write_text("")
    path = standin.build().path
    with pytest.raises(BridgeUnavailable, match=r"undefined symbol.*`torch-fl build --force` compiles it anew"):
        load.module(path, "standin.undefined._bridge")


def test_force_compiles_everything_anew(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = Wrapper(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(wrapper.path))
    first = standin.build()
    first.path.write_bytes(b"broken")
    again = standin.build(force=True)
    assert again.path == first.path
    assert standin.loaded(again.path) == 42
    assert wrapper.compiled == ["answer.cpp", "answer.cpp", "module.cpp", "module.cpp"]


def test_no_sources_is_an_incomplete_installation(standin: StandIn) -> None:
    empty = bridge_sources.Sources(standin.header.parent / "nowhere", standin.sources.include)
    with pytest.raises(BridgeUnavailable, match=r"sources are incomplete: .*nowhere.*install torch-fl again"):
        load.built(empty)


def test_an_unwritable_cache_is_told(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "file"))
    with pytest.raises(BridgeUnavailable, match="point TORCH_FL_CACHE at a writable folder"):
        standin.build()


def test_a_full_disk_is_told_and_leaves_no_half(standin: StandIn, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(BridgeUnavailable, match=r"No space left on device .*free some space"):
            standin.build()
    assert not [path for path in cache.iterdir() if path.is_file() and path.name != "lock"]
    assert standin.loaded(standin.build().path) == 42


def test_a_disk_that_is_full_for_the_compiler_is_told(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prelude = 'case "$*" in *" -c "*) echo "fatal error: No space left on device" >&2; exit 1;; esac'
    wrapper = Wrapper(tmp_path / "bin", prelude)
    monkeypatch.setenv("CXX", str(wrapper.path))
    with pytest.raises(BridgeUnavailable, match=r"(?s)fatal error: No space left.*The disk is full: free some space"):
        standin.build()


def test_elsewhere_than_on_a_terminal_it_says_when_it_begins_and_ends(
    standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    built = standin.build()
    begin, end = capsys.readouterr().err.splitlines()
    assert begin.startswith("torch_fl: compiling the bridge to torch ")
    assert begin.endswith(" with c++, 2 units, once")
    assert end == f"torch_fl: compiled in {built.seconds:.1f} s: {built.path}"
    standin.build()
    assert capsys.readouterr().err == ""
