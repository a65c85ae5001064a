"""Sources that are compiled together, and that are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_fl_build import sources as bridge_sources
from torch_fl_build.units import LIST, patterns, units

from tests.runtime.building.standin import StandIn, Wrapper


def test_lines_are_units_and_what_no_line_names_is_one_of_its_own() -> None:
    files = dict.fromkeys(["src/a.cpp", "src/a.h", "src/b.cpp", "src/core/c.cpp", "src/core/d.cpp"], b"")
    files[f"src/{LIST}"] = b"# two lines\ncore/*.cpp  # the core\n\nnowhere.cpp\n"
    assert units(files) == [["src/core/c.cpp", "src/core/d.cpp"], ["src/a.cpp"], ["src/b.cpp"]]


def test_a_unit_is_compiled_once_and_its_sources_are_quoted(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = Wrapper(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(wrapper.path))
    standin.header.with_name(LIST).write_text("not this folder's list\n")
    standin.module.with_name(LIST).write_text("module.cpp core/*.cpp\n")
    assert standin.loaded(standin.build().path) == 42
    assert wrapper.compiled == ["unit_1.cpp"]
    standin.answer.write_text("int answer() { return forty_two; }\n")
    with pytest.raises(ImportError) as caught:
        standin.build()
    assert f"{standin.answer}:1:23: error: " in str(caught.value)


def test_every_line_of_the_bridges_list_names_sources() -> None:
    files = bridge_sources.bridge().read()
    for line in patterns(files[f"src/{LIST}"].decode()):
        for pattern in line:
            assert any(Path(name).match(f"src/{pattern}") for name in files), pattern
