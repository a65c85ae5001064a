"""Chapter stream, events: records, the waits bound to them, events that are gone (FL-STREAM-003, 004 and 006)."""

from __future__ import annotations

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.edges import event_cells, run_cells
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.event_graphs import (
    a_second_record_in_one_stream_is_a_second_generation,
    chains_of_waits_hold,
    device_pairs,
    every_wait_of_a_join_holds,
    every_waiter_is_held_and_released,
    flag,
    later_work_is_not_covered,
    stalls_apart,
)
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.ordering import eventually, gates_work, still_pending
from torch_fl_conformance.payload import WORD
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

WORDS = 32
SIZE = WORDS * WORD


@rule("FL-STREAM-003")
def test_a_record_covers_all_earlier_work(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """A record completes after everything submitted before it; each record starts a new generation."""
    if not gates_work(abi):
        run_cells(abi, row, rng, event_cells(len(abi.devices)), effort)
        return
    row.require("gated", "re-record", "many generations")
    for device in ("d0", "d1")[: len(abi.devices)]:
        for position in ("head", "middle", "last", "last of a queue"):
            _record_behind(row, abi, position, device)
        _re_record(row, abi, device)
    for home, other in device_pairs(len(abi.devices)):
        later_work_is_not_covered(row, abi, home, other, timing=home == other)
        chains_of_waits_hold(row, abi, home, other)
    _many_generations(row, abi, effort.pick(300, 1500))


def _record_behind(row: Row, abi: Abi, position: str, device: str) -> None:
    """The event stays pending while the gate stands anywhere before it, as the last operation too.

    "last of a queue": that operation begins when the record is in the queue already.
    """
    row.case(gate=position, device=device)
    stream, event, block = abi.stream(device), abi.event(device), abi.alloc(device, SIZE)
    front = abi.gate(stream) if position == "last of a queue" else None
    if position != "head":
        abi.fill(stream, block, 1)
    gate = abi.gate(stream)
    if position in ("head", "middle"):
        abi.fill(stream, block, 2)
    abi.record(event, stream)
    if front is not None:
        front.open()
    still_pending(
        abi,
        row,
        lambda: abi.query(event) == header.FL_OK,
        "an event was complete before the work recorded in it",
        device=device,
    )
    result = abi.call("event.sync", event, 1_000_000)
    row.check(result.status == header.FL_TIMEOUT, f"{result} on a pending event with 1 ms, expected TIMEOUT")
    gate.open()
    abi.sync(event)
    row.check(abi.query(event) == header.FL_OK, "an event that has been synced is not complete")
    abi.destroy(event)
    abi.destroy(stream)


def _re_record(row: Row, abi: Abi, device: str) -> None:
    """After a second record the event is pending again, and complete only with that one."""
    row.case(what="re-record", device=device)
    row.label("re-record")
    first, second, event = abi.stream(device), abi.stream(device), abi.event(device)
    abi.record(event, first)
    abi.sync(event)
    gate = abi.gate(second)
    abi.record(event, second)
    still_pending(
        abi,
        row,
        lambda: abi.query(event) == header.FL_OK,
        "a re-recorded event is complete as of its first record",
        device=device,
    )
    gate.open()
    abi.sync(event)


def _many_generations(row: Row, abi: Abi, count: int) -> None:
    """Generations do not wrap: hundreds of records, each waited for behind its own gate at the wrap points."""
    row.label("many generations")
    stream, other, event = abi.stream(), abi.stream(), abi.event()
    for number in range(1, count + 1):
        row.case(generation=number)
        if number not in (2, 128, 255, 256, 257, 258, 512, 513, 1024, 1025):
            abi.record(event, stream)
            continue
        gate = abi.gate(stream)
        abi.record(event, stream)
        set_flag, is_set = flag(abi)
        abi.wait(other, event)
        set_flag(other)
        still_pending(abi, row, is_set, "a wait on a late generation of an event did not hold", generation=number)
        gate.open()
        abi.sync(event)
        row.check(eventually(is_set), "a wait on a late generation of an event never ended", generation=number)


@rule("FL-STREAM-004")
def test_waits_bind_to_the_generation_at_the_call(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """All edges by event, and the bindings that one-bit events get wrong."""
    run_cells(abi, row, rng, event_cells(len(abi.devices)), effort)
    if not gates_work(abi):
        return
    row.require("gated")
    for home, other in device_pairs(len(abi.devices)):
        if stalls_apart(row, abi, home):
            row.require("re-record releases", "re-record does not release early")
            _later_record_changes_nothing(row, abi, home, other)
            _later_record_is_not_awaited_early(row, abi, home, other)
            _later_record_changes_nothing_for_a_busy_waiter(row, abi, home, other)
            every_wait_of_a_join_holds(row, abi, home, other)
            a_second_record_in_one_stream_is_a_second_generation(row, abi, home, other)
        every_waiter_is_held_and_released(row, abi, home, other)


def _later_record_changes_nothing(row: Row, abi: Abi, home: str, waiter_device: str) -> None:
    """A waiter is released by the generation it bound to, though the event is recorded again behind a stall."""
    row.case(what="re-record after wait", waiter=waiter_device)
    row.label("re-record releases")
    first, second, waiter, event = abi.stream(home), abi.stream(home), abi.stream(waiter_device), abi.event(home)
    gate, later = abi.gate(first), abi.gate(second)
    abi.record(event, first)
    set_flag, is_set = flag(abi)
    abi.wait(waiter, event)
    set_flag(waiter)
    abi.record(event, second)
    still_pending(abi, row, is_set, "a wait did not hold", waiter=waiter_device)
    gate.open()
    row.check(
        eventually(is_set),
        "a waiter was not released by its generation: a later record blocks it",
        waiter=waiter_device,
    )
    still_pending(abi, row, lambda: abi.query(event) == header.FL_OK, "an event re-recorded behind a stall is complete")
    later.open()
    abi.sync(waiter)


def _later_record_changes_nothing_for_a_busy_waiter(row: Row, abi: Abi, home: str, waiter_device: str) -> None:
    """A wait binds when it is submitted, not when its stream gets to it: the event is recorded again in between."""
    row.case(what="re-record before the waiting stream gets to its wait", waiter=waiter_device)
    first, second, waiter, event = abi.stream(home), abi.stream(home), abi.stream(waiter_device), abi.event(home)
    abi.record(event, first)
    abi.sync(first)
    busy, later = abi.gate(waiter), abi.gate(second)
    set_flag, is_set = flag(abi)
    abi.wait(waiter, event)
    set_flag(waiter)
    abi.record(event, second)
    busy.open()
    row.check(
        eventually(is_set),
        "a wait was bound when its stream got to it: a record made after the call blocks it",
        waiter=waiter_device,
    )
    later.open()
    abi.sync(waiter)


def _later_record_is_not_awaited_early(row: Row, abi: Abi, home: str, waiter_device: str) -> None:
    """A waiter bound to a stalled generation is not released by a later record that completes at once."""
    row.case(what="record that completes at once after wait", waiter=waiter_device)
    row.label("re-record does not release early")
    first, second, waiter, event = abi.stream(home), abi.stream(home), abi.stream(waiter_device), abi.event(home)
    gate = abi.gate(first)
    abi.record(event, first)
    set_flag, is_set = flag(abi)
    abi.wait(waiter, event)
    set_flag(waiter)
    abi.record(event, second)
    abi.sync(second)
    still_pending(abi, row, is_set, "a waiter was released by a later record of its event", waiter=waiter_device)
    gate.open()
    row.check(eventually(is_set), "a waiter was never released", waiter=waiter_device)
    abi.sync(waiter)


@rule("FL-STREAM-006")
def test_events_without_a_record_and_without_a_handle(row: Row, abi: Abi) -> None:
    """A never-recorded event is complete and holds nobody; a destroyed one still holds those who wait."""
    for device in ("d0", "d1")[: len(abi.devices)]:
        row.case(what="never recorded", device=device)
        event, stream = abi.event(device), abi.stream(device)
        row.check(abi.query(event) == header.FL_OK, "event_query of a never-recorded event is not OK")
        abi.queue("waiter", "event.sync", event, 10_000_000_000)
        results, pending = abi.join("waiter", 12.0)
        row.check(not pending and results[-1].ok, "event_sync of a never-recorded event does not return OK")
        set_flag, is_set = flag(abi)
        abi.wait(stream, event)
        set_flag(stream)
        row.check(eventually(is_set, 10.0), "a wait on a never-recorded event blocks its stream")
    if not gates_work(abi):
        return
    row.require("gated")
    for device in ("d0", "d1")[: len(abi.devices)]:
        row.case(what="destroyed", waiter=device)
        first, waiter, event = abi.stream(), abi.stream(device), abi.event()
        gate = abi.gate(first)
        abi.record(event, first)
        set_flag, is_set = flag(abi)
        abi.wait(waiter, event)
        set_flag(waiter)
        abi.destroy(event)
        still_pending(abi, row, is_set, "destroying an event released those who wait for it", waiter=device)
        gate.open()
        row.check(eventually(is_set), "a waiter on a destroyed event was never released", waiter=device)
