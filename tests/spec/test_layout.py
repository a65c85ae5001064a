"""The header's layout: frozen, equal for cffi, C11 and C++17, and only ever extended."""

from __future__ import annotations

import copy
import itertools
import subprocess
from typing import Any

import pytest
from torch_fl_spec import abi, layout

FROZEN = layout.load_layout()


@pytest.mark.parametrize("reader", ["cffi", "c", "cpp"])
def test_cffi_c_and_cpp_agree_with_the_frozen_layout(reader: str) -> None:
    if reader == "cffi":
        seen = layout.layout_of_cffi()
    else:
        compiler = layout.C_COMPILER if reader == "c" else layout.CPP_COMPILER
        seen = layout.layout_of_compiler(compiler, FROZEN)
    assert seen == FROZEN


def test_the_probe_sees_a_packed_struct(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = abi.header_text().replace("} fl_copy_args;", "} __attribute__((packed, aligned(2))) fl_copy_args;")
    text = text.replace("  uint32_t dst_space; /* FL_SPACE_* */", "  uint16_t dst_space;")
    folder = tmp_path / "torch_fl"
    folder.mkdir()
    (folder / "plugin.h").write_text(text, encoding="utf-8")
    monkeypatch.setattr(abi, "INCLUDE_DIR", tmp_path)
    seen = layout.layout_of_compiler(layout.C_COMPILER, FROZEN)
    assert [name for name in FROZEN["structs"] if seen["structs"][name] != FROZEN["structs"][name]] == ["fl_copy_args"]


def test_a_header_that_warns_is_no_header(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torch_fl"
    folder.mkdir()
    text = abi.header_text().replace("/* </cdef> */", "struct fl_empty {};\n/* </cdef> */")
    (folder / "plugin.h").write_text(text, encoding="utf-8")
    monkeypatch.setattr(abi, "INCLUDE_DIR", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        layout.layout_of_compiler(layout.C_COMPILER, FROZEN)


def test_no_struct_has_hidden_padding() -> None:
    assert layout.padding(FROZEN) == []


def test_hidden_padding_is_found() -> None:
    hole = {"structs": {"s": {"size": 16, "fields": [["a", 0, 4], ["b", 8, 8]]}}}
    tail = {"structs": {"s": {"size": 16, "fields": [["a", 0, 8], ["b", 8, 4]]}}}
    odd = {"structs": {"s": {"size": 12, "fields": [["a", 0, 8], ["b", 8, 4]]}}}
    assert layout.padding(hole) == ["s: 4 bytes of padding before b"]
    assert layout.padding(tail) == ["s: 4 bytes of padding at the end"]
    assert layout.padding(odd) == ["s: size 12 is no multiple of 8"]


def test_introduced_sizes_are_those_of_the_structs() -> None:
    for name, struct in FROZEN["structs"].items():
        if name not in layout.FROZEN:
            assert abi.introduced_size(name) == struct["size"], name


def test_later_layouts_extend_earlier_ones() -> None:
    files = sorted(layout.FOLDER.glob("*.json"))
    assert layout.CURRENT in files
    for older, newer in itertools.pairwise(files):
        assert layout.breaks(layout.load_layout(older), layout.load_layout(newer)) == []
    assert layout.breaks(FROZEN, FROZEN) == []


def test_growth_at_the_end_is_an_extension() -> None:
    later = copy.deepcopy(FROZEN)
    later["structs"]["fl_memory_api"]["fields"].append(["advise", 48, 8])
    later["structs"]["fl_memory_api"]["size"] = 56
    later["constants"]["FL_TIER_FASTER"] = 3
    later["constants"]["FL_ABI_MINOR"] = 1
    assert layout.breaks(FROZEN, later) == []
    assert layout.breaks(later, FROZEN) != []


def moved(structs: dict[str, Any]) -> None:
    structs["fl_stream_api"]["fields"].insert(2, ["create_on", 8, 8])


def removed(structs: dict[str, Any]) -> None:
    del structs["fl_plan"]


def renamed(structs: dict[str, Any]) -> None:
    structs["fl_plan"]["fields"][2][0] = "scratch_bytes"


def thawed(structs: dict[str, Any]) -> None:
    structs["fl_arg"]["fields"].append(["more", 24, 8])


@pytest.mark.parametrize("change", [moved, removed, renamed, thawed])
def test_any_other_change_breaks_plugins(change: Any) -> None:
    later = copy.deepcopy(FROZEN)
    change(later["structs"])
    assert len(layout.breaks(FROZEN, later)) == 1


def test_constants_keep_their_numbers() -> None:
    later = copy.deepcopy(FROZEN)
    later["constants"]["FL_TIMEOUT"] = 80
    assert layout.breaks(FROZEN, later) == ["FL_TIMEOUT was 8, is 80"]


def test_the_headers_id_is_stamped_and_known() -> None:
    text = abi.header_text()
    assert abi.stamped_header_id(text) == abi.compute_header_id(text) == abi.HEADER_ID
    headers = layout.known_headers()
    assert headers["candidate"] == [abi.HEADER_ID]
    assert abi.HEADER_ID not in headers["released"], "a candidate is no release"
