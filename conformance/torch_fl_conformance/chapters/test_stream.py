"""Chapter stream: order, completion, models, priorities, how many (FL-STREAM-001, 2, 5, 7 to 9, 11, 13)."""

from __future__ import annotations

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct, task
from torch_fl_conformance.edges import fifo_cells, host_cells, run_cells
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.event_graphs import (
    device_pairs,
    device_sync_covers_what_came_before,
    devices_do_not_wait_for_each_other,
    only_a_wait_remains,
    priorities_change_no_order,
)
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.handles import Event, Gate, Stream
from torch_fl_conformance.ordering import eventually, gates_work, still_pending
from torch_fl_conformance.payload import WORD, Affine, affine, words_of
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.timeouts import check_timeouts

STREAMS = 128  # with two events each: what every device must have
WORDS = 32
SIZE = WORDS * WORD
CHAIN_WORDS = (1, 32, 20_001, 3)  # devices treat small and large operations in different ways


@rule("FL-STREAM-001")
def test_submission_order_is_execution_order(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """What the host submits later starts later: values written by the host between submits are seen in order."""
    stream, block = abi.stream(), abi.alloc("d0", SIZE)
    source = abi.host_buffer(SIZE)
    for trial in range(effort.pick(20, 200)):
        row.case(trial=trial)
        values = [int(v) for v in rng.choice(256, 4, replace=False)]
        targets = [abi.host_buffer(SIZE) for _ in values]
        for value, target in zip(values, targets, strict=True):
            abi.write(source, bytes([value]) * SIZE)
            abi.copy(stream, block, source)
            abi.copy(stream, target, block)
        abi.sync(stream)
        for value, target in zip(values, targets, strict=True):
            got = abi.read(target)
            row.check(
                got == bytes([value]) * SIZE,
                "a copy saw the value of another statement than the one before it",
                expected=value,
                got=got[:4].hex(),
            )
            abi.release_host(target)


@rule("FL-STREAM-002")
def test_streams_are_fifo(row: Row, abi: Abi, rng: np.random.Generator, effort: Effort) -> None:
    """Every pair of operations in one stream runs in order, and so do long mixed chains."""
    run_cells(abi, row, rng, fifo_cells(), effort)
    for chain in range(effort.pick(4, 30)):
        _mixed_chain(row, abi, rng, chain, effort.pick(60, 1000), CHAIN_WORDS[chain % len(CHAIN_WORDS)])
    if gates_work(abi):
        row.require("gated")


def _dealt(rng: np.random.Generator, length: int) -> list[str]:
    """The kinds of a chain's operations: each often enough whatever the seed, in any order."""
    kinds = {"copy": 0.3, "fill": 0.06, "fill of a part": 0.06, "task": 0.1}
    rare = [kind for kind, share in kinds.items() for _ in range(round(share * length))]
    deck = np.array([*rare, *["kernel"] * (length - len(rare))])
    return [str(kind) for kind in rng.permutation(deck)]


def _mixed_chain(row: Row, abi: Abi, rng: np.random.Generator, chain: int, length: int, words: int) -> None:
    """A chain in which each operation reads what the one before it wrote, submitted behind a gate."""
    payload = Affine.of(abi)
    stream = abi.stream()
    blocks = [abi.alloc("d0", words * WORD) for _ in range(3)]
    b = rng.integers(0, 2**32, words, dtype=np.uint32)
    state = rng.integers(0, 2**32, words, dtype=np.uint32)
    abi.upload(stream, blocks[0], state.tobytes())
    abi.upload(stream, blocks[2], b.tobytes())
    if payload is not None:
        payload.prepare(words)
    row.case(chain=chain, operations=length, words=words)
    gate = abi.gate(stream) if gates_work(abi) else None
    here, tickets, order = 0, abi.driver.name("t"), []
    for step, kind in enumerate(_dealt(rng, length)):
        if kind == "kernel" and payload is not None:
            a = int(rng.integers(1, 2**31)) | 1
            payload.run(stream, blocks[1 - here], blocks[here], blocks[2], a, words)
            state, here = affine(a, state, b), 1 - here
        elif kind in ("fill", "fill of a part"):
            word = int(rng.integers(0, 2**32))
            filled = words if kind == "fill" else (words + 3) // 4
            abi.fill(stream, blocks[here], word, WORD, filled)
            state = state.copy()
            state[:filled] = word
        elif kind == "task":
            abi.ticket_task(stream, tickets, step)
            order.append(step)
        else:
            abi.copy(stream, blocks[1 - here], blocks[here])
            here = 1 - here
    if gate is not None:
        gate.open()
    got = words_of(abi.download(stream, blocks[here]))
    row.check(
        np.array_equal(got, state),
        "a chain of operations did not run in order",
        got=got[:4],
        expected=state[:4],
    )
    row.check(
        abi.tickets(tickets) == order,
        "host tasks of one stream did not run in order",
        got=abi.tickets(tickets),
    )
    abi.destroy(stream)
    for block in blocks:
        abi.free(block)


@rule("FL-STREAM-005")
def test_completion_is_told_in_time_and_never_early(
    row: Row, abi: Abi, rng: np.random.Generator, effort: Effort
) -> None:
    """query, event_sync, stream_sync and device_sync: all edges that the host waits for, and early answers."""
    run_cells(abi, row, rng, host_cells(), effort)
    if not gates_work(abi):
        return
    row.require("gated", "only the running operation remains", "fifth stream")
    _only_the_running_operation(row, abi, effort.pick(300, 10_000))
    _fifth_stream(row, abi)
    for home, other in device_pairs(len(abi.devices)):
        only_a_wait_remains(row, abi, home, other)
    device_sync_covers_what_came_before(row, abi, "d0")
    check_timeouts(row, abi)


def _only_the_running_operation(row: Row, abi: Abi, queries: int) -> None:
    """The gate is the last operation and has begun: the queue is empty, the stream is not idle."""
    stream, event = abi.stream(), abi.event()
    gate = abi.gate(stream)
    row.check(eventually(lambda: gate.state()["entered"]), "a host task on an idle stream never ran")
    row.label("only the running operation remains")
    for number in range(queries):
        row.case(query=number)
        row.check(abi.query(stream) == header.FL_NOT_READY, "stream_query is not NOT_READY while a task runs")
    for function, handle in (("stream.sync", stream), ("device.sync", "d0")):
        result = abi.call(function, handle, 2_000_000)
        row.check(result.status == header.FL_TIMEOUT, f"{result} while a host task runs, expected TIMEOUT")
    abi.record(event, stream)
    gate.open()
    row.check(
        eventually(lambda: abi.query(stream) == header.FL_OK),
        "stream_query did not become OK without further calls",
    )
    row.check(eventually(lambda: abi.query(event) == header.FL_OK), "event_query did not become OK by itself")


def _fifth_stream(row: Row, abi: Abi) -> None:
    """device_sync covers every stream, not just the first ones or those of default priority."""
    info = abi.device_info("d0")
    priorities = [0, 0, 0, 0, info["priority_greatest"], info["priority_least"], 0]
    streams = [abi.stream(priority=priority) for priority in priorities]
    for position in (4, 5, 6):
        row.case(gated_stream=position, priority=priorities[position])
        row.label("fifth stream")
        gate = abi.gate(streams[position])
        abi.queue("syncer", "device.sync", "d0", 20_000_000_000)
        still_pending(
            abi,
            row,
            lambda: not abi.join("syncer", 0.0)[1],
            "device_sync returned though a stream is stalled",
        )
        gate.open()
        results, pending = abi.join("syncer", 20.0)
        row.check(not pending and results[-1].ok, "device_sync did not return after all streams went on")
    row.case(gated_stream="destroyed")
    stream = abi.stream()
    gate = abi.gate(stream)
    abi.destroy(stream)
    abi.queue("syncer", "device.sync", "d0", 20_000_000_000)
    still_pending(
        abi,
        row,
        lambda: not abi.join("syncer", 0.0)[1],
        "device_sync returned though a stream that was destroyed has pending work",
    )
    gate.open()
    results, pending = abi.join("syncer", 20.0)
    row.check(not pending and results[-1].ok, "device_sync did not return after a destroyed stream's work was done")


@rule("FL-STREAM-007")
def test_nothing_else_orders(row: Row, abi: Abi) -> None:
    """Behind a stalled stream, create, plan, query and (unless declared) alloc and free do not wait."""
    if not gates_work(abi):
        row.case(what="INLINE")
        row.note("INLINE: no work is ever pending, so that nothing could wait for it")
        _calls_that_must_not_wait(row, abi, None)
        return
    row.require("gated")
    stream = abi.stream()
    gate = abi.gate(stream)
    row.label("gated")
    _calls_that_must_not_wait(row, abi, gate)
    row.check(not gate.state()["done"], "the gate opened by itself")
    gate.open()
    abi.sync(stream)
    _was_stalled(row, gate)
    devices_do_not_wait_for_each_other(row, abi)


def _was_stalled(row: Row, gate: Gate) -> None:
    """Calls that return behind a stall say nothing where nothing was ever stalled."""
    row.check(eventually(lambda: gate.state()["done"]), "the host task that was to stall a stream has never run")


def _calls_that_must_not_wait(row: Row, abi: Abi, gate: Gate | None) -> None:
    device = abi.device_info("d0")
    idle, event, payload = abi.stream(), abi.event(), Affine.of(abi)
    block = abi.alloc("d0", SIZE) if not device["alloc_may_wait"] else None
    calls: list[tuple[str, list[object]]] = [
        (
            "stream.create",
            ["d0", struct("fl_stream_create_args"), out("fl_stream", save=abi.driver.name("s"))],
        ),
        ("event.create", ["d0", struct("fl_event_create_args"), out("fl_event", save=abi.driver.name("e"))]),
        ("stream.query", [idle]),
        ("event.query", [event]),
        ("stream.sync", [idle, 0]),
        ("device.info", ["d0", out("fl_device_info")]),
        ("memory.info", ["d0", out("uint64_t"), out("uint64_t")]),
        ("kernel.kernels", ["d0", out("const fl_kernel_table*")]),
    ]
    if block is not None:
        name = abi.driver.name("b")
        args = struct("fl_mem_alloc_args", {"bytes": 4096})
        calls += [
            ("memory.alloc", ["d0", args, out("uint64_t", save=name)]),
            ("memory.free", ["d0", name, 4096]),
        ]
    for function, arguments in calls:
        row.case(function=function)
        abi.queue("free", function, *arguments)
        results, pending = abi.join("free", 10.0)
        if pending and gate is not None:
            gate.open()
        row.check(not pending, f"{function} waits for a stream that it has nothing to do with")
        row.check(results[-1].ok, f"{results[-1]} behind a stalled stream, expected OK")
    if payload is not None:
        row.case(function="plan")
        payload.prepare(WORDS)


@rule("FL-STREAM-008")
def test_submits_keep_their_execution_model(row: Row, abi: Abi, effort: Effort) -> None:
    """ASYNC: 256 submits of each kind return behind a stall. INLINE: each effect is there when its submit returns."""
    if gates_work(abi):
        row.require("gated", "256 outstanding")
        for kind in ("kernel", "copy", "fill", "record", "wait", "task"):
            _submits_return(row, abi, kind)
    else:
        row.require("inline")
        _inline_effects(row, abi, effort.pick(5, 50))


def _submits_return(row: Row, abi: Abi, kind: str) -> None:
    row.case(kind=kind, outstanding=256)
    stream, event, never = abi.stream(), abi.event(), abi.event()
    left, right, b = (abi.alloc("d0", SIZE) for _ in range(3))
    payload = Affine.of(abi)
    if payload is not None:
        payload.prepare(WORDS)
    counter = abi.driver.name("c")
    gate = abi.gate(stream)
    for _ in range(256):
        match kind:
            case "kernel" if payload is not None:
                abi.queue(
                    "submitter",
                    "kernel.run",
                    payload.kernel,
                    stream,
                    payload.call(WORDS, left, right, b, 3),
                )
            case "copy":
                abi.queue("submitter", "memory.copy", stream, abi.copy_args(left, right))
            case "fill":
                abi.queue("submitter", "memory.fill", stream, left, 0, 7, 1, SIZE)
            case "record":
                abi.queue("submitter", "event.record", event, stream)
            case "wait":
                abi.queue("submitter", "stream.wait_event", stream, never)
            case "task":
                abi.queue("submitter", "stream.host_task", stream, task("count", counter))
    results, pending = abi.join("submitter", 30.0)
    closed = not gate.state()["done"]
    gate.open()
    row.check(not pending, f"{len(results)} of 256 {kind} submits returned behind a stalled stream within 30 s")
    row.check(closed, "the gate opened by itself")
    for result in results:
        row.check(result.ok, f"{result} behind a stalled stream, expected OK")
    row.label("gated", "256 outstanding")
    abi.sync(stream)
    _was_stalled(row, gate)
    abi.destroy(stream)


def _inline_effects(row: Row, abi: Abi, trials: int) -> None:
    stream, event = abi.stream(), abi.event()
    block, buffer = abi.alloc("d0", SIZE), abi.host_buffer(SIZE)
    row.label("inline")
    for trial in range(trials):
        row.case(trial=trial)
        value = trial % 255 + 1
        abi.fill(stream, block, value)
        abi.copy(stream, buffer, block)
        row.check(abi.read(buffer) == bytes([value]) * SIZE, "an INLINE submit returned before its effect was there")
        counter = abi.driver.name("c")
        abi.count_task(stream, counter)
        row.check(abi.count(counter)["calls"] == 1, "a host task had not run when its INLINE submit returned")
        abi.record(event, stream)
        row.check(abi.query(stream) == header.FL_OK, "stream_query of an INLINE device is not OK")
        row.check(abi.query(event) == header.FL_OK, "event_query of an INLINE device is not OK")


@rule("FL-STREAM-009")
def test_a_stalled_stream_stops_no_other(row: Row, abi: Abi) -> None:
    """Where independent_streams is declared, copies, fills and kernels of other streams complete meanwhile."""
    independent = [f"d{index}" for index, info in enumerate(abi.devices) if info["independent_streams"]]
    if not independent:
        row.not_claimed("no device declares independent_streams")
    for device in independent[:2]:
        if not gates_work(abi, device):
            row.case(what="INLINE", device=device)
            row.note(f"{device} is INLINE: none of its streams is ever stalled")
            continue
        row.require("gated")
        stalled = abi.stream(device)
        # alloc may be one that waits for the gate
        others = [(abi.stream(device), abi.alloc(device, SIZE), abi.alloc(device, SIZE)) for _ in range(3)]
        gate = abi.gate(stalled)
        row.label("gated")
        for number, (other, block, target) in enumerate(others):
            row.case(device=device, stream=number)
            abi.fill(other, block, 0x3D)
            abi.copy(other, target, block)
            payload = Affine.of(abi, device)
            if payload is not None:
                payload.run(other, block, target, target, 1, WORDS)
            result = abi.call("stream.sync", other, 10_000_000_000, timeout=10.0)
            if not result.ok:
                gate.open()
            row.check(result.ok, f"work of one stream does not complete while another is stalled: {result}")
            got = abi.download(other, target)
            row.check(
                got == b"\x3d" * SIZE, "work that completed while another stream is stalled is wrong", got=got[:4]
            )
        row.check(not gate.state()["done"], "the gate opened by itself")
        gate.open()
        abi.sync(stalled)
        _was_stalled(row, gate)


@rule("FL-STREAM-011")
def test_priorities_are_hints_within_a_range(row: Row, abi: Abi, rng: np.random.Generator) -> None:
    """Any priority of the declared range works and changes no result; one outside is refused."""
    for index, info in enumerate(abi.devices):
        device = f"d{index}"
        least, greatest = info["priority_least"], info["priority_greatest"]
        row.case(device=device, least=least, greatest=greatest)
        row.check(greatest <= 0 <= least, "the range of priorities does not hold 0", least=least, greatest=greatest)
        for priority in (least + 1, greatest - 1, 2**31 - 1, -(2**31)):
            row.case(device=device, priority=priority)
            args = struct("fl_stream_create_args", {"priority": priority})
            abi.expect(header.FL_INVALID_ARGUMENT, "stream.create", device, args, out("fl_stream"))
        for priority in sorted({least, 0, greatest}):
            row.case(device=device, priority=priority)
            stream = abi.stream(device, priority)
            block = abi.alloc(device, SIZE)
            data = rng.integers(0, 256, SIZE, dtype=np.uint8).tobytes()
            abi.upload(stream, block, data)
            row.check(abi.download(stream, block) == data, "a stream of this priority gives other results")
            if gates_work(abi) and priority != 0:
                priorities_change_no_order(row, abi, device, priority)


@rule("FL-STREAM-013")
def test_many_streams_and_events_live_at_once(row: Row, fresh_driver: FreshDriver) -> None:
    """All of them at once, each in use: a stream fills a block of its own and records two events behind that."""
    abi = Abi(fresh_driver())  # where no other row's stream or event is left, of which a device need not have more
    for device in (f"d{i}" for i in range(len(abi.devices))):
        block = abi.alloc(device, STREAMS * SIZE)
        streams: list[Stream] = []
        events: list[Event] = []
        for n in range(STREAMS):
            row.case(device=device, live_streams=n, live_events=2 * n)
            streams.append(abi.stream(device))
            events += [abi.event(device), abi.event(device)]
        row.case(device=device, what="work on every stream")
        for n, stream in enumerate(streams):
            abi.fill(stream, block, n, 1, SIZE, n * SIZE)
            abi.record(events[2 * n], stream)
            abi.record(events[2 * n + 1], stream)
        first = streams[0]
        for event in events:
            abi.wait(first, event)
        got = abi.download(first, block)
        for n in range(STREAMS):
            part = got[n * SIZE : (n + 1) * SIZE]
            row.check(part == bytes([n]) * SIZE, "a stream of many lost its work", stream=n, got=part[:4].hex())
        _one_more(row, abi, device, "stream", abi.may_make(Stream(abi.driver.name("s"), device)))
        _one_more(row, abi, device, "event", abi.may_make(Event(abi.driver.name("e"), device)))
        handles: list[Stream | Event] = [*events, *streams]
        for handle in handles:
            abi.destroy(handle)


def _one_more(row: Row, abi: Abi, device: str, what: str, save: str) -> None:
    row.case(device=device, what=f"one more {what}")
    result = abi.call(f"{what}.create", device, struct(f"fl_{what}_create_args", {}), out(f"fl_{what}", save=save))
    row.check(
        result.ok or result.status == header.FL_OUT_OF_RESOURCES,
        f"one {what} more than must be: {result}, expected OK or OUT_OF_RESOURCES",
    )
