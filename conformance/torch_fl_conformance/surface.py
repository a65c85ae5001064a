"""The whole surface of the interface as one list: a valid call of every function, for checks that go through all.

Each sample makes its own objects, so that it may be called any number of times; what it makes is released after the
row. `null` names the positions that must not be NULL, `struct` where a growable struct is passed in, `outs` how
many out parameters there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, out, struct, task, text
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, Event, Stream
from torch_fl_conformance.payload import Affine

Doomed = TypeVar("Doomed", Stream, Event)

WORDS = 16
BYTES = 4 * WORDS

Options = Mapping[str, Any]
"""Options of the struct under test: size, kind, tail, next (see `arguments.struct`)."""


@dataclass(frozen=True)
class Sample:
    """One function with valid arguments. build({}) is valid; build(options) applies them to its struct."""

    fn: str
    build: Callable[[Options], list[Arg]]
    null: tuple[int, ...]
    struct: str = ""

    @property
    def label(self) -> str:
        """Name in messages: the function, and its struct where one is under test."""
        return f"{self.fn} ({self.struct})" if self.struct else self.fn


def samples(abi: Abi, device: str = "d0") -> list[Sample]:
    """A valid call of every function but open, close and shutdown, which end what the others need."""
    parts = (_memory, _streams, _events, _kernels)
    return _device(device) + [sample for part in parts for sample in part(abi, device)]


def struct_samples(abi: Abi, device: str = "d0") -> list[Sample]:
    """The samples that pass a growable struct in, one for each struct type of each function."""
    return [sample for sample in (*samples(abi, device), *_tensor_samples(abi, device)) if sample.struct]


def _device(device: str) -> list[Sample]:
    return [
        Sample("device.count", lambda o: [out("int32_t")], (0,)),
        Sample("device.info", lambda o: [device, out("fl_device_info", **o)], (0, 1), "fl_device_info"),
        Sample("device.sync", lambda o: [device, 10_000_000_000], (0,)),
        Sample("memory.info", lambda o: [device, out("uint64_t"), out("uint64_t")], (0, 1, 2)),
        Sample("root.get_extension", _extension, (0, 2)),
        Sample("root.query", lambda o: [struct("fl_host", {}, **o), out("const fl_plugin*")], (0, 1), "fl_host"),
    ]


def _extension(_: Options) -> list[Arg]:
    return [text("fl.none-of-this-name"), 1, out("const fl_extension*")]


def _memory(abi: Abi, device: str) -> list[Sample]:
    stream = abi.stream(device)
    block, other = abi.alloc(device, BYTES), abi.alloc(device, BYTES)

    def alloc(o: Options) -> list[Arg]:
        args = struct("fl_mem_alloc_args", {"bytes": BYTES}, **o)
        return [device, args, out("uint64_t", save=abi.may_make(Block(abi.driver.name("b"), device, BYTES, 0)))]

    def free(_: Options) -> list[Arg]:
        made = abi.alloc(device, BYTES)
        abi.forget(made)
        return [device, made, BYTES]

    def copy(o: Options) -> list[Arg]:
        return [stream, struct("fl_copy_args", abi.copy_args(block, other)["fields"], **o)]

    return [
        Sample("memory.alloc", alloc, (0, 1, 2), "fl_mem_alloc_args"),
        Sample("memory.free", free, (0,)),
        Sample("memory.copy", copy, (0, 1), "fl_copy_args"),
        Sample("memory.fill", lambda o: [stream, block, 0, 7, 1, BYTES], (0,)),
    ]


def _streams(abi: Abi, device: str) -> list[Sample]:
    stream, event = abi.stream(device), abi.event(device)

    def create(o: Options) -> list[Arg]:
        made = abi.may_make(Stream(abi.driver.name("s"), device))
        return [device, struct("fl_stream_create_args", {}, **o), out("fl_stream", save=made)]

    return [
        Sample("stream.create", create, (0, 1, 2), "fl_stream_create_args"),
        Sample("stream.destroy", lambda o: [_doomed(abi, abi.stream(device))], (0,)),
        Sample("stream.query", lambda o: [_idle(abi, stream)], (0,)),
        Sample("stream.sync", lambda o: [stream, 10_000_000_000], (0,)),
        Sample("stream.host_task", lambda o: [stream, task("count", "samples")], (0,)),
        Sample("stream.wait_event", lambda o: [stream, event], (0, 1)),
    ]


def _idle(abi: Abi, stream: Stream) -> Stream:
    abi.sync(stream)
    return stream


def _doomed(abi: Abi, handle: Doomed) -> Doomed:
    abi.forget(handle)
    return handle


def _events(abi: Abi, device: str) -> list[Sample]:
    stream = abi.stream(device)
    event, start, end = abi.event(device), abi.event(device, timing=True), abi.event(device, timing=True)
    for timed in (start, end):
        abi.record(timed, stream)
    abi.sync(stream)

    def create(o: Options) -> list[Arg]:
        made = abi.may_make(Event(abi.driver.name("e"), device))
        return [device, struct("fl_event_create_args", {}, **o), out("fl_event", save=made)]

    return [
        Sample("event.create", create, (0, 1, 2), "fl_event_create_args"),
        Sample("event.destroy", lambda o: [_doomed(abi, abi.event(device))], (0,)),
        Sample("event.record", lambda o: [event, stream], (0, 1)),
        Sample("event.query", lambda o: [start], (0,)),
        Sample("event.sync", lambda o: [event, 10_000_000_000], (0,)),
        Sample("event.elapsed", lambda o: [start, end, out("int64_t")], (0, 1, 2)),
    ]


def _kernels(abi: Abi, device: str) -> list[Sample]:
    listed = Sample("kernel.kernels", lambda o: [device, out("const fl_kernel_table*")], (0, 1))
    payload = Affine.of(abi, device)
    if payload is None:
        return [listed]
    call = _Call(abi, payload, device)
    return [
        listed,
        Sample("kernel.plan", lambda o: [*call.plan(o, {}), out("fl_plan")], (1, 2, 3), "fl_call"),
        Sample("kernel.plan", lambda o: [*call.plan({}, {}), out("fl_plan", **o)], (), "fl_plan"),
        Sample("kernel.run", lambda o: call.run(o, {}), (1, 2), "fl_call"),
    ]


def _tensor_samples(abi: Abi, device: str) -> list[Sample]:
    payload = Affine.of(abi, device)
    if payload is None:
        return []
    call = _Call(abi, payload, device)
    return [
        Sample("kernel.plan", lambda o: [*call.plan({}, o), out("fl_plan")], (), "fl_tensor"),
        Sample("kernel.run", lambda o: call.run({}, o), (), "fl_tensor"),
    ]


class _Call:
    """Arguments of plan and run of the payload kernel."""

    def __init__(self, abi: Abi, payload: Affine, device: str) -> None:
        self.payload, self.device = payload, device
        self.stream = abi.stream(device)
        self.blocks = [abi.alloc(device, BYTES) for _ in range(3)]
        payload.prepare(WORDS)

    def plan(self, call: Options, tensor: Options) -> list[Arg]:
        return [self.payload.kernel, self.device, self.payload.planned(WORDS, call, tensor)]

    def run(self, call: Options, tensor: Options) -> list[Arg]:
        target, x, b = self.blocks
        return [self.payload.kernel, self.stream, self.payload.call(WORDS, target, x, b, 3, options=call, first=tensor)]


def introduced(struct_name: str) -> int:
    """Size of a struct when the interface was introduced: FL_SIZE_V1_0_<STRUCT>."""
    size = header.introduced_size(struct_name)
    if size is None:
        raise ValueError(f"{struct_name} is no growable struct")
    return size
