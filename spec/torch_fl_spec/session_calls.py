"""The `call` command: one plugin function with arguments from JSON, and the ledger of what calls created."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from . import abi, session_process
from .session_args import CommandError, Frame

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi

_SYNC_NS = 5_000_000_000
_KERNEL_FUNCTIONS = ("kernel.plan", "kernel.run")


def _number(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


class Live:
    """Handles and memory that exist now. Keys are handles as numbers; memory and pinned by (device, base)."""

    def __init__(self) -> None:
        self.devices: dict[int, int] = {}  # handle -> index
        self.streams: dict[int, int] = {}  # handle -> device handle
        self.events: dict[int, int] = {}
        self.memory: dict[tuple[int, int], int] = {}  # -> bytes
        self.pinned: dict[tuple[int, int], None] = {}

    def note(self, function: str, args: list[Any], made: int) -> None:
        """Enter what a successful call did. made: the value of its out parameter, 0 without one."""
        if function == "device.open":
            self.devices[made] = int(args[0])
        elif function == "device.close":
            self.devices.pop(_number(args[0]), None)
        elif function == "stream.create":
            self.streams[made] = _number(args[0])
        elif function == "stream.destroy":
            self.streams.pop(_number(args[0]), None)
        elif function == "event.create":
            self.events[made] = _number(args[0])
        elif function == "event.destroy":
            self.events.pop(_number(args[0]), None)
        elif function == "memory.alloc":
            self.memory[_number(args[0]), made] = int(args[1].bytes)
        elif function == "memory.free":
            self.memory.pop((_number(args[0]), int(args[1])), None)
        elif function == "pinned.alloc":
            self.pinned[_number(args[0]), made] = None
        elif function == "pinned.free":
            self.pinned.pop((_number(args[0]), _number(args[1])), None)


def invoke(
    session: Session, frame: Frame, name: str, function: Any, args: list[Any], error: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Make the call and report on it; afterwards all memory of the frame is poisoned.

    error: the ERR of the call, None for NULL. Returns the result that `call` describes.
    """
    err = frame.error(error)
    frame.seal()
    start = time.perf_counter()
    status = int(function(*args, err))
    seconds = time.perf_counter() - start
    outs = frame.results(status)
    result = {
        "status": status,
        "err": frame.error_result(status),
        "outs": outs,
        "untouched": frame.untouched(),
        "intact": frame.intact(),
        "seconds": seconds,
    }
    if status == abi.FL_OK:
        session.references.update(frame.saved())
        made = outs[0] if outs and isinstance(outs[0], int) else 0
        session.live.note(name, args, made)
    frame.release()
    return result


def internal_error(session: Session) -> Mapping[str, Any] | None:
    """ERR of calls that a command makes by itself: under GREASE one in eight passes NULL."""
    rng = session.crew.rng
    return None if rng is not None and rng.random() < 1 / 8 else {}


def call_table(session: Session, name: str, args: list[Any], frame: Frame | None = None) -> dict[str, Any]:
    """Call a table function with ARGs (or ready C values) from within a command."""
    frame = frame or session.frame()
    function = session.function(name)
    return invoke(session, frame, name, function, _arguments(session, frame, function, args), internal_error(session))


@cache
def _types_before_err(function: Any) -> tuple[Any, ...]:
    return tuple(function.args[:-1])


def _arguments(session: Session, frame: Frame, function: Any, args: list[Any]) -> list[Any]:
    types = _types_before_err(ffi.typeof(function))
    values: list[Any] = []
    for arg in args:
        if isinstance(arg, dict) and "task" in arg:
            values += session.tasks.argument(arg)
        elif isinstance(arg, ffi.CData):
            values.append(arg)
        elif len(values) < len(types):
            values.append(frame.convert(arg, types[len(values)]))
        else:
            values.append(None)
    if len(values) != len(types):
        raise CommandError(f"{len(values)} arguments where the function takes {len(types)} before err")
    return values


def _call(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """One call: {"do": "call", "fn": table name, "args": [ARG], "err": ERR}.

    ARG: number | null | {"ref": name} | {"string": text} | {"host": buffer, "offset": n} |
    {"memory": [offset, length]} | {"struct": C name, "fields": {..}, "size", "kind", "tail", "guard",
    "next": [{"kind", "required", "flags", "pad"}]} |
    {"out": C type, "save", "fill", "size", "kind", "guard"} | {"array": [ARG], "ctype": C type} |
    {"task": "gate"|"ticket"|"count", "name": n, "value": v} (stands for two parameters).
    Fields of union type take {member: ARG}, of struct type {field: ARG}.
    ERR: absent: a normal one; null: NULL; "grease": NULL sometimes; {"capacity", "size", "kind", "guard"}.
    fn "kernel.plan" and "kernel.run" take a kernel reference ("kernel/0/aten::neg/r1/generic") first.

    -> {"status", "err", "outs", "untouched", "intact", "seconds"}; outs in order of the arguments, pointers
    as numbers, after a failure strings too. intact: no byte has changed that the call may not change.
    "state": true adds "state_changed", see session_process; "log_lock": true holds the log sink's lock,
    a number does so for that many seconds before the call, too, so that other threads get into theirs.
    """
    name, args = command["fn"], list(command.get("args", ()))
    error = command.get("err", {})
    if error == "grease":
        error = internal_error(session)
    frame = session.frame()
    try:
        if name in _KERNEL_FUNCTIONS:
            kernel = ffi.cast("const fl_kernel*", frame.convert(args[0], ffi.typeof("void*")))
            function = kernel.plan if name == "kernel.plan" else kernel.run
            values = [kernel, *_arguments_after_kernel(session, frame, function, args[1:])]
        else:
            function = session.function(name)
            values = _arguments(session, frame, function, args)
    except (OverflowError, TypeError) as problem:
        raise CommandError(f"{name}: {problem}") from None
    watch = session_process.Watch(command)
    result = invoke(session, frame, name, function, values, error)
    return result | watch.end()


def _arguments_after_kernel(session: Session, frame: Frame, function: Any, args: list[Any]) -> list[Any]:
    types = ffi.typeof(function).args[1:-1]
    if len(args) != len(types):
        raise CommandError(f"{len(args)} arguments where the function takes {len(types)} after the kernel")
    return [frame.convert(arg, ctype) for arg, ctype in zip(args, types, strict=True)]


def release_all(session: Session) -> list[str]:
    """Wait for the devices, then destroy what is live, children first; returns the failures."""
    live, functions, problems = session.live, session.functions, []

    def check(what: str, status: int) -> None:
        if status != abi.FL_OK:
            problems.append(f"{what}: {abi.status_name(status)}")

    for device in list(live.devices):
        status = functions["device.sync"](ffi.cast("fl_device", device), _SYNC_NS, ffi.NULL)
        if status == abi.FL_TIMEOUT:
            # Memory under running work must not go; the process ends soon and takes it along.
            return [f"device_sync: TIMEOUT after {_SYNC_NS / 1e9:.0f} s; nothing was released"]
    for event in list(live.events):
        check("event_destroy", functions["event.destroy"](ffi.cast("fl_event", event), ffi.NULL))
    for stream in list(live.streams):
        check("stream_destroy", functions["stream.destroy"](ffi.cast("fl_stream", stream), ffi.NULL))
    for device, base in list(live.pinned):
        status = functions["pinned.free"](ffi.cast("fl_device", device), ffi.cast("void*", base), ffi.NULL)
        check("pinned.free", status)
    for (device, base), size in list(live.memory.items()):
        check("mem_free", functions["memory.free"](ffi.cast("fl_device", device), base, size, ffi.NULL))
    for device in list(live.devices):
        check("device_close", functions["device.close"](ffi.cast("fl_device", device), ffi.NULL))
    session.live = Live()
    session.kernel_streams.clear()
    session.devices.clear()
    return problems


COMMANDS = {"call": _call}
