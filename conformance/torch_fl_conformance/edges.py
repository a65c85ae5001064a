"""Happens-before edges, one gated test per cell: producer x consumer x mechanism x place.

A cell stalls the producer's stream behind a gate, submits producer and consumer with the mechanism that orders
them, gives the device every chance to run the consumer early, opens the gate and compares every buffer with a
model that ran the two in order. The data make each early, late or lost operation visible in the end state.

Source of the method: the rules of FL-STREAM-001 to 005 in SPEC.md; the model is sequential execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, Event, Gate, HostBuffer, Stream
from torch_fl_conformance.moves import SYNC_NS, Moves
from torch_fl_conformance.ordering import eventually, still_pending
from torch_fl_conformance.payload import WORD, Affine, Words, affine, words_of
from torch_fl_conformance.row import Row

WORDS = 48
SIZE = WORDS * WORD
OPERATIONS = ("kernel", "h2d", "d2h", "d2d", "fill", "task")
HOST_MECHANISMS = ("event_sync", "stream_sync", "device_sync", "query")
_CONSUMERS = (*OPERATIONS, "host read", "free and allocate")
_MECHANISMS = ("fifo", "event", *HOST_MECHANISMS)
THREAD = "cell"


@dataclass(frozen=True)
class Cell:
    """One edge. where: "same stream", "other stream" or "other device" (of the consumer)."""

    producer: str
    consumer: str
    mechanism: str
    where: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer} by {self.mechanism}, {self.where}"


def fifo_cells() -> Iterator[Cell]:
    """Every pair of operations in one stream."""
    for producer in OPERATIONS:
        for consumer in OPERATIONS:
            yield Cell(producer, consumer, "fifo", "same stream")


def event_cells(devices: int) -> Iterator[Cell]:
    """Every pair of operations in two streams, of one device and of two."""
    for where in ("other stream", "other device")[: min(devices, 2)]:
        for producer in OPERATIONS:
            for consumer in OPERATIONS:
                if where == "other device" and producer == "d2h" and consumer not in ("d2d", "task"):
                    continue  # only a copy across devices reaches what a copy to the host has read
                yield Cell(producer, consumer, "event", where)


def host_cells() -> Iterator[Cell]:
    """Every operation waited for by the host in each way, then used by another stream, by the host, or freed."""
    for mechanism in HOST_MECHANISMS:
        for producer in OPERATIONS:
            for consumer in ("kernel", "d2d", "d2h", "fill", "host read", "free and allocate"):
                if consumer == "host read" and producer not in ("d2h", "task"):
                    continue
                if consumer == "free and allocate" and producer in ("d2h", "task"):
                    continue
                yield Cell(producer, consumer, mechanism, "other stream")


class Bench:
    """The buffers and streams of one row's cells; blocks P (shared), Q, X, B, R on `home`, the "far" ones elsewhere."""

    def __init__(self, abi: Abi, row: Row, rng: np.random.Generator, home: str = "d0", elsewhere: str = "d1") -> None:
        self.abi, self.row, self.rng = abi, row, rng
        self.home, self.elsewhere = home, elsewhere
        self.is_async = abi.device_info(home)["execution_model"] == "ASYNC"
        self.independent = bool(abi.device_info(home)["independent_streams"])
        self.first, self.second, self.side = (abi.stream(home) for _ in range(3))
        self.far = abi.stream(elsewhere) if len(abi.devices) > 1 else None
        names = ["P", "Q", "X", "B", "R"]
        self.blocks: dict[str, Block] = {name: abi.alloc(home, SIZE) for name in names}
        if self.far is not None:
            self.blocks |= {name: abi.alloc(elsewhere, SIZE) for name in ("far M", "far R", "far B")}
        self.hosts: dict[str, HostBuffer] = {name: abi.host_buffer(SIZE) for name in ("HB", "HS", "HT")}
        payload, far_payload = Affine.of(abi, home), Affine.of(abi, elsewhere) if self.far else None
        self.payloads = {home: payload, elsewhere: far_payload}
        for kernel in (payload, far_payload):
            if kernel is not None:
                kernel.prepare(WORDS)
        self.model: dict[str, Words] = {}

    def reset(self) -> None:
        """Fresh noise in every buffer, the same in the model."""
        self.model = {name: self.rng.integers(0, 2**32, WORDS, dtype=np.uint32) for name in (*self.blocks, *self.hosts)}
        moves = Moves(self.abi)
        for name, buffer in self.hosts.items():
            moves.write(buffer, self.model[name].tobytes())
        for name, block in self.blocks.items():
            moves.upload(self._home(name), block, self.model[name].tobytes())
        moves.run()

    def _home(self, name: str) -> Stream:
        if name.startswith("far") and self.far is not None:
            return self.far
        return self.side

    # -- operations: queued on the cell's thread and applied to the model ------------------------------------

    def kernel(self, stream: Stream, target: str, x: str, b: str, a: int) -> None:
        """target = a*x + b."""
        payload = self.payloads[stream.device]
        if payload is None:
            return
        call = payload.call(WORDS, self.blocks[target], self.blocks[x], self.blocks[b], a)
        self.abi.queue(THREAD, "kernel.run", payload.kernel, stream, call)
        self.model[target] = affine(a, self.model[x], self.model[b])

    def copy(self, stream: Stream, target: str, source: str) -> None:
        """A copy in whatever direction the two names imply."""
        ends: dict[str, Block | HostBuffer] = {**self.blocks, **self.hosts}
        self.abi.queue(THREAD, "memory.copy", stream, self.abi.copy_args(ends[target], ends[source]))
        self.model[target] = self.model[source].copy()

    def fill(self, stream: Stream, target: str, pattern: int) -> None:
        """Every word of the target becomes the pattern."""
        self.abi.queue(THREAD, "memory.fill", stream, self.blocks[target], 0, pattern, WORD, WORDS)
        self.model[target] = np.full(WORDS, pattern, dtype=np.uint32)

    def produce(self, operation: str) -> None:
        """The producer in the first stream; for "task" it is the gate itself."""
        match operation:
            case "kernel":
                self.kernel(self.first, "P", "X", "B", 3)
            case "h2d":
                self.copy(self.first, "P", "HS")
            case "d2d":
                self.copy(self.first, "P", "Q")
            case "fill":
                self.fill(self.first, "P", 0x13579BDF)
            case "d2h":
                self.copy(self.first, "HB", "P")

    def consume(self, operation: str, stream: Stream, producer: str) -> None:
        """The consumer: it reads or overwrites what the producer wrote, or overwrites what it read."""
        if stream.device == self.elsewhere:
            if producer == "d2h":
                self.copy(stream, "P", "far M")
                return
            self.copy(stream, "far M", "P")
            source, target, b = "far M", "far R", "far B"
        else:
            source, target, b = "P", "R", "B"
        overwrite = producer == "d2h"
        match operation:
            case "kernel":
                self.kernel(stream, source if overwrite else target, "X" if overwrite else source, b, 5)
            case "d2d":
                self.copy(stream, source if overwrite else target, "Q" if overwrite else source)
            case "d2h":
                self.copy(stream, "HB", "Q" if overwrite else source)
            case "h2d":
                self.copy(stream, source, "HT")
            case "fill":
                self.fill(stream, source, 0x2468ACE1)

    # -- the end ---------------------------------------------------------------------------------------------

    def submitted(self, seconds: float) -> bool:
        """Whether all queued calls return within the time; those that have must have succeeded."""
        results, pending = self.abi.join(THREAD, seconds)
        for result in results:
            self.row.check(result.ok, f"{result}, expected OK")
        return not pending

    def settle(self) -> None:
        """Wait for the queued calls and the devices."""
        self.row.check(self.submitted(20.0), "a call did not return within 20 s of the stream going on")
        for device in (self.home, self.elsewhere)[: len(self.abi.devices)]:
            self.abi.device_sync(device)

    def compare(self, cell: Cell) -> None:
        """Every buffer against the model."""
        moves = Moves(self.abi)
        for name in self.model:
            if name in self.hosts:
                moves.read(self.hosts[name])
            else:
                moves.download(self._home(name), self.blocks[name])
        for (name, expected), data in zip(self.model.items(), moves.run(), strict=True):
            got = words_of(data)
            wrong = np.flatnonzero(got != expected)
            if len(wrong):
                index = int(wrong[0])
                self.row.fail(
                    f"buffer {name} is not what the order implies: {cell}",
                    index=index,
                    expected=hex(int(expected[index])),
                    got=hex(int(got[index])),
                )


def run_cells(abi: Abi, row: Row, rng: np.random.Generator, cells: Iterable[Cell], effort: Effort) -> None:
    """Run every cell with one device or another as its home; at full effort with each of two.

    Devices of one plugin share their code but not their state: what holds on the first need not on the second. So each
    operation, as producer and as consumer, meets both, whatever the seed.
    """
    benches = [Bench(abi, row, rng)]
    if len(abi.devices) > 1:
        benches.append(Bench(abi, row, rng, "d1", "d0"))
    start = int(rng.integers(len(benches)))
    for cell in cells:
        dealt = benches[(start + _turn(cell)) % len(benches)]
        for bench in effort.pick([dealt], benches):
            run_cell(bench, cell)


def _turn(cell: Cell) -> int:
    """Cells that differ in one thing by one place take turns."""
    places = OPERATIONS.index(cell.producer), _CONSUMERS.index(cell.consumer), _MECHANISMS.index(cell.mechanism)
    return sum(places) + (cell.where == "other device")


def run_cell(bench: Bench, cell: Cell) -> None:
    """One gated test; raises RuleViolated. On an INLINE device there is no gate, only the end state."""
    abi, row = bench.abi, bench.row
    row.case(edge=str(cell), home=bench.home)
    bench.reset()
    gate = abi.gate(bench.first) if bench.is_async else None
    bench.produce(cell.producer)
    if cell.mechanism in HOST_MECHANISMS:
        _host_ordered(bench, cell, gate)
        return
    stream, event = bench.first, None
    if cell.mechanism == "event":
        stream = bench.far if cell.where == "other device" and bench.far is not None else bench.second
        event = abi.event(bench.home, timing=bool(bench.rng.integers(2)))
        abi.queue(THREAD, "event.record", event, bench.first)
        abi.queue(THREAD, "stream.wait_event", stream, event)
    checkpoint = None
    if cell.consumer == "task":
        # A host task that stops, so that the host can look at what its producer had done by then.
        checkpoint = abi.gate(stream, THREAD) if bench.is_async else None
    update = cell.producer == "task" and bench.is_async and bench.independent
    if update:
        bench.model["P"] = np.full(WORDS, 0x0BADCAFE, dtype=np.uint32)
    bench.consume(cell.consumer, stream, cell.producer)
    if gate is not None:
        # A copy to or from ordinary host memory may block its caller, and with it what is queued behind it.
        if not bench.submitted(2.0):
            row.label("submit waited for the stream")
        elif checkpoint is not None:
            still_pending(
                abi,
                row,
                lambda: checkpoint.state()["entered"],
                f"a host task ran before the work it follows: {cell}",
                device=bench.home,
            )
        else:
            early = f"the consumer ran before its producer: {cell}"
            still_pending(abi, row, _completed(abi, stream), early, device=bench.home)
        if update:  # what the host does before it lets the producer end is seen by the consumer
            abi.fill(bench.side, bench.blocks["P"], 0x0BADCAFE, WORD)
            abi.sync(bench.side)
        gate.open()
    if checkpoint is not None:
        _look_at_checkpoint(bench, cell, checkpoint)
    bench.settle()
    bench.compare(cell)
    if event is not None:
        abi.destroy(event)


def _completed(abi: Abi, handle: Stream | Event) -> Callable[[], bool]:
    return lambda: abi.query(handle) == header.FL_OK


def _look_at_checkpoint(bench: Bench, cell: Cell, checkpoint: Gate) -> None:
    answer = bench.abi.driver.execute(
        {"do": "gate_wait", "name": checkpoint.ref, "for": "entered", "timeout": 20.0}, timeout=20.0
    )
    bench.row.check(answer["reached"], f"a host task never ran: {cell}")
    if cell.producer == "d2h":
        bench.row.check(
            np.array_equal(words_of(bench.abi.read(bench.hosts["HB"])), bench.model["HB"]),
            f"a host task ran before the copy it follows had written its destination: {cell}",
        )
    elif bench.independent and cell.where != "other device":
        got = words_of(bench.abi.download(bench.side, bench.blocks["P"]))
        bench.row.check(np.array_equal(got, bench.model["P"]), f"a host task ran before the work it follows: {cell}")
    checkpoint.open()


def _host_ordered(bench: Bench, cell: Cell, gate: Gate | None) -> None:
    abi, row = bench.abi, bench.row
    event = abi.event(bench.home, timing=bool(bench.rng.integers(2)))
    abi.queue(THREAD, "event.record", event, bench.first)
    waits = {
        "event_sync": ("event.sync", event),
        "stream_sync": ("stream.sync", bench.first),
        "device_sync": ("device.sync", bench.home),
    }
    if cell.mechanism in waits:
        function, handle = waits[cell.mechanism]
        abi.queue(THREAD, function, handle, SYNC_NS)
        happened: Callable[[], bool] = lambda: bench.submitted(0.0)  # noqa: E731
    else:
        handles = (bench.first, event)
        happened = lambda: any(abi.query(handle) == header.FL_OK for handle in handles)  # noqa: E731
    if cell.mechanism == "query" and not bench.submitted(2.0):
        row.label("submit waited for the stream")
    elif gate is not None:
        early = f"{cell.mechanism} told of completion before the stream went on: {cell}"
        still_pending(abi, row, happened, early, device=bench.home)
    if gate is not None:
        gate.open()
    row.check(bench.submitted(20.0), f"{cell.mechanism} did not return after the stream went on: {cell}")
    if cell.mechanism == "query":
        _poll(bench, event)
    _use_after_wait(bench, cell, gate)
    bench.settle()
    bench.compare(cell)
    abi.destroy(event)


def _poll(bench: Bench, event: Event) -> None:
    for handle in (bench.first, event):
        bench.row.check(
            eventually(_completed(bench.abi, handle)),
            "a query did not become OK within 20 s of the stream going on",
        )


def _use_after_wait(bench: Bench, cell: Cell, gate: Gate | None) -> None:
    """The host has been told that the producer is complete; nothing else orders what follows."""
    abi, row = bench.abi, bench.row
    if cell.consumer == "host read":
        if cell.producer == "task":
            row.check(gate is None or gate.state()["done"], f"a host task was still running: {cell}")
        else:
            got = words_of(abi.read(bench.hosts["HB"]))
            row.check(np.array_equal(got, bench.model["HB"]), f"the host read old bytes: {cell}")
    elif cell.consumer == "free and allocate":
        abi.free(bench.blocks["P"])
        bench.blocks["P"] = abi.alloc(bench.home, SIZE)
        bench.fill(bench.second, "P", 0x66554433)
    else:
        bench.consume(cell.consumer, bench.second, cell.producer)
