"""A built bridge is found exactly where it is the right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch_fl_build import BridgeUnavailable
from torch_fl_build import cache as bridge_cache

from tests.runtime.building.standin import StandIn, Wrapper, replace_unnoticed


def test_it_is_built_once(standin: StandIn, cache: Path) -> None:
    first = standin.build()
    assert first.seconds is not None
    assert first.path.parent == cache
    assert standin.loaded(first.path) == 42
    again = standin.build()
    assert (again.path, again.seconds) == (first.path, None)


@pytest.mark.parametrize("edited", ["answer", "header"])
def test_an_edit_is_never_answered_with_the_former_module(standin: StandIn, edited: str) -> None:
    former = standin.build()
    if edited == "header":
        replace_unnoticed(standin.header, "42", "43")
    else:
        replace_unnoticed(standin.answer, "FL_OK + ANSWER", "FL_OK+ANSWER+1")
    edited_one = standin.build()
    assert edited_one.path != former.path
    assert standin.loaded(edited_one.path) == 43
    assert standin.loaded(former.path) == 42


def test_an_edit_that_is_taken_back_finds_the_former_module(standin: StandIn) -> None:
    former = standin.build()
    replace_unnoticed(standin.header, "42", "43")
    standin.build()
    replace_unnoticed(standin.header, "43", "42")
    assert standin.build() == type(former)(former.path, None)


def test_only_what_an_edit_calls_for_is_compiled_again(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = Wrapper(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(wrapper.path))
    standin.build()
    assert wrapper.compiled == ["answer.cpp", "module.cpp"]
    replace_unnoticed(standin.answer, "FL_OK + ANSWER", "FL_OK+ANSWER+1")
    standin.build()
    assert wrapper.compiled == ["answer.cpp", "answer.cpp", "module.cpp"]


def test_a_header_that_is_gone_is_not_compiled_with(standin: StandIn) -> None:
    extra = standin.header.with_name("extra.h")
    extra.write_text("")
    standin.answer.write_text(f'#include "core/extra.h"\n{standin.answer.read_text()}')
    standin.build()
    extra.unlink()
    with pytest.raises(BridgeUnavailable, match=r"core/extra\.h: No such file"):
        standin.build()


def test_the_vendor_interface_is_part_of_the_identity(standin: StandIn, tmp_path: Path) -> None:
    include = tmp_path / "include"
    shutil.copytree(standin.sources.include, include, ignore=shutil.ignore_patterns("sdk"))
    ours = type(standin.sources)(standin.sources.folder, include)
    before = bridge_cache.identity(ours.read())
    header = include / "torch_fl" / "plugin.h"
    header.write_text(header.read_text() + "\n")
    assert bridge_cache.identity(ours.read()) != before


@pytest.mark.parametrize("fact", ["__version__", "git_version"])
def test_another_torch_needs_another_bridge(standin: StandIn, fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    standin.build()
    monkeypatch.setattr(*{"__version__": (torch, fact), "git_version": (torch.version, fact)}[fact], "2.13.0+other")
    assert bridge_cache.find(standin.sources, bridge_cache.identity(standin.sources.read())) is None


def test_another_compiler_builds_its_own(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = standin.build()
    wrapper = Wrapper(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(wrapper.path))
    second = standin.build()
    assert second.path != first.path
    wrapper.path.write_text(wrapper.path.read_text() + "# a newer version\n")
    third = standin.build()
    assert third.path not in (first.path, second.path)
    assert third.seconds is not None


def test_where_no_compiler_is_any_compilers_bridge_serves(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = standin.build()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert standin.build() == type(built)(built.path, None)


def test_a_bridge_that_came_with_the_package_is_used_while_it_is_the_right_one(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt = tmp_path / "torch_fl" / "prebuilt"
    built = standin.build(into=prebuilt)
    assert built.path.parent == prebuilt
    monkeypatch.setattr(bridge_cache, "PREBUILT", prebuilt)
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", str(Wrapper(tmp_path / "bin").path))
    assert standin.build() == type(built)(built.path, None)
    assert not (tmp_path / "empty").exists()
    replace_unnoticed(standin.header, "42", "43")
    assert standin.loaded(standin.build().path) == 43


def test_old_modules_go(standin: StandIn, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_fl_build.build._KEEP_MODULES", 2)
    built = []
    for value in ("42", "43", "44"):
        standin.header.write_text(f"#define ANSWER {value}\nint answer();\n")
        built.append(standin.build().path)
    assert sorted(cache.glob("*.so")) == sorted(built[1:])
    assert sorted(cache.glob("*.log")) == sorted(path.with_name(f"{path.name}.log") for path in built[1:])
