"""The executor on an honest little plugin: calls, buffers, threads, gates, kernel cases, storms."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_spec import abi
from torch_fl_spec.session import CommandError, Session

from tests.spec.commands import ALLOC, STREAM, call, neg_case
from tests.spec.plugin_builder import PluginBuilder


@pytest.fixture
def session(plugin: PluginBuilder) -> Iterator[Session]:
    opened = Session(plugin("good"), grease_seed=1)
    opened.execute({"do": "describe"})
    yield opened
    assert opened.close() == []


def test_describe_tells_what_the_plugin_declares(session: Session) -> None:
    described = session.execute({"do": "describe"})
    assert described["name"] == "fake"
    (device,) = described["devices"]
    assert (device["name"], device["execution_model"], device["address_model"]) == ("fake card", "INLINE", "LINEAR")
    assert device["uuid"] == "010203" + "00" * 13
    ((kernel,),) = described["kernels"]
    assert (kernel["op"], kernel["revision"], kernel["variant"]) == ("aten::neg", 1, "generic")
    assert [row["dtypes"] for row in kernel["rows"]] == [["i64"]]
    assert kernel["ignored_rows"] == 1  # the row of an unknown dtype
    assert kernel["layouts"] == ["STRIDED"]
    assert kernel["flags"] == ["INPLACE_OK", "DETERMINISTIC"]
    assert described["extensions"] == {}


def test_the_table_hash_is_the_same_in_another_process(session: Session, plugin: PluginBuilder) -> None:
    program = (
        f"from torch_fl_spec.session import Session; s = Session({str(plugin('good'))!r}); "
        "print(s.execute({'do': 'describe'})['table_hash'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == session.execute({"do": "describe"})["table_hash"]
    again = session.execute({"do": "table_bytes", "device": "d0"})
    assert again["same"]


def test_a_copy_goes_to_the_device_and_back(session: Session) -> None:
    session.execute({"do": "host_alloc", "name": "h", "bytes": 32, "guard": True})
    session.execute({"do": "host_write", "name": "h", "data": bytes(range(16)).hex()})
    assert call(session, "memory.alloc", "d0", ALLOC(16), {"out": "uint64_t", "save": "b"})["status"] == abi.FL_OK
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    host = {"host": "h"}
    there = {"dst_space": 1, "dst_device": {"ref": "d0"}, "dst_base": {"ref": "b"}, "src_base": host, "bytes": 16}
    back = {"src_space": 1, "src_device": {"ref": "d0"}, "src_base": {"ref": "b"}, "dst_base": host, "dst_offset": 16}
    for fields in (there, {**back, "bytes": 16}):
        assert call(session, "memory.copy", "s", {"struct": "fl_copy_args", "fields": fields})["status"] == abi.FL_OK
    assert session.execute({"do": "host_read", "name": "h", "bytes": 32})["data"] == (bytes(range(16)) * 2).hex()


def test_shared_memory_carries_host_buffers(session: Session) -> None:
    memory = bytearray(range(64))
    session.attach_memory(memory)
    session.execute({"do": "host_alloc", "name": "h", "bytes": 8, "fill": 7})
    session.execute({"do": "host_write", "name": "h", "offset": 4, "mem": [10, 4]})
    session.execute({"do": "host_read", "name": "h", "bytes": 8, "mem": [40, 8]})
    assert memory[40:48] == bytes([7, 7, 7, 7, 10, 11, 12, 13])
    with pytest.raises(CommandError, match="of a host buffer of 8"):
        session.execute({"do": "host_read", "name": "h", "offset": 4, "bytes": 8})
    with pytest.raises(CommandError, match="of a shared buffer of 64"):
        session.execute({"do": "host_write", "name": "h", "mem": [60, 8]})


def test_a_failed_call_reports_its_error_and_leaves_outs_alone(session: Session) -> None:
    result = call(session, "memory.alloc", "d0", ALLOC(0), {"out": "uint64_t", "fill": 0x11, "save": "x"})
    assert result["status"] == abi.FL_INVALID_ARGUMENT
    assert result["outs"] == [0x1111111111111111]
    assert result["untouched"] == [True]
    assert result["intact"]
    expected = {"code": 2, "message": "bad argument", "length": 12, "intact": True, "terminated": True}
    assert {key: result["err"][key] for key in expected} == expected
    with pytest.raises(CommandError, match="nothing is saved"):
        session.resolve("x")


@pytest.mark.parametrize(("capacity", "message"), [(0, ""), (1, ""), (8, "bad arg")])
def test_error_capacities(session: Session, capacity: int, message: str) -> None:
    result = call(
        session, "memory.alloc", "d0", ALLOC(0), {"out": "uint64_t"}, err={"capacity": capacity, "guard": True}
    )
    assert result["err"]["message"] == message
    assert result["err"]["length"] == len(message)
    assert result["err"]["intact"]
    assert result["err"]["terminated"]


def test_a_null_error_is_possible(session: Session) -> None:
    result = call(session, "memory.alloc", "d0", ALLOC(0), {"out": "uint64_t"}, err=None)
    assert result["status"] == abi.FL_INVALID_ARGUMENT
    assert result["err"] is None


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, abi.FL_OK),
        ({"size": 40, "guard": True}, abi.FL_OK),
        ({"size": 104, "tail": 0xFF}, abi.FL_OK),
        ({"size": 32}, abi.FL_INVALID_ARGUMENT),
        ({"kind": 99}, abi.FL_INVALID_ARGUMENT),
        ({"next": [{"kind": 2000}]}, abi.FL_OK),
        ({"next": [{"kind": 2000}, {"kind": 2001, "required": True}]}, abi.FL_UNIMPLEMENTED),
    ],
)
def test_struct_size_kind_and_chain_are_the_judges(session: Session, options: dict[str, Any], status: int) -> None:
    args = {**ALLOC(64), **options}
    assert call(session, "memory.alloc", "d0", args, {"out": "uint64_t"})["status"] == status


def test_an_out_struct_ends_where_its_size_says(session: Session) -> None:
    out = {"out": "fl_device_info", "size": 96, "guard": True}
    result = call(session, "device.info", "d0", out)
    assert result["status"] == abi.FL_OK
    assert result["outs"][0]["name"] == "fake card"
    small = call(session, "device.info", "d0", {**out, "size": 88})
    assert small["status"] == abi.FL_INVALID_ARGUMENT
    assert "timer_resolution_ns" not in small["outs"][0]
    assert small["untouched"] == [True]


def test_named_threads_queue_and_join(session: Session) -> None:
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    session.execute({"do": "gate", "name": "g"})
    task = {"task": "gate", "name": "g"}
    assert call(session, "stream.host_task", "s", task, thread="a") == {"queued": 1}
    assert call(session, "stream.query", "s", thread="a") == {"queued": 2}
    state = session.execute({"do": "gate_wait", "name": "g", "for": "entered"})
    assert state == {"reached": True, "entered": True, "open": False, "done": False, "status": 0}
    assert session.execute({"do": "join", "thread": "a", "timeout": 0.02}) == {"done": [], "pending": 2}
    session.execute({"do": "gate_open", "name": "g"})
    joined = session.execute({"do": "join", "thread": "a"})
    assert [result["status"] for result in joined["done"]] == [abi.FL_OK, abi.FL_OK]
    assert session.execute({"do": "join", "thread": "a"}) == {"done": [], "pending": 0}


def test_host_tasks_are_counted_in_order(session: Session) -> None:
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    for value in (3, 1, 2):
        call(session, "stream.host_task", "s", {"task": "ticket", "name": "t", "value": value})
    call(session, "stream.host_task", "s", {"task": "count", "name": "c"})
    assert session.execute({"do": "tickets", "name": "t"})["values"] == [3, 1, 2]
    assert session.execute({"do": "count", "name": "c"}) == {"calls": 1, "statuses": [0]}


def test_a_kernel_case_brings_whole_blocks_back(session: Session) -> None:
    memory = bytearray(4096)
    session.attach_memory(memory)
    result = session.execute(neg_case(memory, [5, 6, 7, 8]))
    assert [result[step]["status"] for step in ("plan", "upload", "run", "sync", "download")] == [abi.FL_OK] * 5
    assert struct.unpack("6q", memory[512:560]) == (-1, -5, -6, -7, -8, -1)  # frames included
    assert result["workspace_intact"]
    assert result["intact"]
    assert result["plan"]["workspace_bytes"] == 96
    assert session.live.memory == {}


def test_a_kernel_case_runs_again_on_the_same_addresses(session: Session) -> None:
    memory = bytearray(4096)
    session.attach_memory(memory)
    case = neg_case(memory, [1, 2, 3, 4])
    memory[1024:1072] = struct.pack("6q", 0, 10, 20, 30, 40, 0)
    case["again"] = [{"images": {"a": [1024, 48]}, "workspace": {"fill": 0}, "results": {"o": [2048, 48]}}]
    result = session.execute(case)
    assert struct.unpack("6q", memory[512:560])[1:5] == (-1, -2, -3, -4)
    assert struct.unpack("6q", memory[2048:2096])[1:5] == (-10, -20, -30, -40)
    (again,) = result["again"]
    assert again["plan"] == result["plan"]
    assert again["sha256"]["o"] != result["sha256"]["o"]


def test_a_kernel_case_stops_at_an_unimplemented_plan(session: Session) -> None:
    memory = bytearray(4096)
    session.attach_memory(memory)
    case = neg_case(memory, [1, 2, 3, 4])
    for tensor in case["tensors"].values():
        tensor.update(sizes=[1, 2, 2], strides=[4, 2, 1])
    result = session.execute(case)
    assert result["plan"]["status"] == abi.FL_UNIMPLEMENTED
    assert result["run"] is None
    assert session.live.memory == {}


def test_an_inline_device_cannot_be_gated(session: Session) -> None:
    memory = bytearray(4096)
    session.attach_memory(memory)
    with pytest.raises(CommandError, match="cannot be gated"):
        session.execute({**neg_case(memory, [1, 2, 3, 4]), "gate": True})


def test_kernels_can_be_called_by_hand(session: Session) -> None:
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    sizes = {"array": [4], "ctype": "int64_t"}
    tensor = {"sizes": sizes, "strides": {"array": [1], "ctype": "int64_t"}, "numel": 4, "ndim": 1, "dtype": 6}
    slot = {"struct": "fl_arg", "fields": {"tag": 1, "value": {"tensor": {"struct": "fl_tensor", "fields": tensor}}}}
    outs = {"array": [{"struct": "fl_tensor", "fields": tensor}], "ctype": "const fl_tensor*"}
    fields = {"args": {"array": [slot], "ctype": "fl_arg"}, "outs": outs, "n_args": 1, "n_outs": 1}
    good = {"struct": "fl_call", "fields": fields}
    plan = call(session, "kernel.plan", "kernel/0/aten::neg/r1/generic", "d0", good, {"out": "fl_plan"})
    assert plan["status"] == abi.FL_OK
    assert plan["outs"][0]["token"] == 7
    wrong = {"struct": "fl_call", "fields": {**fields, "n_args": 0}}
    bad = call(session, "kernel.plan", "kernel/0/aten::neg/r1/generic", "d0", wrong, {"out": "fl_plan"})
    assert bad["status"] == abi.FL_INVALID_ARGUMENT
    assert bad["untouched"] == [True]


def test_storms_report_calls_and_breaches(session: Session) -> None:
    def loop(**command: Any) -> dict[str, Any]:
        return session.execute({"do": "loop", **command})

    # One thread: the fake's byte counter takes no lock.
    storm = loop(name="alloc_storm", device="d0", threads=1, count=3000, max_bytes=5000, seed=3)
    assert storm == {"calls": 6000, "failures": 0, "wrong": 0, "first_failure": None}
    for what in ("stream", "event", "alloc"):
        assert loop(name="cycle", device=0, what=what, count=50)["failures"] == 0
    assert loop(name="cycle", device=0, what="failed_alloc", count=50, bytes=1 << 40)["wrong"] == 0
    assert loop(name="cycle", device=0, what="failed_alloc", count=50, bytes=64)["wrong"] == 50
    assert loop(name="error_storm", device=0, threads=2, count=1000)["wrong"] == 0
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream", "save": "s"})
    assert loop(name="submit_storm", stream="s", record="r", threads=4, count=50)["failures"] == 0
    assert sorted(session.execute({"do": "tickets", "name": "r"})["values"]) == list(range(200))
    with pytest.raises(CommandError, match="unknown loop"):
        loop(name="nonsense")


def test_close_releases_what_commands_left(plugin: PluginBuilder) -> None:
    session = Session(plugin("good"))
    session.execute({"do": "describe"})
    call(session, "memory.alloc", "d0", ALLOC(4096), {"out": "uint64_t"})
    call(session, "stream.create", "d0", STREAM, {"out": "fl_stream"})
    assert session.close() == []
    # The fake allows one handle and counts its bytes: a second session in this process sees what is left.
    second = Session(plugin("good"))
    second.execute({"do": "describe"})
    free, total = call(second, "memory.info", "d0", {"out": "uint64_t"}, {"out": "uint64_t"})["outs"]
    assert free == total
    assert second.close() == []


def test_a_fork_is_refused_once_the_plugin_is_in_use(plugin: PluginBuilder) -> None:
    session = Session(plugin("good"))
    describe = {"do": "fork", "commands": [{"do": "describe"}], "end": "exec"}
    before = session.execute(describe)
    assert (before["code"], before["hung"]) == (0, False)
    assert before["results"][0]["name"] == "fake"
    session.execute({"do": "describe"})
    after = session.execute(describe)
    assert "forked after the plugin had been used" in after["results"][0]["error"]
    session.close()


def test_exit_commands_end_the_process_with_their_code(plugin: PluginBuilder) -> None:
    for how in ("exit", "python"):
        program = (
            f"from torch_fl_spec.session import Session; s = Session({str(plugin('good'))!r}); "
            f"s.execute({{'do': 'shutdown_at_exit'}}); s.execute({{'do': 'exit', 'how': {how!r}, 'code': 5}})"
        )
        assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 5


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"do": "nonsense"}, "unknown command"),
        ({"do": "call", "fn": "memory.nonsense"}, "the plugin has no memory.nonsense"),
        ({"do": "call", "fn": "pinned.alloc"}, "the plugin has no pinned.alloc"),
        ({"do": "call", "fn": "device.sync", "args": [{"ref": "d0"}]}, "1 arguments where the function takes 2"),
        ({"do": "call", "fn": "device.sync", "args": [{"ref": "d0"}, -1]}, "-1 does not fit uint64_t"),
        ({"do": "call", "fn": "device.sync", "args": [{"ref": "d9"}, 0]}, "nothing is saved as 'd9'"),
        ({"do": "call", "fn": "device.info", "args": [{"ref": "d0"}, {"what": 1}]}, "not an argument"),
        ({"do": "gate_open", "name": "none"}, "no gate 'none'"),
        ({"do": "host_read", "name": "none", "bytes": 1}, "no host buffer 'none'"),
    ],
)
def test_malformed_commands_are_the_judges_mistake(session: Session, command: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        session.execute(command)


def test_resources_and_strings(session: Session, tmp_path: Path) -> None:
    resources = session.execute({"do": "resources"})
    with (tmp_path / "x").open("w"):
        assert session.execute({"do": "resources"})["fds"] == resources["fds"] + 1
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    pieces = [libc.malloc(100) for _ in range(1000)]
    grown = session.execute({"do": "resources"})["heap"] - resources["heap"]
    assert 100_000 <= grown < 200_000
    for piece in pieces:
        libc.free(ctypes.c_void_p(piece))
    assert session.execute({"do": "resources"})["heap"] - resources["heap"] < 20_000
    strings = session.execute({"do": "strings"})["strings"]
    assert bytes.fromhex(strings["root.name"][1]) == b"fake"
    assert session.execute({"do": "strings"})["strings"] == strings
