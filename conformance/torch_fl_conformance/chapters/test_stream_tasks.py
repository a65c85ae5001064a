"""Chapter stream, second part: host tasks run exactly once and in order, timing (FL-STREAM-010 and 012)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, task
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Event, Gate, Stream
from torch_fl_conformance.ordering import eventually, gates_work, still_pending
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

GATE_NS = 50_000_000
LEAST_ELAPSED_NS = 45_000_000


@rule("FL-STREAM-010")
def test_host_tasks_run_exactly_once(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Once each, in order, before what follows; also when the stream is destroyed or has failed."""
    _once_and_in_order(row, abi, effort.pick(200, 3000))
    _not_after_a_refused_submit(row, abi)
    if gates_work(abi):
        row.require("gated", "destroyed stream")
        _later_work_waits(row, abi)
        _destroyed_stream(row, abi)
    if "fl.fault" in abi.driver.describe()["extensions"]:
        row.require("failed stream")
        _failed_stream(row, abi)
    else:
        row.note("no fl.fault: host tasks of a failed stream were not looked at")


def _once_and_in_order(row: Row, abi: Abi, count: int) -> None:
    stream, tickets = abi.stream(), abi.driver.name("t")
    block = abi.alloc("d0", 64)
    for number in range(count):
        row.case(task=number)
        if number % 3 == 1:
            abi.fill(stream, block, number % 256)
        abi.ticket_task(stream, tickets, number)
    abi.sync(stream)
    got = abi.tickets(tickets)
    row.check(len(got) == count, "host tasks were lost or ran twice", expected=count, got=len(got))
    row.check(got == list(range(count)), "host tasks of one stream ran out of order", got=got[:20])
    still = eventually(lambda: len(abi.tickets(tickets)) != count, 0.01)
    row.check(not still, "a host task ran again later")


def _not_after_a_refused_submit(row: Row, abi: Abi) -> None:
    counter = abi.driver.name("c")
    row.case(what="submit to no stream")
    abi.expect(header.FL_INVALID_ARGUMENT, "stream.host_task", None, task("count", counter))
    ran = eventually(lambda: abi.count(counter)["calls"] > 0, 0.02)
    row.check(not ran, "a host task ran though its submit was refused")
    row.case(what="no function")
    abi.expect(header.FL_INVALID_ARGUMENT, "stream.host_task", abi.stream(), None, None)


def _later_work_waits(row: Row, abi: Abi) -> None:
    """The gate is itself the host task: what follows it in the stream waits until it returns."""
    for kind in ("fill", "copy", "task", "record"):
        row.case(later=kind)
        stream, block, event = abi.stream(), abi.alloc("d0", 64), abi.event()
        buffer, counter = abi.host_buffer(64, fill=1), abi.driver.name("c")
        abi.fill(stream, block, 2)
        abi.sync(stream)
        gate = abi.gate(stream)
        row.check(eventually(_entered(gate)), "a host task on an idle stream never ran")
        match kind:
            case "fill":
                abi.fill(stream, block, 3)
            case "copy":
                abi.queue("copier", "memory.copy", stream, abi.copy_args(buffer, block))
            case "task":
                abi.count_task(stream, counter)
            case "record":
                abi.record(event, stream)

        happened: Callable[[], bool] = {
            "fill": _complete(abi, stream),
            "copy": lambda: abi.read(buffer) != b"\x01" * 64,  # noqa: B023
            "task": lambda: bool(abi.count(counter)["calls"]),  # noqa: B023
            "record": _complete(abi, event),
        }[kind]
        still_pending(abi, row, happened, f"a {kind} behind a running host task did not wait for it")
        gate.open()
        if kind == "copy":
            abi.join("copier", 20.0)
        abi.sync(stream)
        if kind == "fill":
            row.check(abi.download(stream, block) == b"\x03" * 64, "the fill behind a host task was lost")


def _complete(abi: Abi, handle: Stream | Event) -> Callable[[], bool]:
    return lambda: abi.query(handle) == header.FL_OK


def _entered(gate: Gate) -> Callable[[], bool]:
    return lambda: gate.state()["entered"]


def _destroyed_stream(row: Row, abi: Abi) -> None:
    """Tasks that were pending when their stream was destroyed still run, once."""
    row.case(what="destroyed stream")
    row.label("destroyed stream")
    stream, counter = abi.stream(), abi.driver.name("c")
    gate = abi.gate(stream)
    for _ in range(5):
        abi.count_task(stream, counter)
    abi.destroy(stream)
    still_pending(abi, row, lambda: abi.count(counter)["calls"] > 0, "destroying a stream ran its tasks early")
    gate.open()
    row.check(
        eventually(lambda: abi.count(counter)["calls"] >= 5),
        "host tasks of a destroyed stream were dropped",
        expected=5,
        got=abi.count(counter)["calls"],
    )
    row.check(abi.count(counter)["calls"] == 5, "host tasks of a destroyed stream ran more than once")


def _failed_stream(row: Row, abi: Abi) -> None:
    """On a failed stream tasks run with the failure as their status, those already queued and later ones."""
    row.case(what="failed stream")
    row.label("failed stream")
    stream, counter = abi.stream(), abi.driver.name("c")
    block = abi.alloc("d0", 64)
    gate = abi.gate(stream) if gates_work(abi) else None
    abi.ok("fault.fail_next", stream, header.FL_ASYNC_FAILURE)
    abi.call("memory.fill", stream, block, 0, 7, 1, 64)
    queued = 0
    for _ in range(3):
        result = abi.call("stream.host_task", stream, task("count", counter))
        queued += result.ok
        if gate is not None:
            row.check(result.ok, f"{result} before the failing operation had run, expected OK")
    if gate is not None:
        gate.open()
    abi.call("stream.sync", stream, 20_000_000_000, timeout=20.0)
    row.check(
        eventually(lambda: abi.count(counter)["calls"] >= queued),
        "host tasks of a failed stream were dropped",
        expected=queued,
        got=abi.count(counter)["calls"],
    )
    told = abi.count(counter)
    row.check(told["calls"] == queued, "a host task whose submit failed ran all the same, or one ran twice", **told)
    row.check(
        all(status == header.FL_ASYNC_FAILURE for status in told["statuses"]),
        "a host task of a failed stream was not given ASYNC_FAILURE",
        **told,
    )
    abi.destroy(stream)


@rule("FL-STREAM-012", exclusive=True)
def test_elapsed_is_time_of_execution(row: Row, abi: Abi, effort: Effort) -> None:
    """A gate between two records shows in their distance, bracketed by the host's clock; misuse has its codes."""
    if gates_work(abi):
        row.require("gated")
        for trial in range(effort.pick(3, 10)):
            _bracketed(row, abi, trial)
    _codes(row, abi)
    stream, start, end = abi.stream(), abi.event(timing=True), abi.event(timing=True)
    count = effort.pick(1000, 10_000)
    outcome = abi.driver.execute(
        {
            "do": "loop",
            "name": "elapsed_storm",
            "start": start.ref,
            "end": end.ref,
            "stream": stream.ref,
            "count": count,
        },
        timeout=60.0,
    )
    row.count(count)
    row.check(
        not outcome["failures"] and not outcome["wrong"],
        "elapsed is negative, or fails, for two records in stream order",
        **outcome,
    )


def _bracketed(row: Row, abi: Abi, trial: int) -> None:
    row.case(trial=trial, gate_ns=GATE_NS)
    stream, start, end = abi.stream(), abi.event(timing=True), abi.event(timing=True)
    for event in (start, end, end, start):  # the times asked for later are those of the last records
        abi.record(event, stream)
        abi.sync(event)
    abi.elapsed(start, end)

    def now() -> int:
        return int(abi.driver.execute({"do": "now"})["nanoseconds"])

    before = now()
    abi.record(start, stream)
    abi.sync(start)
    gate = abi.gate(stream)
    abi.record(end, stream)
    opened = now() + GATE_NS
    still_pending(abi, row, lambda: abi.query(end) == header.FL_OK, "a record behind a gate was complete")
    result = abi.call("event.elapsed", start, end, out("int64_t"))
    row.check(result.status == header.FL_NOT_READY, f"{result} with a pending end, expected NOT_READY")
    row.check(all(result.untouched), "elapsed wrote its out parameter though the end is pending")
    result = abi.call("event.elapsed", end, start, out("int64_t"))
    row.check(result.status == header.FL_NOT_READY, f"{result} with a pending start, expected NOT_READY")
    row.check(all(result.untouched), "elapsed wrote its out parameter though the start is pending")
    eventually(lambda: now() >= opened)
    gate.open()
    abi.sync(end)
    whole = now() - before
    elapsed = abi.elapsed(start, end)
    row.check(
        LEAST_ELAPSED_NS <= elapsed <= whole,
        "the time between two records is not that of their execution",
        least=LEAST_ELAPSED_NS,
        most=whole,
        got=elapsed,
    )


def _codes(row: Row, abi: Abi) -> None:
    stream = abi.stream()
    timed, other, plain, unrecorded = (
        abi.event(timing=True),
        abi.event(timing=True),
        abi.event(),
        abi.event(timing=True),
    )
    for event in (timed, other, plain):
        abi.record(event, stream)
    abi.sync(stream)
    pairs: dict[str, tuple[Event, Event]] = {
        "start without TIMING": (plain, timed),
        "end without TIMING": (timed, plain),
        "start never recorded": (unrecorded, timed),
        "end never recorded": (timed, unrecorded),
    }
    if len(abi.devices) > 1:
        far_stream, far = abi.stream("d1"), abi.event("d1", timing=True)
        abi.record(far, far_stream)
        abi.sync(far)
        pairs["events of two devices"] = (timed, far)
    for what, (start, end) in pairs.items():
        row.case(what=what)
        abi.expect(header.FL_FAILED_PRECONDITION, "event.elapsed", start, end, out("int64_t"))
    row.case(what="same event twice")
    row.check(abi.elapsed(timed, timed) == 0, "the distance of an event to itself is not 0")
    row.case(what="in order")
    row.check(abi.elapsed(timed, other) >= 0, "elapsed is negative for two records in stream order")
