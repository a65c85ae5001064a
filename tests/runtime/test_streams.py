"""Streams and events: torch's and torch.fl's are interchangeable, and order work as they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_fl import fl

from .processes import prints
from .stalling import Gate, fail_next

pytestmark = pytest.mark.usefixtures("devices")

ASYNC = 0  # fl:0 and fl:1: asynchronous, with fl.fault
INLINE = 2  # fl:2 and fl:3: another vendor, inline

STREAMS: dict[str, Callable[[], torch.Stream]] = {
    "torch.Stream": lambda: torch.Stream("fl:0"),
    "torch.fl.Stream": lambda: fl.Stream(0),
    "default": lambda: fl.default_stream(0),
}
EVENTS: dict[str, Callable[[], torch.Event]] = {
    "torch.Event": lambda: torch.Event("fl", enable_timing=True),
    "torch.fl.Event": lambda: fl.Event(enable_timing=True),
    "record_event": lambda: fl.Stream(0).record_event(torch.Event("fl:0", enable_timing=True)),
}


def in_thread(function: Callable[[], Any]) -> Any:
    """What the function returns in a fresh thread."""
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


def test_default_stream_is_current_until_another_is_set() -> None:
    stream = fl.Stream(1)
    assert fl.current_stream(1) == fl.default_stream(1) != stream
    with fl.stream(stream):
        assert fl.current_stream(1) == stream == torch.accelerator.current_stream(1)
        assert fl.current_device() == 1
        assert fl.current_stream(0) == fl.default_stream(0)
    assert fl.current_stream(1) == fl.default_stream(1)
    assert fl.current_device() == 0


def test_torch_stream_is_a_context_as_well() -> None:
    stream = torch.Stream("fl:1")
    with stream:
        assert fl.current_stream() == stream
    assert fl.current_stream(1) == fl.default_stream(1)


def test_no_stream_and_no_device_change_nothing() -> None:
    with fl.stream(None), fl.device(None), fl.device(-1):
        assert (fl.current_device(), fl.current_stream()) == (0, fl.default_stream(0))


def test_current_device_and_stream_are_a_threads_own() -> None:
    with fl.device("fl:3"), fl.stream(fl.Stream()):
        assert in_thread(lambda: (fl.current_device(), fl.current_stream(3).stream_id)) == (0, 0)


def test_streams_take_turns_per_priority() -> None:
    least = fl.get_device_properties(0).priority_least
    first, *others, last = [fl.Stream(0, priority=least) for _ in range(33)]
    assert len({stream.stream_id for stream in (first, *others)}) == 32
    assert last == first
    assert first.priority == least


def test_priorities_out_of_range_are_clamped() -> None:
    properties = fl.get_device_properties(0)
    assert fl.Stream(0, priority=-1000).priority == properties.priority_greatest
    assert fl.Stream(0, priority=1000).priority == properties.priority_least


def test_streams_compare_and_print() -> None:
    stream = fl.Stream("fl:1")
    same = torch.Stream(stream_id=stream.stream_id, device_index=1, device_type=stream.device_type)
    assert stream == same == fl.Stream(stream_id=stream.stream_id, device_index=1)
    assert hash(stream) == hash(same)
    assert repr(stream) == f"<torch.fl.Stream device=fl:1 stream_id={stream.stream_id}>"
    assert stream.device == torch.device("fl:1")


@pytest.mark.parametrize("make_event", EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("make_stream", STREAMS.values(), ids=STREAMS)
def test_every_stream_takes_every_event(
    make_stream: Callable[[], torch.Stream], make_event: Callable[[], torch.Event]
) -> None:
    stream, waiting, event, later = make_stream(), fl.Stream(0), make_event(), fl.Event(enable_timing=True)
    with Gate(stream) as gate:
        event.record(stream)
        waiting.wait_event(event)
        event.wait(torch.Stream("fl:0"))
        assert not event.query()
        assert not waiting.query()
        gate.open()
        waiting.synchronize()
        assert event.query()
    assert stream.record_event(later) is later
    later.synchronize()
    assert event.elapsed_time(later) >= 0
    assert isinstance(event, fl.Event)
    assert isinstance(stream.record_event(), fl.Event)


@pytest.mark.parametrize("make_other", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("make_stream", STREAMS.values(), ids=STREAMS)
def test_every_stream_waits_for_every_stream(
    make_stream: Callable[[], torch.Stream], make_other: Callable[[], torch.Stream]
) -> None:
    stream, other = make_stream(), make_other()
    with Gate(stream) as gate:
        other.wait_stream(stream)
        assert not other.query()
        gate.open()
        other.synchronize()
    assert other.query()


def test_work_behind_an_event_sees_what_came_before_it() -> None:
    first, second = fl.Stream(0), fl.Stream(0)
    source = torch.arange(1000.0, device="fl:0")
    fl.synchronize(0)
    with Gate(first) as gate:
        with fl.stream(first):
            target = torch.empty_like(source)
            target.copy_(source)
        second.wait_stream(first)
        with fl.stream(second):
            result = torch.empty_like(target)
            result.copy_(target)
        gate.open()
        second.synchronize()
    assert torch.equal(result.cpu(), torch.arange(1000.0))


def test_events_order_streams_of_two_devices() -> None:
    event = fl.Event()
    here, there = fl.Stream(0), fl.Stream(1)
    with Gate(here) as gate:
        event.record(here)
        there.wait_event(event)
        assert not there.query()
        gate.open()
        there.synchronize()


def test_a_stream_of_another_vendor_is_waited_for_by_the_thread() -> None:
    import torch_fl._bridge as bridge

    event, before = fl.Event(), bridge.host_waits()
    stream = fl.Stream(ASYNC)
    with Gate(stream) as gate:
        event.record(stream)
        waiter = threading.Thread(target=lambda: fl.Stream(INLINE).wait_event(event))
        waiter.start()
        while bridge.host_waits() == before:  # needs the GIL, which a waiting thread must not keep
            assert waiter.is_alive()
            time.sleep(0.001)
        assert not event.query()
        gate.open()
        waiter.join()
        assert event.query()
    assert bridge.host_waits() == before + 1


def test_event_never_recorded_is_complete_and_orders_nothing() -> None:
    event = fl.Event()
    assert event.query()
    event.synchronize()
    fl.current_stream(0).wait_event(event)
    assert repr(event).startswith("torch.Event device_type=fl")


def test_event_stays_with_the_device_of_its_first_record() -> None:
    event = fl.Event()
    event.record(fl.Stream(0))
    assert event.device == torch.device("fl:0")
    with pytest.raises(RuntimeError, match="event of fl:0 cannot be recorded on a stream of fl:1"):
        event.record(fl.Stream(1))


def test_elapsed_time_needs_timing() -> None:
    with_time, without = fl.Event(enable_timing=True), fl.Event()
    for event in (with_time, without):
        event.record()
        event.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        with_time.elapsed_time(without)
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        with_time.elapsed_time(fl.Event(enable_timing=True))


def test_events_between_processes_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="between processes"):
        fl.Event(interprocess=True)


WAITS: dict[str, Callable[[torch.Stream, torch.Event, torch.Tensor], Any]] = {
    "stream": lambda stream, event, x: stream.synchronize(),
    "event": lambda stream, event, x: event.synchronize(),
    "torch.fl": lambda stream, event, x: fl.synchronize(0),
    "torch.accelerator": lambda stream, event, x: torch.accelerator.synchronize("fl:0"),
    "item": lambda stream, event, x: x[0].item(),
    "cpu": lambda stream, event, x: x.cpu(),
    "copy_": lambda stream, event, x: torch.empty(8).copy_(x),
    "repr": lambda stream, event, x: repr(x),
    "another vendor": lambda stream, event, x: x.to("fl:2"),
    "another vendor's stream": lambda stream, event, x: fl.Stream(INLINE).wait_event(event),
    "CPU tier": lambda stream, event, x: torch.lgamma(x),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_waits_let_other_threads_run(wait: Callable[[torch.Stream, torch.Event, torch.Tensor], None]) -> None:
    stream, event, x = fl.Stream(0), fl.Event(), torch.ones(8, device="fl:0")
    fl.synchronize(0)
    with fl.stream(stream):
        wait(stream, event, x)  # imports what it needs while the stream is open
    turns = 0
    with Gate(stream) as gate, fl.stream(stream):
        x.add_(1)
        event.record(stream)

        def open_after_some_turns() -> None:
            nonlocal turns
            while turns < 100:
                turns += 1
                time.sleep(0.001)
            gate.open()

        opener = threading.Thread(target=open_after_some_turns)
        opener.start()
        wait(stream, event, x)
        assert turns == 100
        assert event.query()
        opener.join()


def test_synchronize_waits_for_every_stream_of_its_device_alone() -> None:
    here, there = fl.Stream(0), fl.Stream(1)
    with Gate(there):
        fl.synchronize(0)
        assert here.query()
        assert not there.query()


@pytest.mark.parametrize(
    "wait",
    [
        lambda stream, event: stream.synchronize(),
        lambda stream, event: fl.synchronize(0),
        lambda stream, event: [stream.query() for _ in iter(int, 1)],
    ],
    ids=["stream", "device", "query"],
)
def test_a_failure_surfaces_once_with_the_vendors_text(wait: Callable[[torch.Stream, torch.Event], None]) -> None:
    stream = fl.Stream(0)
    with fl.stream(stream):
        x = torch.ones(8, device="fl:0")
        stream.synchronize()
        fail_next(stream)
        x.zero_()
        with pytest.raises(RuntimeError, match=r"fl:0 \(reference\).*FL_ASYNC_FAILURE: an earlier operation"):
            wait(stream, fl.Event())
        fl.synchronize(0)
        assert stream.query()
        x.fill_(3)  # the stream works again
        assert x.tolist() == [3.0] * 8


def test_a_failure_leaves_other_streams_alone() -> None:
    stream = fl.Stream(0)
    x = torch.ones(8, device="fl:0")
    fl.synchronize(0)
    fail_next(stream)
    with fl.stream(stream):
        x.zero_()
    fl.default_stream(0).synchronize()
    assert x.add(1).tolist() == [2.0] * 8
    with pytest.raises(RuntimeError, match="FL_ASYNC_FAILURE"):
        stream.synchronize()


def test_ctrl_c_ends_every_wait() -> None:
    code = """
        import os, signal, threading, warnings
        import torch, torch_fl
        from tests.runtime.stalling import Gate
        from tests.runtime.test_streams import WAITS
        warnings.simplefilter("ignore")
        x, stream = torch.ones(8, device="fl:0"), torch.fl.Stream(0)
        torch.fl.synchronize(0)
        with torch.fl.stream(stream):
            for wait in WAITS.values():
                wait(stream, stream.record_event(), x)  # imports what it needs while the stream is open
        with Gate(stream) as gate, torch.fl.stream(stream):
            x.add_(1)
            event = stream.record_event()
            for name, wait in WAITS.items():
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    wait(stream, event, x)
                except KeyboardInterrupt:
                    print(name, stream.query())
        stream.synchronize()
        print("done", stream.query(), x.sum().item())
    """
    assert prints(code) == [f"{name} False" for name in WAITS] + ["done True 16.0"]


def test_threads_use_streams_of_their_own() -> None:
    def work(number: int) -> None:
        with fl.stream(fl.Stream(number % 4)):
            for step in range(50):
                x = torch.full((257,), float(number), device="fl")
                y = x.clone()
                if y.tolist() != [float(number)] * 257:
                    wrong.append((number, step))

    wrong: list[tuple[int, int]] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
