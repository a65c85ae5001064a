"""What the executor must notice: a careless plugin, kept pointers, the seed of GREASE, and reproducers."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_spec import abi
from torch_fl_spec.replay import print_outputs, replay, write_reproducer
from torch_fl_spec.session import Session
from torch_fl_spec.session_args import Frame
from torch_fl_spec.session_loans import POISON, Lender

from tests.spec.commands import ALLOC, STREAM, call, neg_case
from tests.spec.plugin_builder import PluginBuilder

ffi = abi.ffi


@pytest.fixture
def careless(plugin: PluginBuilder) -> Iterator[Session]:
    # Without GREASE: a struct of exactly the known size, so that the byte behind it is the sentinel.
    session = Session(plugin("careless"), grease=False)
    session.execute({"do": "describe"})
    yield session
    session.close()


def test_a_write_behind_an_out_struct_shows(careless: Session) -> None:
    result = call(careless, "device.info", "d0", {"out": "fl_device_info"})
    assert result["status"] == abi.FL_OK
    assert not result["intact"]


def test_a_touched_output_and_an_overrun_message_show_after_a_failure(careless: Session) -> None:
    urgent = {"struct": "fl_stream_create_args", "fields": {"priority": 9}}
    result = call(careless, "stream.create", "d0", urgent, {"out": "fl_stream"}, err={"capacity": 16})
    assert result["status"] == abi.FL_INVALID_ARGUMENT
    assert result["untouched"] == [False]
    assert not result["err"]["intact"]
    assert result["intact"]


def test_a_written_argument_shows(careless: Session) -> None:
    result = call(careless, "memory.alloc", "d0", ALLOC(64), {"out": "uint64_t"})
    assert result["status"] == abi.FL_OK
    assert not result["intact"]


def test_a_changed_floating_point_mode_shows(careless: Session) -> None:
    call(careless, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    call(careless, "event.create", "d0", {"struct": "fl_event_create_args"}, {"out": "fl_event", "save": "e"})
    # On a driver thread, since the mode is the thread's and stays.
    call(careless, "stream.query", "s", thread="t", state=True)
    call(careless, "event.record", "e", "s", thread="t", state=True)
    clean, flushing = careless.execute({"do": "join", "thread": "t"})["done"]
    assert clean["state_changed"] == []
    assert flushing["state_changed"] == ["floating_point"]


def test_a_workspace_overrun_and_a_kept_call_block_show(careless: Session) -> None:
    memory = bytearray(4096)
    careless.attach_memory(memory)
    result = careless.execute(neg_case(memory, [1, 2, 3, 4]))
    assert result["sync"]["status"] == abi.FL_OK
    assert not result["workspace_intact"]
    call(careless, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    assert call(careless, "stream.query", "s")["status"] == abi.FL_INTERNAL  # it looked at poisoned memory


def test_a_loan_is_poisoned_when_it_ends() -> None:
    lender = Lender()
    pointer = lender.lend(24, fill=1).pointer
    lender.release()
    for _ in range(50):  # others come and go
        assert ffi.buffer(pointer, 24)[:] == bytes([POISON]) * 24
        lender.lend(24, fill=1)
        lender.release()


def test_a_write_through_a_kept_pointer_shows_when_the_memory_is_lent_again() -> None:
    lender = Lender()
    kept = lender.lend(24).pointer
    lender.release()
    kept[3] = b"x"
    found = []
    for _ in range(1000):  # its turn comes
        lender = Lender()
        lender.lend(24)
        found.append(lender.found_late_writes)
        lender.release()
    assert found.count(True) == 1


def test_a_guarded_loan_ends_at_a_page_that_faults() -> None:
    program = (
        "from torch_fl_spec.session_loans import Lender; l = Lender().lend(24, guard=True); "
        "l.pointer[23] = b'x'; print('inside', flush=True); l.pointer[24] = b'x'; print('outside')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "inside\n"
    assert done.returncode == -11


class _NoNames:
    def resolve(self, reference: str) -> int:
        raise AssertionError(reference)

    def address_of(self, buffer: str, offset: int) -> int:
        raise AssertionError(buffer)

    def shared_address(self, offset: int, size: int) -> int:
        raise AssertionError(offset)


def _greased(seed: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """(struct_size, [(kind, flags) of the chain]) of 50 structs."""
    rng = random.Random(seed)
    seen = []
    for _ in range(50):
        frame = Frame(_NoNames(), rng)
        args = ffi.cast("fl_mem_alloc_args*", frame.struct("fl_mem_alloc_args", {"bytes": 9}))
        assert (args.bytes, args.alignment, args.space, args.flags) == (9, 0, 0, 0)
        tail = ffi.buffer(ffi.cast("char*", args), args.struct_size)[40:]
        assert tail == bytes([POISON]) * len(tail)
        nodes, node = [], args.next
        while node != ffi.NULL:
            nodes.append((int(node.kind), int(node.flags)))
            node = node.next
        seen.append((int(args.struct_size), nodes))
    return seen


def test_grease_grows_structs_and_chains_and_repeats_from_its_seed() -> None:
    drawn = _greased(1)
    assert drawn == _greased(1)
    assert drawn != _greased(2)
    assert {size for size, _ in drawn} >= {40, 72, 104}
    assert {len(nodes) for _, nodes in drawn} == {0, 1, 2}
    assert all(kind > 1024 and flags == 0 for _, nodes in drawn for kind, flags in nodes)


def test_without_grease_structs_are_plain() -> None:
    frame = Frame(_NoNames(), None)
    args = ffi.cast("fl_mem_alloc_args*", frame.struct("fl_mem_alloc_args", {"bytes": 9}))
    assert (args.struct_size, args.next) == (40, ffi.NULL)


def _reproducer(plugin: PluginBuilder, folder: Path) -> Path:
    memory = bytearray(1024)
    case = neg_case(memory, [11, 12, 13, 14])
    blobs = {"a": bytes(memory[0:48]), "o": bytes(memory[64:112])}
    for block in case["blocks"]:
        block["image"] = {"blob": block["name"], "length": 48}
    case["results"] = {"o": [0, 48]}  # where the judge had it; it must not fall onto the inputs
    commands: list[dict[str, Any]] = [{"do": "describe"}, case, case]
    note = 'neg of "four" numbers'
    return write_reproducer(folder, plugin("good"), "", commands, blobs, note, index=(1, 0), grease_seed=4)


def test_a_reproducer_runs_by_itself(plugin: PluginBuilder, tmp_path: Path) -> None:
    script = _reproducer(plugin, tmp_path / "repro")
    program = f"import runpy, sys; runpy.run_path({str(script)!r}); print({{'torch', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["recorded when the row failed:", 'neg of "four" numbers']
    assert lines.count("    y i64 [2, 2]: [-11, -12, -13, -14]") == 2
    assert lines.count("    now at (1, 0): -13") == 2
    assert lines[-1] == "set()"
    assert {path.name for path in script.parent.iterdir()} == {"repro.json", "data.bin", "repro.py"}


def test_a_note_of_any_bytes_makes_a_script_that_runs(plugin: PluginBuilder, tmp_path: Path) -> None:
    note = 'said \0 \x1b[31m "quoted"""" \\ back\\\\ and ended in \\'
    script = write_reproducer(tmp_path / "repro", plugin("good"), "", [{"do": "describe"}], {}, note)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == note.replace("\0", "\\x00").replace("\x1b", "\\x1b")


def test_a_reproducer_takes_another_library(plugin: PluginBuilder, tmp_path: Path) -> None:
    script = _reproducer(plugin, tmp_path / "repro")
    results = replay(script, library=plugin("careless"))
    assert [result["workspace_intact"] for result in results[1:]] == [False, False]


@pytest.mark.parametrize(
    ("dtype", "format", "shown"), [("f32", "f", "nan"), ("bf16", "H", "-2.0"), ("i8", "b", "-3"), ("f64", "d", "0.5")]
)
def test_a_replay_shows_the_element_that_failed(
    dtype: str, format: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Far behind the first elements, in a tensor with holes."""
    value = 0xC000 if dtype == "bf16" else float(shown) if format in "fd" else int(shown)
    memory = bytearray(1024)
    element = struct.Struct(f"<{format}")
    element.pack_into(memory, 64 + 8 + 2 * 20 * element.size, value)
    tensor = {"block": "o", "dtype": dtype, "sizes": [21], "strides": [2], "byte_offset": 8}
    command = {"do": "kernel_case", "outs": ["y"], "tensors": {"y": tensor}, "results": {"o": [64, 900]}}
    print_outputs(command, memory, (20,))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"    y {dtype} [21]: [0")
    assert first.endswith(", ...]")
    assert second == f"    now at (20,): {shown}"
    print_outputs(command, memory, (3, 3))  # an element of another output
    assert len(capsys.readouterr().out.splitlines()) == 1
