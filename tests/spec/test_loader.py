"""The loader: what it accepts, what it refuses, and in which words."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from torch_fl_spec import abi, elf, kits
from torch_fl_spec.describe_process import describe
from torch_fl_spec.loader import PluginRefused, load
from torch_fl_spec.session import Session

from tests.spec.plugin_builder import PluginBuilder


def refusal(path: Path, **arguments: object) -> list[str]:
    """The reasons for which `load` refuses the file."""
    with pytest.raises(PluginRefused) as caught:
        load(path, **arguments)  # type: ignore[arg-type]
    return caught.value.reasons


def test_a_good_plugin_gives_a_full_table(plugin: PluginBuilder) -> None:
    loaded = load(plugin("good"))
    assert (loaded.name, loaded.version, loaded.minor) == ("fake", "1.2", 0)
    assert loaded.header_id == abi.stamped_header_id(abi.header_text())
    assert len(loaded.table) == 25  # with the query: the 26 functions of interface 1.0
    assert all(function is not None for function in loaded.table.values())
    assert loaded.device_count() == 1
    assert loaded.extension("fl.pinned") is None
    assert loaded.extension_address("fl.pinned") == 0


def test_addresses_are_those_of_the_tables() -> None:
    loaded = load(kits.resolve("reference").ensure_built())
    root = abi.ffi.cast("const fl_plugin*", loaded.root_address)
    assert abi.ffi.string(root.name) == b"reference"
    for name, struct in (("fl.pinned", "fl_pinned_api"), ("fl.fault", "fl_fault_api")):
        table = abi.ffi.cast(f"const {struct}*", loaded.extension_address(name))
        assert table.kind == abi.kind_of(struct)
    assert load(loaded.path, mask=["fl.fault"]).extension_address("fl.fault") == 0


def test_larger_tables_of_a_later_plugin_are_read_up_to_what_is_known(plugin: PluginBuilder) -> None:
    loaded = load(plugin("grown"))
    assert loaded.minor == 9
    assert len(loaded.table) == 25
    assert loaded.device_count() == 1


def test_all_missing_functions_are_named_at_once(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("missing_slots"))
    assert reason.startswith("FL-VERSION-005: 4 of the mandatory functions are missing:")
    for name in ("stream.host_task", "stream.wait_event", "event.elapsed", "kernel.kernels"):
        assert name in reason


def test_a_masked_mandatory_function_counts_as_missing(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("good"), mask=("event.query",))
    assert "1 of the mandatory functions are missing: event.query" in reason


def test_swapped_tables_are_told_by_their_kind(plugin: PluginBuilder) -> None:
    reasons = refusal(plugin("wrong_kind"))
    assert reasons[0].startswith("FL-LAYOUT-003: root.stream has kind 7, expected 6")
    assert reasons[1].startswith("FL-LAYOUT-003: root.event has kind 6, expected 7")


def test_a_root_below_its_introduced_size_is_refused(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("small_root"))
    assert reason.startswith("FL-LAYOUT-006: the root table has struct_size 64, below the 96 bytes")


def test_a_library_without_the_symbol_is_named(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("no_symbol"))
    assert "exports no symbol fl_plugin_query_v1" in reason
    assert "\n" not in reason


def test_an_imported_host_symbol_is_named(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("imports_host"))
    assert reason.startswith("FL-VERSION-001:")
    assert "fl_host_register" in reason


def test_a_failing_query_passes_its_words_on(plugin: PluginBuilder) -> None:
    (reason,) = refusal(plugin("query_fails"))
    assert reason.endswith("returned FAILED_PRECONDITION: driver 7 or newer needed, found 3")


def test_a_crash_in_the_query_is_one_line_elsewhere(plugin: PluginBuilder) -> None:
    with pytest.raises(PluginRefused) as caught:
        describe(plugin("query_crash"))
    assert caught.value.reasons == [
        f"{plugin('query_crash')} ended its process with signal SIGABRT while it was loaded"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"int main;", "is not a shared library"),
        (b"", "is not a shared library"),
        (b"\x7fELF\x01\x01" + bytes(58), "is not a 64-bit little-endian library"),
        (b"\x7fELF\x02\x01" + bytes(10) + b"\x03\x00\xf7\x00" + bytes(44), "is built for machine number 247"),
    ],
)
def test_files_that_are_no_library_get_one_clear_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    (reason,) = refusal(path)
    assert words in reason
    assert "\n" not in reason


def test_an_absent_file_is_said_to_be_absent(tmp_path: Path) -> None:
    (reason,) = refusal(tmp_path / "nothing.so")
    assert "No such file" in reason


def test_one_kernel_listed_twice_refuses_the_plugin(plugin: PluginBuilder) -> None:
    with pytest.raises(PluginRefused) as caught:
        Session(plugin("double_kernel")).execute({"do": "describe"})
    assert caught.value.reasons[0].startswith("FL-KERNEL-002: device 0 lists aten::neg r1 variant 'generic' twice")


def test_dynamic_symbols_are_those_of_the_linker(plugin: PluginBuilder) -> None:
    exported, _ = elf.dynamic_symbols(plugin("good"))
    assert exported == ["fl_plugin_query_v1"]
    _, imported = elf.dynamic_symbols(plugin("imports_host"))
    assert [name for name in imported if name.startswith("fl_")] == ["fl_host_register"]


def test_the_name_of_a_version_script_is_no_exported_symbol(tmp_path: Path) -> None:
    """GNU ld defines it as an absolute symbol, as this assembler source does whatever linker there is."""
    source, script, library = tmp_path / "named.s", tmp_path / "named.map", tmp_path / "named.so"
    source.write_text(
        ".globl FL_0\n.set FL_0, 0\n.globl fl_plugin_query_v1\n.text\nfl_plugin_query_v1:\n"
        '.section .note.GNU-stack,"",%progbits\n'
    )
    script.write_text("FL_1 { global: fl_plugin_query_v1; FL_0; local: *; };\n")
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", library, source, f"-Wl,--version-script={script}"], check=True)
    assert elf.dynamic_symbols(library)[0] == ["fl_plugin_query_v1"]


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_exports_are_those_that_the_loader_finds_whatever_the_section_headers_say(tmp_path: Path, style: str) -> None:
    source, library = tmp_path / "two.c", tmp_path / "two.so"
    source.write_text(
        "int outside(void); int fl_plugin_query_v1(void) { return outside(); } int hidden(void) { return 1; }"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-nostdlib", f"-Wl,--hash-style={style}", "-o", library, source], check=True
    )
    data = bytearray(library.read_bytes())
    for damage in (bytes(8), b"\xff" * 7 + b"\x7f"):
        data[40:48] = damage  # e_shoff
        library.write_bytes(data)
        assert elf.dynamic_symbols(library) == (["fl_plugin_query_v1", "hidden"], ["outside"])


def test_no_library_makes_the_reader_of_symbols_fall_over(plugin: PluginBuilder, tmp_path: Path) -> None:
    whole, damaged = plugin("good").read_bytes(), tmp_path / "damaged.so"
    draw = random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(4):
            data[draw.randrange(16, 1200)] = draw.choice((0, 1, 0x7F, 0xFF))
        damaged.write_bytes(data[: draw.choice((64, 900, len(data)))])
        with contextlib.suppress(ValueError):
            elf.dynamic_symbols(damaged)


def test_the_header_carries_its_own_id() -> None:
    assert abi.stamped_header_id(abi.header_text()) == abi.HEADER_ID, "run python -m torch_fl_spec.abi --stamp"


def test_stamping_changes_the_id_line_only(tmp_path: Path) -> None:
    text = abi.header_text().replace("FL_ABI_MINOR 0", "FL_ABI_MINOR 1")
    path = tmp_path / "plugin.h"
    path.write_text(text)
    header_id = abi.stamp(path)
    stamped = path.read_text()
    assert header_id != abi.HEADER_ID
    assert abi.stamped_header_id(stamped) == header_id == abi.compute_header_id(stamped)
    changed = [a for a, b in zip(text.splitlines(), stamped.splitlines(), strict=True) if a != b]
    assert [line.split()[1] for line in changed] == ["FL_HEADER_ID"]


def test_sizes_that_cffi_sees_are_those_of_the_header() -> None:
    structs = [name for name in abi.CONSTANTS if name.startswith("FL_SIZE_V1_0_")]
    assert len(structs) > 20
    for name in structs:
        struct = f"fl_{name.removeprefix('FL_SIZE_V1_0_').lower()}"
        assert abi.ffi.sizeof(struct) == abi.CONSTANTS[name] == abi.introduced_size(struct)


def test_names_of_codes() -> None:
    assert abi.status_name(abi.FL_ASYNC_FAILURE) == "ASYNC_FAILURE"
    assert abi.status_name(77) == "unknown status 77"
    assert abi.DTYPES["bf16"] == abi.FL_DTYPE_BF16
    assert abi.flag_names("FL_KERNEL_", 0b1000101) == ["INPLACE_OK", "DETERMINISTIC", "0x40"]
    with pytest.raises(AttributeError):
        _ = abi.FL_NO_SUCH_THING


def test_the_driver_side_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "from torch_fl_spec.session import Session; "
        "import sys; print(sorted({'torch', 'numpy', 'yaml', 'cffi', 'click', 'rich'} & set(sys.modules)))"
    )
    environment = {**os.environ, "TORCH_FL_CACHE": str(tmp_path)}
    heavy = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        heavy.append(done.stdout.strip())
    assert heavy[0] in ("[]", "['cffi']")  # cffi itself is needed once, to fill the cache
    assert heavy[1] == "[]"


def test_without_a_writable_cache_the_interface_still_loads(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    program = "from torch_fl_spec import abi; print(abi.ffi.sizeof('fl_tensor'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_FL_CACHE": str(blocked / "below")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "72"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ODD_NAME", "a" * 65, "root.name is 'aaa"),
        ("ODD_NAME", "../up", "root.name is '../up'; a vendor name is 1 to 64 of [a-z0-9_]"),
        ("ODD_VERSION", "", "root.version is ''; a version is 1 to 200 printable characters"),
        ("ODD_VERSION", "1" * 201, "root.version is '111"),
        ("ODD_VERSION", "1\x1b[31m", "root.version is '1\\x1b[31m'"),
        ("ODD_VERSION", "1\n2", "root.version is '1\\n2'"),
    ],
)
def test_names_that_no_report_can_carry_are_refused(
    plugin: PluginBuilder, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    (reason,) = refusal(plugin("odd_strings"))
    assert reason.startswith("FL-LAYOUT-009: ")
    assert words in reason
    assert len(reason) < 200


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ODD_VARIANT", "v" * 65, "FL-LAYOUT-009: device 0, kernel entry 0 (aten::neg r1) has variant 'vvv"),
        ("ODD_VARIANT", "v" * 65, "a variant name is 1 to 64 of [a-z0-9_]"),
        ("ODD_OP", "aten::" + "o" * 123, "no operator name of 1 to 128 characters"),
        ("ODD_OP", "", "no operator name of 1 to 128 characters"),
    ],
)
def test_kernel_names_that_no_row_can_carry_are_refused(
    plugin: PluginBuilder, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(PluginRefused, match=r"FL-(KERNEL-001|LAYOUT-009)") as caught:
        describe(plugin("odd_strings"))
    assert words in caught.value.reasons[0]
    assert len(caught.value.reasons[0]) < 250
