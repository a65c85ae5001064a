"""Chapter thread: any thread, no lock across waits or callbacks, ownership, borrowing (FL-THREAD-001 to 005, 008)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.handles import CallResult
from torch_fl_conformance.leaks import check_leaks, check_reopening
from torch_fl_conformance.log_locks import check_log_locks
from torch_fl_conformance.ordering import eventually, gates_work, still_pending
from torch_fl_conformance.payload import WORD, Affine, affine, words_of
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

WORDS = 64
SIZE = WORDS * WORD
LONG_ENOUGH = 60.0  # seconds after which a device that is slow gets no further trial of concurrent submits


@rule("FL-THREAD-001")
def test_no_call_depends_on_its_thread(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """One script over two devices, from one thread and from eight in turn, leaves the same bytes behind."""
    count = len(abi.devices)
    row.require("one thread", "rotated threads", *(["two devices"] if count > 1 else []))
    for _ in range(effort.pick(2, 10)):
        order = [int(v) for v in rng.integers(0, 8, 400)]
        images = [rng.integers(0, 256, SIZE, dtype=np.uint8).tobytes() for _ in range(count)]
        for what, threads in (("one thread", ["t0"]), ("rotated threads", [f"t{n}" for n in order])):
            row.label(what, *(["two devices"] if count > 1 else []))
            row.case(threads=what)
            _interleaved_script(row, abi, threads, images)
    if gates_work(abi):
        row.require("gated")
        for device in range(count):
            _sync_from_a_stranger(row, abi, f"d{device}", f"d{(device + 1) % count}")


class _Turns:
    """Calls from one thread after the other, each waited for."""

    def __init__(self, row: Row, abi: Abi, threads: list[str]) -> None:
        self.row, self.abi, self.threads, self.turn = row, abi, threads, 0

    def __call__(self, fn: str, *args: Any) -> CallResult:
        thread = self.threads[self.turn % len(self.threads)]
        self.turn += 1
        self.abi.queue(thread, fn, *args)
        results, pending = self.abi.join(thread, 20.0)
        self.row.check(not pending, f"{fn} does not return when called from thread {thread}")
        result = results[-1]
        self.row.check(result.ok, f"{result} when called from thread {thread}, expected OK", call=fn)
        return result


def _interleaved_script(row: Row, abi: Abi, threads: list[str], images: list[bytes]) -> None:
    """Each step is made for every device before the next one, so that a hidden current device is the wrong one."""
    call, count = _Turns(row, abi, threads), len(images)
    devices = [f"d{n}" for n in range(count)]
    names = {kind: [abi.driver.name(kind) for _ in devices] for kind in ("stream", "a", "b", "event")}
    sources, targets = ([abi.host_buffer(SIZE) for _ in devices] for _ in range(2))
    for source, image in zip(sources, images, strict=True):
        abi.write(source, image)
    sized = struct("fl_mem_alloc_args", {"bytes": SIZE})
    for n, device in enumerate(devices):
        call("memory.info", device, out("uint64_t"), out("uint64_t"))
        call("stream.create", device, struct("fl_stream_create_args"), out("fl_stream", save=names["stream"][n]))
    for kind in ("a", "b"):
        for n, device in enumerate(devices):
            call("memory.alloc", device, sized, out("uint64_t", save=names[kind][n]))
    for n, device in enumerate(devices):
        call("event.create", device, struct("fl_event_create_args"), out("fl_event", save=names["event"][n]))

    def copy(n: int, target: Any, source: Any) -> None:
        fields: dict[str, Any] = {"bytes": SIZE}
        for side, end in (("dst", target), ("src", source)):
            on_device = isinstance(end, str)
            fields[f"{side}_space"] = header.FL_SPACE_DEVICE if on_device else header.FL_SPACE_HOST
            fields[f"{side}_device"] = devices[n] if on_device else None
            fields[f"{side}_base"] = end if on_device else {"host": end.ref, "offset": 0}
        call("memory.copy", names["stream"][n], struct("fl_copy_args", fields))

    for n in range(count):
        copy(n, names["a"][n], sources[n])
    for n in range(count):
        copy(n, names["b"][n], names["a"][n])
    for n in range(count):
        call("memory.fill", names["stream"][n], names["b"][n], 0, 0x11 + n, 1, 16)
    for n in range(count):
        call("event.record", names["event"][n], names["stream"][n])
        call("stream.wait_event", names["stream"][n], names["event"][n])
    for n in range(count):
        copy(n, targets[n], names["b"][n])
    for n in range(count):
        call("event.sync", names["event"][n], 20_000_000_000)
        call("stream.sync", names["stream"][n], 20_000_000_000)
    for n, image in enumerate(images):
        expected = bytes([0x11 + n]) * 16 + image[16:]
        row.check(
            abi.read(targets[n]) == expected,
            "calls made from several threads gave other bytes than their arguments imply",
            device=devices[n],
        )
    for n, device in enumerate(devices):
        call("event.destroy", names["event"][n])
        call("stream.destroy", names["stream"][n])
        call("memory.free", device, names["a"][n], SIZE)
        call("memory.free", device, names["b"][n], SIZE)
    for buffer in (*sources, *targets):
        abi.release_host(buffer)


def _sync_from_a_stranger(row: Row, abi: Abi, device: str, other: str) -> None:
    """A thread that has only ever used another device waits for this one's stalled stream."""
    row.case(device=device, thread_used=other)
    stream = abi.stream(device)
    gate = abi.gate(stream)
    thread = f"stranger-{device}"
    abi.queue(thread, "memory.info", other, out("uint64_t"), out("uint64_t"))
    abi.join(thread, 10.0)
    for function, handle in (("stream.sync", stream), ("device.sync", device)):
        abi.queue(thread, function, handle, 20_000_000_000)
        still_pending(
            abi, row, lambda: not abi.join(thread, 0.0)[1], f"{function} returned early from a thread of another device"
        )
        gate.open()
        results, pending = abi.join(thread, 20.0)
        row.check(not pending, f"{function} did not return after the stream went on")
        row.check(results[-1].ok, f"{results[-1]} of {function} after the stream went on, expected OK")
        if function == "stream.sync":
            gate = abi.gate(stream)


@rule("FL-THREAD-002", exclusive=True)
def test_concurrent_calls_are_safe(row: Row, abi: Abi, seed: int, effort: Effort) -> None:
    """Eight threads submit to one stream, allocate on one device, create and destroy: nothing lost, nothing twice."""
    begun = time.monotonic()
    for trial in range(effort.pick(8, 20)):
        if trial and time.monotonic() - begun > LONG_ENOUGH:
            break
        # On an INLINE device every submit takes its turn, which costs more.
        _concurrent_submits(row, abi, trial, effort.pick(3000, 6000) if gates_work(abi) else effort.pick(800, 4000))
    for threads, count in ((8, effort.pick(4000, 100_000)), (1, effort.pick(4000, 100_000))):
        row.case(loop="alloc_storm", threads=threads, count=count)
        outcome = abi.driver.execute(
            {
                "do": "loop",
                "name": "alloc_storm",
                "device": 0,
                "threads": threads,
                "count": count,
                "max_bytes": 16_384,
                "seed": seed % 2**31,
            },
            timeout=120.0,
        )
        row.count(count)
        row.check(not outcome["wrong"], "ranges handed out to concurrent threads overlap or are misaligned", **outcome)
        row.check(not outcome["failures"], "alloc or free failed under concurrent calls", **outcome)
    for what in ("stream", "event", "alloc"):
        row.case(loop="cycle", what=what, threads=8)
        count = effort.pick(100, 1000)
        outcome = abi.driver.execute(
            {"do": "loop", "name": "cycle", "device": 0, "what": what, "threads": 8, "count": count}, timeout=120.0
        )
        row.count(count)
        row.check(not outcome["failures"], f"creating and destroying ({what}) failed under concurrent calls", **outcome)


def _concurrent_submits(row: Row, abi: Abi, trial: int, count: int) -> None:
    row.case(trial=trial, threads=8, submits=count)
    stream, block = abi.stream(), abi.alloc("d0", 64)
    record = abi.driver.name("storm")
    command = {"do": "loop", "name": "submit_storm", "stream": stream.ref, "record": record, "threads": 8}
    outcome = abi.driver.execute({**command, "count": count, "base": block.ref}, timeout=120.0)
    row.count(8 * count)
    row.check(not outcome["failures"], "a submit failed under concurrent submits", **outcome)
    abi.sync_storm(stream, record)
    answer = abi.driver.execute({"do": "tickets", "name": record})
    order = np.array(answer["values"])
    row.check(not answer["overlaps"], "host tasks of one stream ran at the same time", overlaps=answer["overlaps"])
    row.check(
        len(order) == 8 * count and len(np.unique(order)) == 8 * count,
        "host tasks of concurrent submits were lost or doubled",
        expected=8 * count,
        got=len(order),
        distinct=len(np.unique(order)),
    )
    for thread in range(8):
        own = order[order // count == thread]
        row.check(bool((np.diff(own) > 0).all()), "the submits of one thread did not run in its order", thread=thread)
    words = np.frombuffer(abi.download(stream, block, 0, 8 * 8), dtype="<u8")  # the loop fills words of 8 bytes
    row.check(
        bool((words == count).all()),
        "the last fill of each thread is not what its word holds",
        expected=count,
        got=words.tolist(),
    )
    abi.destroy(stream)
    abi.free(block)


@rule("FL-THREAD-003")
def test_a_blocking_call_blocks_no_other(row: Row, abi: Abi) -> None:
    """While one thread is in sync, others create, submit, query, plan, allocate and destroy."""
    if not gates_work(abi):
        row.case(what="INLINE")
        row.note("INLINE: no sync ever waits for work")
        return
    row.require("gated")
    for function in ("stream.sync", "event.sync", "device.sync"):
        row.case(blocked_in=function)
        stream, event = abi.stream(), abi.event()
        gate = abi.gate(stream)
        row.label("gated")
        abi.record(event, stream)
        handle = {"stream.sync": stream, "event.sync": event, "device.sync": "d0"}[function]
        abi.queue("blocked", function, handle, 30_000_000_000)
        row.check(not eventually(lambda: not abi.join("blocked", 0.0)[1], 0.02), f"{function} returned behind a stall")
        try:
            _everything_else(row, abi, stream, event, f"another thread is in {function}")
            row.check(abi.join("blocked", 0.0)[1], f"{function} returned behind a stall")
        finally:
            gate.open()
        results, pending = abi.join("blocked", 20.0)
        row.check(not pending and results[-1].ok, f"{function} did not return after the stream went on")


def _everything_else(row: Row, abi: Abi, busy: Any, recorded: Any, while_what: str) -> None:
    """Each call must return within 10 s; `busy` is a stream that is stalled, `recorded` an event recorded in it."""
    other, waiter, event, block = abi.stream(), abi.stream(), abi.event(), None
    may_wait = abi.device_info("d0")["alloc_may_wait"]
    names = [abi.driver.name(stem) for stem in "sebm"]
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("stream.query", (busy,)),
        ("stream.sync", (busy, 0)),
        ("device.sync", ("d0", 0)),
        ("event.query", (recorded,)),
        ("event.sync", (recorded, 0)),
        ("stream.wait_event", (waiter, recorded)),
        ("event.record", (event, busy)),
        ("event.query", (event,)),
        ("stream.wait_event", (other, abi.event())),
        ("stream.create", ("d0", struct("fl_stream_create_args"), out("fl_stream", save=names[0]))),
        ("event.create", ("d0", struct("fl_event_create_args"), out("fl_event", save=names[1]))),
        ("stream.destroy", (names[0],)),
        ("event.destroy", (names[1],)),
        ("device.info", ("d0", out("fl_device_info"))),
        ("memory.info", ("d0", out("uint64_t"), out("uint64_t"))),
        ("kernel.kernels", ("d0", out("const fl_kernel_table*"))),
    ]
    if not may_wait:
        block = abi.alloc("d0", SIZE)
        args = struct("fl_mem_alloc_args", {"bytes": 4096})
        calls += [
            ("memory.alloc", ("d0", args, out("uint64_t", save=names[2]))),
            ("memory.free", ("d0", names[2], 4096)),
        ]
        calls += [("memory.fill", (busy, block, 0, 1, 1, SIZE))]
        if abi.device_info("d0")["independent_streams"]:
            calls += [("memory.fill", (other, block, 0, 1, 1, SIZE)), ("stream.sync", (other, 5_000_000_000))]
    for fn, args_of in calls:
        row.case(call=fn, meanwhile=while_what)
        abi.queue("other", fn, *args_of)
        results, pending = abi.join("other", 10.0)
        row.check(not pending, f"{fn} does not return while {while_what}")
        polls = fn.endswith(".sync") and args_of[-1] == 0
        fine = results[-1].ok or results[-1].status == (
            header.FL_NOT_READY if fn.endswith(".query") else header.FL_TIMEOUT if polls else header.FL_OK
        )
        row.check(fine, f"{results[-1]} while {while_what}, expected OK")
    payload = Affine.of(abi)
    if payload is not None:
        row.case(call="plan", meanwhile=while_what)
        payload.prepare(WORDS)


@rule("FL-THREAD-004")
def test_callbacks_run_without_locks(row: Row, abi: Abi, fresh_driver: FreshDriver) -> None:
    """While a host task or the log function is being called, every other call returns, on the same stream too."""
    if gates_work(abi):
        row.require("host task")
        row.case(what="host task that has begun and waits")
        stream = abi.stream()
        gate = abi.gate(stream)
        row.check(eventually(lambda: gate.state()["entered"]), "a host task on an idle stream never ran")
        row.label("host task", "gated")
        try:
            event = abi.event()
            abi.record(event, stream)
            _everything_else(row, abi, stream, event, "a host task of the device is running")
        finally:
            gate.open()
        abi.sync(stream)
    check_log_locks(row, fresh_driver)


@rule("FL-THREAD-005", exclusive=True)
def test_destroy_returns_and_nothing_leaks(row: Row, abi: Abi, fresh_driver: FreshDriver, effort: Effort) -> None:
    """Destroy with pending work returns at once and the work completes; cycles leave no bytes, threads or files."""
    if gates_work(abi):
        row.require("gated")
        _destroy_behind_gate(row, abi)
    check_leaks(row, abi, effort)
    check_reopening(row, fresh_driver, effort)


def _destroy_behind_gate(row: Row, abi: Abi) -> None:
    for what in ("stream", "event"):
        row.case(destroyed=what)
        stream, waiter, event, block = abi.stream(), abi.stream(), abi.event(), abi.alloc("d0", SIZE)
        counter = abi.driver.name("c")
        abi.fill(waiter, block, 0x22)
        abi.sync(waiter)
        gate = abi.gate(stream)
        row.label("gated")
        abi.fill(stream, block, 0x33)
        abi.record(event, stream)
        abi.wait(waiter, event)
        abi.count_task(waiter, counter)
        target = stream if what == "stream" else event
        abi.forget(target)
        abi.queue("destroyer", f"{what}.destroy", target)
        results, pending = abi.join("destroyer", 10.0)
        if pending:
            gate.open()
        row.check(not pending, f"{what}_destroy waits for pending work")
        row.check(results[-1].ok, f"{results[-1]}, expected OK")
        early = f"{what}_destroy released what was waiting"
        still_pending(abi, row, _ran(abi, counter), early)
        gate.open()
        row.check(eventually(_ran(abi, counter)), f"{what}_destroy lost a waiter")
        got = abi.download(waiter, block)
        row.check(got == b"\x33" * SIZE, f"{what}_destroy dropped pending work", got=got[:4].hex())


def _ran(abi: Abi, counter: str) -> Callable[[], bool]:
    return lambda: bool(abi.count(counter)["calls"])


@rule("FL-THREAD-008")
def test_arguments_are_borrowed_for_the_call(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Structs, sizes, lists and error buffers are overwritten as soon as a submit returns, behind a gate."""
    payload = Affine.of(abi)
    stream = abi.stream()
    row.require("kernel", "copy", *(["gated"] if gates_work(abi) else []))
    for trial in range(effort.pick(10, 100)):
        words = int(rng.integers(1, 200))
        blocks = [abi.alloc("d0", words * WORD) for _ in range(4)]
        x, b = (rng.integers(0, 2**32, words, dtype=np.uint32) for _ in range(2))
        abi.upload(stream, blocks[1], x.tobytes())
        abi.upload(stream, blocks[2], b.tobytes())
        row.case(trial=trial, words=words)
        if payload is not None:
            payload.prepare(words)
        gate = abi.gate(stream) if gates_work(abi) else None
        if gate is not None:
            row.label("gated")
        # The driver fills all memory of a call with 0xA5 and frees it as soon as the call returns.
        if payload is not None:
            row.label("kernel")
            payload.run(stream, blocks[0], blocks[1], blocks[2], 13, words)
        abi.copy(stream, blocks[3], blocks[0])
        row.label("copy")
        _overwrite_memory(abi)
        if gate is not None:
            gate.open()
        got = words_of(abi.download(stream, blocks[3]))
        if payload is not None:
            wrong = np.flatnonzero(got != affine(13, x, b))
            row.check(not len(wrong), "a kernel read its arguments after run had returned", index=wrong[:1])
        for block in blocks:
            abi.free(block)


def _overwrite_memory(abi: Abi) -> None:
    """Further calls reuse the host memory that the submits' arguments lay in."""
    for _ in range(4):
        name = {"bytes": 0, "alignment": 0xA5A5}
        abi.call("memory.alloc", "d0", struct("fl_mem_alloc_args", name), out("uint64_t"))
        abi.call("kernel.kernels", "d0", out("const fl_kernel_table*"))
