"""Orders that arise from several events and streams: chains, joins, many waiters, what stands behind a record.

Each check stalls one or two streams behind gates, gives the device every chance to get it wrong, and sees it right
when the gates open. home: the device of the events and of the streams that record them; other: that of who waits.
"""

from __future__ import annotations

from collections.abc import Callable

from torch_fl_spec import abi as header

from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Event, Stream
from torch_fl_conformance.ordering import eventually, still_pending
from torch_fl_conformance.row import Row

WAITERS = 20
MILLISECOND = 1_000_000


def device_pairs(devices: int) -> list[tuple[str, str]]:
    """(home, other) for the first two devices, each by itself and both ways across."""
    names = [f"d{index}" for index in range(min(devices, 2))]
    return [(home, other) for home in names for other in names]


def flag(abi: Abi) -> tuple[Callable[[Stream], None], Callable[[], bool]]:
    """(set it in a stream's order, whether it is set): an event of its own, recorded once.

    No host task: those of different streams may run one after the other, so that a gate elsewhere could hold it.
    """
    marks: list[Event] = []

    def set_in(stream: Stream) -> None:
        marks.append(abi.event(stream.device))
        abi.record(marks[-1], stream)

    return set_in, lambda: any(abi.query(mark) == header.FL_OK for mark in marks)


def stalls_apart(row: Row, abi: Abi, device: str) -> bool:
    """Whether work can be seen to complete while another stream of the device is stalled; else the row says so."""
    if abi.device_info(device)["independent_streams"]:
        return True
    row.note(f"{device} declares that its streams are not independent: nothing completes beside a stalled one")
    return False


def _complete(abi: Abi, handle: Stream | Event) -> Callable[[], bool]:
    return lambda: abi.query(handle) == header.FL_OK


def _any_of(*happened: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: any(question() for question in happened)


def later_work_is_not_covered(row: Row, abi: Abi, home: str, other: str, timing: bool) -> None:
    """A stall behind a record holds neither the event nor who waits for it."""
    if not stalls_apart(row, abi, home):
        return
    row.case(what="a stall behind a record", home=home, waiter=other, timing=timing)
    stream, waiter, event = abi.stream(home), abi.stream(other), abi.event(home, timing=timing)
    head = abi.gate(stream)
    abi.record(event, stream)
    behind = abi.gate(stream)
    set_flag, is_set = flag(abi)
    abi.wait(waiter, event)
    set_flag(waiter)
    still_pending(abi, row, is_set, "a wait did not hold", device=home)
    head.open()
    row.check(eventually(_complete(abi, event)), "an event waits for work submitted to its stream after the record")
    row.check(eventually(is_set), "who waits for an event also waits for work submitted after its record")
    abi.queue("syncer", "event.sync", event, 10_000 * MILLISECOND)
    results, pending = abi.join("syncer", 12.0)
    row.check(not pending and results[-1].ok, "event_sync waits for work submitted after the record")
    row.check(not behind.state()["done"], "the gate opened by itself")
    behind.open()
    abi.sync(stream)


def only_a_wait_remains(row: Row, abi: Abi, home: str, other: str) -> None:
    """A stream that has nothing left but a wait is not complete, for query and for both syncs."""
    row.case(what="only a wait remains", home=home, waiter=other)
    stream, waiter, event = abi.stream(home), abi.stream(other), abi.event(home)
    gate = abi.gate(stream)
    abi.record(event, stream)
    abi.wait(waiter, event)
    still_pending(
        abi, row, _complete(abi, waiter), "a stream is complete though it waits for a pending event", device=home
    )
    result = abi.call("stream.sync", waiter, MILLISECOND)
    row.check(result.status == header.FL_TIMEOUT, f"{result} on a stream that waits, expected TIMEOUT")
    result = abi.call("device.sync", other, MILLISECOND)
    row.check(result.status == header.FL_TIMEOUT, f"{result} on a device with a stream that waits, expected TIMEOUT")
    gate.open()
    row.check(eventually(_complete(abi, waiter)), "a stream that waits never became complete")


def chains_of_waits_hold(row: Row, abi: Abi, home: str, other: str) -> None:
    """A record behind a wait is complete with the wait, though its stream has no work of its own."""
    row.case(what="a chain of waits", home=home, waiter=other)
    stream, waiter, third = abi.stream(home), abi.stream(other), abi.stream(home)
    first, second = abi.event(home), abi.event(other)
    gate = abi.gate(stream)
    abi.record(first, stream)
    abi.wait(waiter, first)
    abi.record(second, waiter)
    set_flag, is_set = flag(abi)
    abi.wait(third, second)
    set_flag(third)
    still_pending(
        abi,
        row,
        lambda: is_set() or abi.query(second) == header.FL_OK,
        "an event is complete though the wait before its record is not: a chain of waits does not hold",
        device=home,
    )
    gate.open()
    row.check(eventually(is_set), "a chain of waits was never released")
    for handle in (waiter, second, third):
        abi.sync(handle)


def every_wait_of_a_join_holds(row: Row, abi: Abi, home: str, other: str) -> None:
    """A stream that waits for three events goes on after the last of them, whichever that is."""
    for last in range(3):
        row.case(what="join of three", home=home, waiter=other, last=last)
        streams, waiter = [abi.stream(home) for _ in range(3)], abi.stream(other)
        gates, set_and_is = [abi.gate(stream) for stream in streams], flag(abi)
        for stream in streams:
            event = abi.event(home)
            abi.record(event, stream)
            abi.wait(waiter, event)
        set_and_is[0](waiter)
        for number, gate in enumerate(gates):
            if number != last:
                gate.open()
        for number, stream in enumerate(streams):
            if number != last:
                abi.sync(stream)
        still_pending(
            abi, row, set_and_is[1], "one of several waits in a stream did not hold", device=home, pending=last
        )
        gates[last].open()
        row.check(eventually(set_and_is[1]), "a stream that waits for several events was never released")
        for stream in (*streams, waiter):
            abi.destroy(stream)


def every_waiter_is_held_and_released(row: Row, abi: Abi, home: str, other: str) -> None:
    """Twenty streams wait for one event."""
    row.case(what="fan-out", home=home, waiter=other, waiters=WAITERS)
    stream, event = abi.stream(home), abi.event(home)
    waiters, released = [abi.stream(other) for _ in range(WAITERS)], abi.driver.name("released")
    gate = abi.gate(stream)
    abi.record(event, stream)
    for waiter in waiters:
        abi.wait(waiter, event)
        abi.count_task(waiter, released)
    still_pending(abi, row, lambda: abi.count(released)["calls"], "one of several waits did not hold", device=home)
    gate.open()
    row.check(
        eventually(lambda: abi.count(released)["calls"] >= WAITERS),
        "one of several waiters was never released",
        released=abi.count(released)["calls"],
    )
    for waiter in waiters:
        abi.destroy(waiter)


def a_second_record_in_one_stream_is_a_second_generation(row: Row, abi: Abi, home: str, other: str) -> None:
    """Two records of one event in one stream, a stall between: who waits for the first is not held by it."""
    row.case(what="two records in one stream", home=home, waiter=other)
    stream, early, late, event = abi.stream(home), abi.stream(other), abi.stream(other), abi.event(home)
    (set_early, early_is_set), (set_late, late_is_set) = flag(abi), flag(abi)
    first = abi.gate(stream)
    abi.record(event, stream)
    abi.wait(early, event)
    set_early(early)
    second = abi.gate(stream)
    abi.record(event, stream)
    abi.wait(late, event)
    set_late(late)
    still_pending(abi, row, lambda: early_is_set() or late_is_set(), "a wait did not hold", device=home)
    first.open()
    row.check(eventually(early_is_set), "who waits for an event's first record waits for its second in that stream too")
    still_pending(
        abi,
        row,
        lambda: late_is_set() or abi.query(event) == header.FL_OK,
        "the second record of an event was complete with the first",
        device=home,
    )
    second.open()
    row.check(eventually(late_is_set), "who waits for an event's second record was never released")
    abi.sync(stream)


def priorities_change_no_order(row: Row, abi: Abi, device: str, priority: int) -> None:
    """Streams of this priority wait for others, and others for them, and complete when their work has."""
    row.case(what="waits", device=device, priority=priority)
    for recorder, waiter in ((0, priority), (priority, 0)):
        stream, behind, event = abi.stream(device, recorder), abi.stream(device, waiter), abi.event(device)
        gate = abi.gate(stream)
        abi.record(event, stream)
        set_flag, is_set = flag(abi)
        abi.wait(behind, event)
        set_flag(behind)
        early = _any_of(is_set, _complete(abi, event), _complete(abi, stream))
        still_pending(
            abi,
            row,
            early,
            "a stream with a priority is not held, or holds nobody",
            device=device,
            recorder=recorder,
            waiter=waiter,
        )
        gate.open()
        row.check(eventually(is_set), "a wait between streams of different priority never ended")
        for handle in (stream, behind):
            abi.sync(handle)


def devices_do_not_wait_for_each_other(row: Row, abi: Abi) -> None:
    """device_sync and stream_sync of one device return while a stream of another is stalled."""
    names = [f"d{index}" for index in range(min(len(abi.devices), 2))]
    for stalled, free in ((a, b) for a in names for b in names if a != b):
        gate = abi.gate(abi.stream(stalled))
        for function, handle in (("device.sync", free), ("stream.sync", abi.stream(free))):
            row.case(function=function, stalled=stalled, called_on=free)
            abi.queue("free device", function, handle, 15_000 * MILLISECOND)
            results, pending = abi.join("free device", 10.0)
            if pending:
                gate.open()
            row.check(not pending and results[-1].ok, f"{function} waits for a stalled stream of another device")
        row.check(not gate.state()["done"], "the gate opened by itself")
        gate.open()


def device_sync_covers_what_came_before(row: Row, abi: Abi, device: str) -> None:
    """Work submitted while a thread is in device_sync does not hold it.

    Nothing tells when the thread is inside, so that it gets time and the check five attempts.
    """
    for attempt in range(5):
        row.case(function="device.sync", device=device, what="work submitted during the call", attempt=attempt)
        stream = abi.stream(device)
        first = abi.gate(stream)
        abi.queue("device syncer", "device.sync", device, 15_000 * MILLISECOND)
        abi.join("device syncer", 0.02 * (attempt + 1))
        second = abi.gate(stream)
        first.open()
        results, pending = abi.join("device syncer", 1.0)
        second.open()
        if pending:
            abi.join("device syncer", 20.0)
            abi.destroy(stream)
            continue
        row.check(results[-1].ok, f"{results[-1]}, expected OK")
        abi.destroy(stream)
        return
    row.fail("device_sync waits for work that was submitted during the call", device=device)
