"""Chapter extension.fault: operations that fail or take longer on demand (FL-FAULT-001 and 002)."""

from __future__ import annotations

from torch_fl_spec import abi as header

from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Stream
from torch_fl_conformance.operations import NEW, SIZE, Operations, fail_next, need_fault
from torch_fl_conformance.ordering import gates_work, still_pending
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

ADMITTED = (header.FL_ASYNC_FAILURE, header.FL_DEVICE_LOST)
DELAY_NS = 60_000_000
MILLISECOND = 1_000_000


@rule("FL-FAULT-001")
def test_the_next_operation_fails(row: Row, abi: Abi) -> None:
    """Each kind of operation fails, when it executes; what was submitted before it, and other streams, do not."""
    need_fault(row, abi)
    row.require("refusal", "host task between", *(["gated"] if gates_work(abi) else []))
    for device in (f"d{index}" for index in range(len(abi.devices))):
        operations = Operations(abi, device)
        for kind in operations.kinds:
            _fails(row, abi, operations, kind)
        _refused_statuses(row, abi, operations)
        _goes_with_its_stream(row, abi, device)


def _fails(row: Row, abi: Abi, operations: Operations, kind: str) -> None:
    """fill; fail_next; a host task; the operation, all behind a gate where there is one."""
    row.case(device=operations.device, kind=kind)
    stream, other = abi.stream(operations.device), abi.stream(operations.device)
    earlier, counter, before = abi.alloc(operations.device, SIZE), abi.driver.name("c"), abi.event(operations.device)
    operations.reset(other)
    gate = abi.gate(stream) if gates_work(abi) else None
    abi.fill(stream, earlier, 0x42)
    abi.record(before, stream)
    fail_next(abi, stream)
    abi.count_task(stream, counter)
    row.label("host task between")
    submitted = operations.submit(row, kind, stream, stalled=gate is not None)
    if gate is None:
        _told(row, submitted.status if submitted else None, f"the submit of a failing {kind} on an INLINE device")
    else:
        row.check(
            submitted is None or submitted.ok or kind in ("h2d", "d2h"),
            f"{submitted} for a failing {kind} before it has executed, expected OK",
        )
        still_pending(
            abi,
            row,
            lambda: abi.query(stream) != header.FL_NOT_READY,
            f"a {kind} failed before it was its turn to execute",
            device=operations.device,
        )
        gate.open()
        if submitted is None:
            operations.waited()
    _told(row, abi.call("stream.sync", stream, 20_000_000_000, timeout=20.0).status, f"sync behind a failed {kind}")
    _told(row, abi.query(stream), f"query behind a failed {kind}")
    abi.sync(before)
    row.check(
        abi.download(other, earlier) == b"\x42" * SIZE,
        f"what was submitted before a failing {kind} did not complete",
    )
    row.check(abi.count(counter)["calls"] == 1, "a host task before the failing operation did not run once")
    _works(row, abi, operations, kind, other, "in another stream")
    abi.destroy(stream)
    fresh = abi.stream(operations.device)
    _works(row, abi, operations, kind, fresh, "in a new stream after a failure")
    for handle in (fresh, other):
        abi.destroy(handle)
    if gate is not None:
        row.label("gated")


def _told(row: Row, status: int | None, where: str) -> None:
    got = "nothing" if status is None else header.status_name(status)
    row.check(status == header.FL_ASYNC_FAILURE, f"{where} returned {got}, expected ASYNC_FAILURE")


def _works(row: Row, abi: Abi, operations: Operations, kind: str, stream: Stream, where: str) -> None:
    """The same operation in a healthy stream does its work."""
    operations.reset(stream)
    result = operations.submit(row, kind, stream, stalled=False)
    row.check(result is not None and result.ok, f"{result} for a {kind} {where}, expected OK")
    abi.sync(stream)
    row.check(operations.words(kind, stream) == {NEW}, f"a {kind} {where} did not do its work")


def _refused_statuses(row: Row, abi: Abi, operations: Operations) -> None:
    """Other statuses are refused, and nothing fails then."""
    stream = abi.stream(operations.device)
    for status in (*range(-1, 12), 1000):
        if status in ADMITTED:
            continue
        row.case(device=operations.device, status=status)
        abi.expect(header.FL_INVALID_ARGUMENT, "fault.fail_next", stream, status)
        row.label("refusal")
    _works(row, abi, operations, "fill", stream, "after refused calls of fail_next")
    abi.destroy(stream)


def _goes_with_its_stream(row: Row, abi: Abi, device: str) -> None:
    """What was laid ready for a stream goes with it, however its memory is used again."""
    row.case(device=device, what="streams destroyed with a failure laid ready")
    block = abi.alloc(device, SIZE)
    for _ in range(8):
        doomed = abi.stream(device)
        fail_next(abi, doomed)
        abi.destroy(doomed)
        fresh = abi.stream(device)
        abi.fill(fresh, block, 0x17)
        abi.sync(fresh)
        abi.destroy(fresh)


@rule("FL-FAULT-002", exclusive=True)
def test_the_next_operation_is_slow(row: Row, abi: Abi, effort: Effort) -> None:
    """Each kind takes at least the delay, does its work, and the one behind it is as fast as ever."""
    need_fault(row, abi)
    row.require("slow", "fast again")
    for device in (f"d{index}" for index in range(effort.pick(1, len(abi.devices)))):
        operations = Operations(abi, device)
        stream = abi.stream(device)
        for kind in operations.kinds:
            row.case(device=device, kind=kind, delay_ns=DELAY_NS)
            operations.reset(stream)
            abi.count_task(stream, abi.driver.name("c"))
            began = _now(abi)
            abi.ok("fault.delay_next", stream, DELAY_NS)
            result = operations.submit(row, kind, stream, stalled=False)
            row.check(result is not None and result.ok, f"{result} for a delayed {kind}, expected OK")
            abi.sync(stream)
            took = _now(abi) - began
            row.check(took >= DELAY_NS, f"a delayed {kind} was over early", expected_ns=DELAY_NS, took_ns=took)
            row.check(operations.words(kind, stream) == {NEW}, f"a delayed {kind} did not do its work")
            row.label("slow")
            _fast_again(row, abi, operations, kind, stream)


def _fast_again(row: Row, abi: Abi, operations: Operations, kind: str, stream: Stream) -> None:
    """The quickest of some later operations takes less than the delay; a loaded machine may hold up single ones."""
    quickest = None
    for _ in range(20):
        began = _now(abi)
        operations.submit(row, kind, stream, stalled=False)
        abi.sync(stream)
        took = _now(abi) - began
        quickest = took if quickest is None else min(quickest, took)
        if quickest < DELAY_NS - 10 * MILLISECOND:
            row.label("fast again")
            return
    row.fail(f"operations behind a delayed {kind} are delayed too", delay_ns=DELAY_NS, quickest_ns=quickest)


def _now(abi: Abi) -> int:
    """The driver's monotonic clock, ns."""
    return int(abi.driver.execute({"do": "now"})["nanoseconds"])
