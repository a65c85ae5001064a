"""Chapter error, poison: where the failure of an operation is seen, where it is not, and how it ends (FL-ERROR-004)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct, task
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.handles import Block, CallResult, Event, Stream
from torch_fl_conformance.operations import SIZE, Operations, fail_next, need_fault
from torch_fl_conformance.ordering import eventually, gates_work
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

SYNC_NS = 20_000_000_000
FAILED, LOST = header.FL_ASYNC_FAILURE, header.FL_DEVICE_LOST


@rule("FL-ERROR-004")
def test_a_failure_poisons_its_stream(row: Row, abi: Abi, fresh_driver: FreshDriver, effort: Effort) -> None:
    """Submits, query, sync, events and waiting streams report it, again and again; others don't; destroy ends it."""
    need_fault(row, abi)
    row.require("submit", "waiter", "event", "host task", "bystander", "new stream", "device lost")
    devices = [f"d{index}" for index in range(len(abi.devices))]
    for device in devices:
        other = devices[(devices.index(device) + 1) % len(devices)]
        _along_every_path(row, abi, device, other)
    _new_streams_are_clean(row, abi, effort.pick(40, 400))
    _losing_a_device(row, Abi(fresh_driver()))


class _Scene:
    """A stream with a failing fill in the middle, and what stands around it; `submit` sets it up behind a gate."""

    def __init__(self, abi: Abi, device: str, other: str) -> None:
        self.abi, self.device = abi, device
        self.stream, self.waiter, self.second, self.bystander = (abi.stream(device) for _ in range(4))
        self.far = abi.stream(other)  # waits from the other device, where there is one
        self.before, self.behind, self.passed_on, self.late = (abi.event(device) for _ in range(4))
        self.earlier, self.failing, self.later = (abi.alloc(device, SIZE) for _ in range(3))
        self.waited = abi.alloc(device, SIZE)
        self.tasks = abi.driver.name("c")
        self.queued_tasks = 0

    def submit(self) -> None:
        """earlier work; the failing fill; a task, a fill and a record behind it; streams that wait for the record."""
        abi = self.abi
        for block in (self.earlier, self.failing, self.later, self.waited):
            abi.fill(self.bystander, block, 0x10)
        abi.sync(self.bystander)
        gate = abi.gate(self.stream) if gates_work(abi) else None
        abi.fill(self.stream, self.earlier, 0x21)
        abi.record(self.before, self.stream)
        fail_next(abi, self.stream)
        abi.call("memory.fill", self.stream, self.failing, 0, 0x21, 1, SIZE)
        self.queued_tasks += abi.call("stream.host_task", self.stream, task("count", self.tasks)).ok
        abi.call("memory.fill", self.stream, self.later, 0, 0x21, 1, SIZE)
        abi.call("event.record", self.behind, self.stream)
        abi.fill(self.waiter, self.waited, 0x32)
        for stream in (self.waiter, self.far):
            abi.call("stream.wait_event", stream, self.behind)
        abi.call("memory.fill", self.waiter, self.waited, 0, 0x33, 1, SIZE)
        self.queued_tasks += abi.call("stream.host_task", self.waiter, task("count", self.tasks)).ok
        abi.call("event.record", self.passed_on, self.waiter)
        abi.call("stream.wait_event", self.second, self.passed_on)
        if gate is not None:
            gate.open()

    def release(self) -> None:
        """Destroy and free all of it."""
        for stream in (self.stream, self.waiter, self.second, self.bystander, self.far):
            self.abi.destroy(stream)
        for event in (self.before, self.behind, self.passed_on, self.late):
            self.abi.destroy(event)
        for block in (self.earlier, self.failing, self.later, self.waited):
            self.abi.free(block)


def _along_every_path(row: Row, abi: Abi, device: str, other: str) -> None:
    scene = _Scene(abi, device, other)
    scene.submit()
    streams = {
        "the failed stream": scene.stream,
        "a stream that waits for it": scene.waiter,
        "a stream that waits for a waiting one": scene.second,
        "a stream of another device that waits for it" if other != device else "another waiting stream": scene.far,
    }
    for where, stream in streams.items():
        for time in ("first", "second", "third"):
            row.case(device=device, stream=where, asked=time)
            _reports(row, abi.call("stream.sync", stream, SYNC_NS, timeout=20.0), f"sync of {where}, the {time} time")
            _reports(row, abi.call("stream.query", stream), f"query of {where}, the {time} time")
            # Whether it tells of failed streams is open; it must not put an end to their failure.
            synced = abi.call("device.sync", stream.device, SYNC_NS, timeout=20.0)
            row.check(synced.status in (header.FL_OK, FAILED), f"{synced}, expected OK or ASYNC_FAILURE")
        row.label(*([] if stream is scene.stream else ["waiter"]))
    for where in ("the failed stream", "a stream that waits for it"):
        for call, result in _submits(abi, scene, streams[where]):
            row.case(device=device, stream=where, submit=call)
            _reports(row, result, f"{call} on {where}")
            row.label("submit")
    _events(row, abi, scene)
    _effects(row, abi, scene)
    _host_tasks(row, abi, scene)
    _bystander(row, abi, scene)
    scene.release()


def _reports(row: Row, result: CallResult, what: str) -> None:
    row.check(
        result.status == FAILED, f"{what} returned {result.status_name}, expected ASYNC_FAILURE", error=result.message
    )


def _submits(abi: Abi, scene: _Scene, stream: Stream) -> Iterator[tuple[str, CallResult]]:
    """Every way of submitting, each twice."""
    target, source = scene.later, scene.earlier
    buffer = abi.host_buffer(SIZE)
    for _ in range(2):
        yield "fill", abi.call("memory.fill", stream, target, 0, 1, 1, SIZE)
        yield "a copy within the device", abi.call("memory.copy", stream, abi.copy_args(target, source))
        yield "a copy to the device", abi.call("memory.copy", stream, abi.copy_args(target, buffer))
        yield "a copy from the device", abi.call("memory.copy", stream, abi.copy_args(buffer, source))
        yield "host_task", abi.call("stream.host_task", stream, task("count", f"refused {scene.tasks}"))
        yield "record", abi.call("event.record", scene.late, stream)
        yield "wait_event", abi.call("stream.wait_event", stream, scene.before)
        operations = Operations(abi, scene.device)
        if operations.payload is not None:
            words = SIZE // 4
            call = operations.payload.call(words, target, source, operations.zeros, 1)
            yield "run", abi.call("kernel.run", operations.payload.kernel, stream, call)


def _events(row: Row, abi: Abi, scene: _Scene) -> None:
    """Recorded behind the failure, handed on, or refused: failed. Recorded before it: complete."""
    failed = {
        "an event recorded behind the failing operation": scene.behind,
        "an event recorded on a waiting stream": scene.passed_on,
        "an event whose record a failed stream refused": scene.late,
    }
    for what, event in failed.items():
        for time in ("first", "second"):
            row.case(device=scene.device, event=what, asked=time)
            _reports(row, abi.call("event.query", event), f"query of {what}, the {time} time")
            _reports(row, abi.call("event.sync", event, SYNC_NS, timeout=20.0), f"sync of {what}, the {time} time")
            row.label("event")
    row.case(device=scene.device, event="recorded before the failing operation")
    for result in (abi.call("event.sync", scene.before, SYNC_NS), abi.call("event.query", scene.before)):
        row.check(result.ok, f"{result} for an event recorded before the failing operation, expected OK")
    row.case(device=scene.device, what="a stream that waits, late, for a failed event")
    late = abi.stream(scene.device)
    abi.call("stream.wait_event", late, scene.behind)
    _reports(row, abi.call("stream.sync", late, SYNC_NS), "sync of a stream that waited for an event long failed")
    abi.destroy(late)


def _effects(row: Row, abi: Abi, scene: _Scene) -> None:
    """What ran and what did not, read through a stream that has nothing to do with it."""
    expected: dict[str, tuple[Block, int]] = {
        "earlier work of the failed stream is missing": (scene.earlier, 0x21),
        "work behind the failure ran": (scene.later, 0x10),
        "earlier work of the waiting stream is missing, or its work behind the wait ran": (scene.waited, 0x32),
    }
    for what, (block, byte) in expected.items():
        row.case(device=scene.device, effects=what)
        got = abi.download(scene.bystander, block)
        row.check(got == bytes([byte]) * SIZE, what, expected=hex(byte), got=got[:8].hex())


def _host_tasks(row: Row, abi: Abi, scene: _Scene) -> None:
    """Those that were taken run once, with the failure; those that were refused never."""
    row.case(device=scene.device, host_tasks=scene.queued_tasks)
    row.check(
        eventually(lambda: abi.count(scene.tasks)["calls"] >= scene.queued_tasks),
        "host tasks of a failed stream did not run",
        expected=scene.queued_tasks,
        got=abi.count(scene.tasks)["calls"],
    )
    told = abi.count(scene.tasks)
    row.check(told["calls"] == scene.queued_tasks, "host tasks of a failed stream ran more than once", **told)
    row.check(
        all(status == FAILED for status in told["statuses"]),
        "a host task of a failed stream was not given ASYNC_FAILURE",
        statuses=[header.status_name(status) for status in told["statuses"]],
    )
    refused = abi.count(f"refused {scene.tasks}")
    row.check(not refused["calls"], "a host task ran though its submit was refused", **refused)
    row.label("host task")


def _bystander(row: Row, abi: Abi, scene: _Scene) -> None:
    """Another stream of the device works, and an event that it records anew is good again."""
    row.case(device=scene.device, what="a stream that has nothing to do with it")
    abi.fill(scene.bystander, scene.failing, 0x54)
    abi.record(scene.behind, scene.bystander)
    abi.sync(scene.behind)
    abi.sync(scene.bystander)
    row.check(abi.query(scene.bystander) == header.FL_OK, "a stream that has nothing to do with a failure is not OK")
    got = abi.download(scene.bystander, scene.failing)
    row.check(got == b"\x54" * SIZE, "a stream that has nothing to do with a failure did not do its work")
    row.label("bystander")


def _new_streams_are_clean(row: Row, abi: Abi, count: int) -> None:
    """A stream made after a poisoned one was destroyed is good, also where it has the same handle."""
    block = abi.alloc("d0", SIZE)
    seen: set[int] = set()
    for number in range(count):
        row.case(failed_streams=number + 1)
        stream, handle = _stream(abi)
        seen.add(handle)
        fail_next(abi, stream)
        abi.call("memory.fill", stream, block, 0, 0xEE, 1, SIZE)
        _reports(row, abi.call("stream.sync", stream, SYNC_NS, timeout=20.0), "sync behind a failed fill")
        abi.destroy(stream)
        fresh, handle = _stream(abi)
        row.label("new stream", *(["same handle"] if handle in seen else []))
        byte = number % 256
        for result in (abi.call("stream.query", fresh), abi.call("memory.fill", fresh, block, 0, byte, 1, SIZE)):
            row.check(result.ok, f"{result} on a stream made after a failed one was destroyed, expected OK")
        row.check(
            abi.download(fresh, block) == bytes([byte]) * SIZE, "a stream made after a failed one did not do its work"
        )
        abi.destroy(fresh)


def _stream(abi: Abi) -> tuple[Stream, int]:
    """A stream and its handle's number."""
    name = abi.driver.name("s")
    made = abi.ok("stream.create", "d0", struct("fl_stream_create_args"), out("fl_stream", save=name))
    return Stream(name, "d0"), made.value


def _losing_a_device(row: Row, abi: Abi) -> None:
    """In a process of its own: all that needs the device reports the loss; releasing still works; others go on."""
    row.case(what="FL_DEVICE_LOST")
    stream, bystander, event, failed = abi.stream(), abi.stream(), abi.event(), abi.event()
    waiter = abi.stream("d1" if len(abi.devices) > 1 else "d0")
    block, spare = abi.alloc("d0", SIZE), abi.alloc("d0", SIZE)
    counter = abi.driver.name("c")
    gate = abi.gate(stream) if gates_work(abi) else None
    fail_next(abi, stream, LOST)
    submitted = abi.call("memory.fill", stream, block, 0, 1, 1, SIZE)
    if gate is None:
        _is_lost(row, submitted, "the failing submit on an INLINE device")
    taken = abi.call("stream.host_task", stream, task("count", counter)).ok
    if len(abi.devices) > 1:  # a stream of another device that waits for it fails, and its device does not
        abi.call("event.record", failed, stream)
        abi.call("stream.wait_event", waiter, failed)
    if gate is not None:
        gate.open()
    calls: dict[str, tuple[Any, ...]] = {
        "stream.sync": (stream, SYNC_NS),
        "stream.query": (stream,),
        "memory.fill": (bystander, spare, 0, 1, 1, SIZE),
        "stream.host_task": (bystander, task("count", f"refused {counter}")),
        "event.record": (event, bystander),
        "device.sync": ("d0", SYNC_NS),
        "memory.alloc": ("d0", struct("fl_mem_alloc_args", {"bytes": SIZE}), out("uint64_t")),
        "stream.create": ("d0", struct("fl_stream_create_args"), out("fl_stream")),
        "event.create": ("d0", struct("fl_event_create_args"), out("fl_event")),
    }
    for fn, args in calls.items():
        row.case(what="FL_DEVICE_LOST", call=fn)
        _is_lost(row, abi.call(fn, *args, timeout=20.0), fn)
    for fn in ("stream.sync", "stream.query"):
        row.case(what="FL_DEVICE_LOST", call=fn, stream="another stream of the device")
        _is_lost(row, abi.call(fn, bystander, *([SYNC_NS] if fn == "stream.sync" else [])), f"{fn} of another stream")
    row.check(
        eventually(lambda: abi.count(counter)["calls"] >= taken), "a host task of a lost device's stream did not run"
    )
    told = abi.count(counter)
    row.check(
        told["calls"] == taken and all(status == LOST for status in told["statuses"]),
        "a host task of a lost device's stream ran twice, or was not given DEVICE_LOST",
        **told,
    )
    if len(abi.devices) > 1:
        row.case(what="FL_DEVICE_LOST", other_device="d1")
        waited = abi.call("stream.sync", waiter, SYNC_NS, timeout=20.0)
        row.check(waited.status in (FAILED, LOST), f"{waited} on a stream that waits for a lost device")
        elsewhere, memory = abi.stream("d1"), abi.alloc("d1", SIZE)
        abi.fill(elsewhere, memory, 0x65)
        row.check(abi.download(elsewhere, memory) == b"\x65" * SIZE, "a device does not work while another is lost")
    for fn, args in _releases(stream, bystander, event, block, spare):
        row.case(what="FL_DEVICE_LOST", release=fn)
        released = abi.call(fn, *args)
        row.check(released.status in (header.FL_OK, LOST), f"{released} on a lost device, expected OK or DEVICE_LOST")
    row.label("device lost")


def _releases(
    stream: Stream, bystander: Stream, event: Event, block: Block, spare: Block
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    yield from (("stream.destroy", (handle,)) for handle in (stream, bystander))
    yield "event.destroy", (event,)
    yield from (("memory.free", ("d0", memory, SIZE)) for memory in (block, spare))
    yield "device.close", ("d0",)


def _is_lost(row: Row, result: CallResult, what: str) -> None:
    row.check(
        result.status == LOST,
        f"{what} on a lost device returned {result.status_name}, expected DEVICE_LOST",
        error=result.message,
    )
