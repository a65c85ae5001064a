"""The log function is called with no lock of the plugin held: calls that log race with a host that holds its own lock.

One thread ("holder") makes its calls while it holds the lock that the log function takes, another ("logger") makes
calls that log. If the plugin logs under a lock that the holder's call needs, the two wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.handles import Gate
from torch_fl_conformance.moves import call_command
from torch_fl_conformance.ordering import gates_work
from torch_fl_conformance.row import Row

ROUNDS = 100
LOGGERS_SHARE = 5  # rounds of the logger to one of the holder, which waits in each call: so that they end together
FAILURES = 8
HELD_SECONDS = 0.001
REASON = "the log function is called with a lock held: calls of two threads wait for each other"

Call = tuple[Any, ...]


def check_log_locks(row: Row, fresh_driver: FreshDriver) -> None:
    """Allocations, refusals, pinned memory; open and close; the failure of a stream.

    A plugin need not log. The row is labelled "log" where it did, so that the report tells the two apart.
    """
    abi = Abi(fresh_driver(log=True))
    row.case(what="log function", calls="memory", rounds=ROUNDS)
    _race(row, abi, ROUNDS, ("d0", "d0"), _memory(abi), _memory(abi))
    if len(abi.devices) > 1:
        row.case(what="log function", calls="open and close", rounds=ROUNDS)
        _race(row, abi, ROUNDS, ("d0", "d1"), _reopen("d0"), _reopen("d1"))
    if "fl.fault" in abi.driver.describe()["extensions"]:
        for number in range(FAILURES):
            row.case(what="log function", calls="a failing stream", number=number)
            _failing_stream(row, abi)
    if abi.driver.execute({"do": "log"})["count"]:
        row.label("log")
    else:
        row.note("the plugin never called the log function, so that no lock around it could show")


def _memory(abi: Abi) -> Callable[[str], list[Call]]:
    args = struct("fl_mem_alloc_args", {"bytes": 4096})
    refused = struct("fl_mem_alloc_args", {"bytes": 0})
    pinned = "fl.pinned" in abi.driver.describe()["extensions"]

    def calls(name: str) -> list[Call]:
        made: list[Call] = [
            ("memory.alloc", "d0", args, out("uint64_t", save=f"block {name}")),
            ("memory.free", "d0", f"block {name}", 4096),
            ("memory.alloc", "d0", refused, out("uint64_t")),
        ]
        if pinned:
            made += [
                ("pinned.alloc", "d0", 4096, out("void*", save=f"pinned {name}")),
                ("pinned.free", "d0", f"pinned {name}"),
            ]
        return made

    return calls


def _reopen(device: str) -> Callable[[str], list[Call]]:
    opened = ("device.open", int(device[1:]), struct("fl_device_open_args"), out("fl_device", save=device))
    return lambda _: [("device.close", device), opened]


def _race(
    row: Row,
    abi: Abi,
    rounds: int,
    devices: tuple[str, str],
    holder: Callable[[str], list[Call]],
    logger: Callable[[str], list[Call]],
) -> None:
    """The holder's rounds and the logger's, which are more; every call must return within the time.

    Both begin once all calls are queued: calls that run as they are queued hardly ever meet. devices: on which each
    thread may have a stream until then.
    """
    threads = ("holder", "logger")
    gates = [_hold_back(abi, thread, device) for thread, device in zip(threads, devices, strict=True)]
    queued = dict.fromkeys(threads, 2)
    commands = []
    for thread, calls, count, lock in (
        ("holder", holder, rounds, True),
        ("logger", logger, LOGGERS_SHARE * rounds, False),
    ):
        for _ in range(count):
            made = calls(abi.driver.name(thread))
            commands += [_queued(thread, call, lock) for call in made]
            queued[thread] += len(made)
    abi.driver.execute_all(commands)
    abi.driver.execute_all(
        [{"do": "gate_open", "name": gate.ref} for gate in gates]
    )  # one exchange: both start together
    for thread, count in queued.items():
        results, pending = abi.join(thread, 20.0)
        row.check(not pending, REASON, thread=thread)
        row.check(len(results) == count, "calls were lost", thread=thread)


def _hold_back(abi: Abi, thread: str, device: str) -> Gate:
    """Two calls on the thread: one that does not return before the gate opens, and one that destroys its stream."""
    stream = abi.stream(device)
    if gates_work(abi):
        gate = abi.gate(stream)
        abi.queue(thread, "stream.sync", stream, 60_000_000_000)
    else:
        gate = abi.gate(stream, thread)
    abi.forget(stream)
    abi.queue(thread, "stream.destroy", stream)
    return gate


def _queued(thread: str, call: Call, lock: bool) -> dict[str, Any]:
    """The command that queues a call on a thread; lock: it is made under the lock."""
    return {**call_command(*call), "thread": thread, "log_lock": HELD_SECONDS if lock else False}


def _failing_stream(row: Row, abi: Abi) -> None:
    """A stream fails, and may say so, while another thread asks after it under the lock."""
    stream, block = abi.stream(), abi.alloc("d0", 64)
    abi.ok("fault.delay_next", stream, 2_000_000)
    abi.ok("fault.fail_next", stream, header.FL_ASYNC_FAILURE)
    queries = [_queued("holder", ("stream.query", stream), lock=True)] * 25
    abi.driver.execute_all(queries)
    abi.call("memory.fill", stream, block, 0, 1, 1, 64)
    abi.driver.execute_all(queries)
    _, pending = abi.join("holder", 20.0)
    row.check(not pending, REASON, call="stream.query of a stream that fails")
    abi.call("stream.sync", stream, 20_000_000_000, timeout=20.0)
    abi.destroy(stream)
    abi.free(block)
