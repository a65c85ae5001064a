"""Chapter process: a pure query, fork, and ends of the process (FL-THREAD-006 and 007)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out
from torch_fl_conformance.calls import abi_call
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import DriverCrashed, exit_text
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.ordering import gates_work
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

SIZE = 4096
ENDS = (
    "idle",
    "work pending",
    "shutdown from an exit handler",
    "shutdown from an exit handler with work pending",
    "shutdown with work pending",
    "after shutdown",
)
COUNT_SECONDS = 1.0
CHILD_SECONDS = 10.0
"""For a child to use the device or to leave; the rule asks for 5 s, a loaded machine gets twice that."""


def _resources(driver: Driver) -> dict[str, Any]:
    process = Path("/proc") / str(driver.pid)
    return {
        "threads": len(list((process / "task").iterdir())),
        "open files": sorted(entry.name for entry in (process / "fd").iterdir()),
        "directory": str((process / "cwd").readlink()),
    }


@rule("FL-THREAD-006")
def test_query_is_pure_and_fork_is_survived(row: Row, fresh_driver: FreshDriver) -> None:
    """Nothing starts or opens in the query; children forked after it may use the plugin, later ones may leave."""
    driver = fresh_driver()
    row.case(what="resources around load and query")
    driver.start_empty()
    before = _resources(driver)
    changed = driver.load()
    after = _resources(driver)
    row.check(not changed, f"loading the plugin and calling its query changed the process's {', '.join(changed)}")
    for resource, value in before.items():
        row.check(
            after[resource] == value,
            f"loading the plugin and calling its query changed the process's {resource}",
            before=value,
            after=after[resource],
        )
    _count_opens_nothing(row, fresh_driver())
    row.case(what="fork after the query")
    child = driver.execute(
        {"do": "fork", "commands": _round_trip(), "end": "_exit", "timeout": CHILD_SECONDS}, CHILD_SECONDS
    )
    row.check(not child["hung"], "a child forked after the query hangs when it uses the plugin")
    row.check(child["code"] == 0, f"a child forked after the query ended with {exit_text(child['code'] or 0)}")
    _check_round_trip(row, child["results"], "a child forked after the query")
    row.case(what="the parent of a child forked after the query")
    abi = Abi(driver)
    stream, block = abi.stream(), abi.alloc("d0", SIZE)
    abi.fill(stream, block, 0x5C)
    row.check(abi.download(stream, block) == b"\x5c" * SIZE, "a parent got wrong bytes after a fork")
    for end in ("_exit", "exit", "exec"):
        row.case(what="fork after use", end=end)
        child = driver.execute({"do": "fork", "commands": [], "end": end, "timeout": CHILD_SECONDS}, CHILD_SECONDS)
        row.check(not child["hung"], f"a child forked while the plugin was in use hangs in {end}")
        row.check(
            child["code"] == 0, f"a child forked while the plugin was in use: {exit_text(child['code'])} in {end}"
        )
    abi.fill(stream, block, 0x6D)
    row.check(abi.download(stream, block) == b"\x6d" * SIZE, "a parent got wrong bytes after forks")
    abi.release_all()


def _count_opens_nothing(row: Row, driver: Driver) -> None:
    """device_count before anything is open: within a second, the same each time, and the process stays as it was."""
    driver.start()
    before = driver.execute({"do": "process_state"})
    counts, quickest = set(), COUNT_SECONDS
    for number in range(3):
        row.case(call="device.count", number=number)
        result = abi_call(driver, "device.count", out("int32_t"))
        row.check(result.ok, f"{result} before any device is open, expected OK")
        counts.add(result.value)
        quickest = min(quickest, result.seconds)
    row.check(len(counts) == 1, "device_count gives another number each time", got=sorted(counts))
    row.check(quickest < COUNT_SECONDS, f"device_count takes more than {COUNT_SECONDS:g} s", seconds=quickest)
    after = driver.execute({"do": "process_state"})
    changed = sorted(name for name, value in after.items() if value != before[name])
    row.check(not changed, f"device_count changed the process's {', '.join(changed)}")
    row.case(call="device.count", what="while every device is open")
    counts.add(Abi(driver).ok("device.count", out("int32_t")).value)
    row.check(len(counts) == 1, "device_count is another number while devices are open", got=sorted(counts))


def _round_trip() -> list[dict[str, Any]]:
    """Commands of a process that has made no call yet: describe, then a fill that is copied back."""

    def call(fn: str, *args: Any) -> dict[str, Any]:
        return {"do": "call", "fn": fn, "args": list(args)}

    stream, block = {"ref": "child stream"}, {"ref": "child block"}
    back = {
        "dst_space": header.FL_SPACE_HOST,
        "dst_base": {"host": "child buffer", "offset": 0},
        "src_space": header.FL_SPACE_DEVICE,
        "src_device": {"ref": "d0"},
        "src_base": block,
        "bytes": SIZE,
    }
    sized = {"struct": "fl_mem_alloc_args", "fields": {"bytes": SIZE}}
    created = {"out": "fl_stream", "save": "child stream"}
    return [
        {"do": "describe"},
        {"do": "host_alloc", "name": "child buffer", "bytes": SIZE, "fill": 0},
        call("stream.create", {"ref": "d0"}, {"struct": "fl_stream_create_args"}, created),
        call("memory.alloc", {"ref": "d0"}, sized, {"out": "uint64_t", "save": "child block"}),
        call("memory.fill", stream, block, 0, 0x4B, 1, SIZE),
        call("memory.copy", stream, {"struct": "fl_copy_args", "fields": back}),
        call("stream.sync", stream, 5_000_000_000),
        {"do": "host_read", "name": "child buffer", "offset": 0, "bytes": SIZE},
    ]


def _check_round_trip(row: Row, results: list[dict[str, Any]] | None, who: str) -> None:
    row.check(results, f"{who} ended before it had used the plugin")
    for result in results or []:
        row.check(
            "error" not in result and result.get("status", 0) == header.FL_OK,
            f"{who} could not use the plugin",
            **result,
        )
    row.check(results and bytes.fromhex(results[-1]["data"]) == b"\x4b" * SIZE, f"{who} got wrong bytes")


@rule("FL-THREAD-007")
def test_any_end_of_the_process_is_clean(row: Row, fresh_driver: FreshDriver) -> None:
    """Exit idle, with work pending, with a late shutdown, by the interpreter and after shutdown: code 0, no hang."""
    for how in ("exit", "python"):
        for state in ENDS:
            row.case(exit=how, state=state)
            driver = fresh_driver()
            abi = Abi(driver)
            for device in (f"d{index}" for index in range(len(abi.devices))):
                stream, block = abi.stream(device), abi.alloc(device, SIZE)
                abi.fill(stream, block, 1)
                row.check(abi.download(stream, block) == b"\x01" * SIZE, "a block that was filled holds something else")
                if "work pending" in state and gates_work(abi):
                    abi.gate(stream)
                    for value in range(8):
                        abi.fill(stream, block, value)
                    row.label("work pending")
            if "exit handler" in state:
                driver.execute({"do": "shutdown_at_exit"})
            elif state == "shutdown with work pending":
                abi.ok("root.shutdown", timeout=5.0)
            elif state == "after shutdown":
                abi.release_all()
                for index in range(len(abi.devices)):
                    abi.ok("device.close", f"d{index}")
                abi.ok("root.shutdown")
            began = time.monotonic()
            try:
                driver.execute({"do": "exit", "how": how})
            except DriverCrashed as end:
                took = time.monotonic() - began
                row.check(took < CHILD_SECONDS, f"the process took {took:.1f} s to end ({how}, {state})")
                row.check(
                    end.exit_code == 0,
                    f"the process ended with {exit_text(end.exit_code)} instead of 0 ({how}, {state})",
                    stderr=end.stderr_tail[-800:],
                )
