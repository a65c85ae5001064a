"""Chapter error: texts, codes, effects of failures, escapes, NULL (FL-ERROR-001 to 003, 005 and 007)."""

from __future__ import annotations

from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import array, encode, out, struct, text
from torch_fl_conformance.calls import abi_call, result_of
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.handles import CallResult
from torch_fl_conformance.leaks import memory_taken
from torch_fl_conformance.ordering import gates_work
from torch_fl_conformance.payload import Affine
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.surface import WORDS, Sample, samples

UNWRITTEN = int.from_bytes(b"\xa5" * 8, "little", signed=True)  # what the driver fills vendor_code with


def _failing(abi: Abi) -> list[tuple[str, list[Any]]]:
    """A call of each function that must fail: the first mandatory argument is NULL."""
    return [(sample.fn, _without(sample, sample.null[0])) for sample in samples(abi) if sample.null]


def _without(sample: Sample, position: int) -> list[Any]:
    args = list(sample.build({}))
    # A host task stands for two parameters, function and argument.
    if sample.fn == "stream.host_task" and position == 1:
        return [args[0], None, None]
    args[position] = None
    return args


@rule("FL-ERROR-001")
def test_failures_come_with_text(row: Row, abi: Abi, fresh_driver: FreshDriver, effort: Effort) -> None:
    """NULL err, every capacity, a text that is cut at a character's boundary, and one's own text in each thread."""
    for fn, args in _failing(abi):
        row.case(call=fn, err="NULL")
        result = abi.call(fn, *args, err=None)
        row.check(not result.ok, f"{fn} with a NULL argument and NULL err returned OK")
        full = abi.call(fn, *args)
        row.case(call=fn, capacity=1024)
        _check_text(row, full, 1024)
        capacities = (0, 1, 2, 8, 17)
        cuts = []
        for capacity in capacities:
            row.case(call=fn, capacity=capacity)
            cuts.append(abi.call(fn, *args, err={"capacity": capacity, "guard": True}))
            _check_text(row, cuts[-1], capacity)
        if abi.call(fn, *args).message != full.message:
            row.note(f"{fn} gives another text each time, so that cut ones can't be compared with the whole")
            continue
        for capacity, cut in zip(capacities, cuts, strict=True):
            row.case(call=fn, capacity=capacity)
            whole = full.message.encode()[: max(capacity - 1, 0)].decode("utf-8", "ignore")
            row.check(
                cut.message == whole,
                f"{fn} with a capacity of {capacity} gave another text than the beginning of the whole one",
                expected=whole,
                got=cut.message,
            )
    _wide_characters(row, fresh_driver())
    for threads in (1, 2, 8):
        count = effort.pick(100_000, 400_000)
        row.case(loop="error_storm", threads=threads, count=count)
        outcome = abi.driver.execute(
            {"do": "loop", "name": "error_storm", "device": 0, "threads": threads, "count": count}, timeout=120.0
        )
        row.count(count)
        row.check(
            not outcome["wrong"], f"{threads} threads that failed at once saw texts of each other, or none", **outcome
        )


def _wide_characters(row: Row, driver: Driver) -> None:
    """The refusal of an option names it, so that its text has characters of 2, 3 and 4 bytes to cut at."""
    key = "größe_ключ_値_🜁"
    args = struct("fl_device_open_args", {"options": text(f"{key}=1")})
    row.case(call="device.open", option=key)
    whole = abi_call(driver, "device.open", 0, args, out("fl_device"))
    _check_text(row, whole, 1024)
    row.check(key in whole.message, "the refusal of an unknown option does not name it", message=whole.message)
    raw = whole.message.encode()
    again = abi_call(driver, "device.open", 0, args, out("fl_device"))
    same = again.message == whole.message  # where a text counts or tells the time, only its form can be judged
    for capacity in range(1, len(raw) + 3):
        row.case(call="device.open", option=key, capacity=capacity)
        cut = abi_call(driver, "device.open", 0, args, out("fl_device"), err={"capacity": capacity, "guard": True})
        _check_text(row, cut, capacity)
        expected = raw[: capacity - 1].decode("utf-8", "ignore")
        row.check(
            cut.message == expected or not same,
            "a text is not cut at the last boundary between characters that fits",
            expected=expected,
            got=cut.message,
        )


def _check_text(row: Row, result: CallResult, capacity: int) -> None:
    row.check(not result.ok, f"{result.fn} with a NULL argument returned OK")
    error = result.err or {}
    row.check(error, f"{result.fn} failed and left the error struct empty")
    row.check(error["code"] == result.status, f"{result.fn}: err.code is not the returned status", **error)
    row.check(error["vendor_code"] != UNWRITTEN, f"{result.fn}: vendor_code was not written; 0 says that there is none")
    row.check(error["intact"], f"{result.fn} wrote beyond the error struct or its message's capacity", **error)
    row.check(error["terminated"], f"{result.fn}: message is not NUL-terminated at `length`", **error)
    row.check(error["tail_untouched"], f"{result.fn} wrote behind the end of its text", **error)
    row.check(error["utf8"], f"{result.fn}: message is not UTF-8", **error)
    row.check(error["length"] < max(capacity, 1), f"{result.fn}: length does not fit the capacity", **error)
    if capacity > 16:
        row.check(error["message"].strip(), f"{result.fn} failed without a text", **error)


@rule("FL-ERROR-002")
def test_each_status_means_what_it_says(row: Row, abi: Abi) -> None:
    """Each code is provoked where the interface calls for it."""
    device = abi.device_info("d0")
    total = abi.mem_info("d0")[1]
    huge = struct("fl_mem_alloc_args", {"bytes": total * 2})
    _status(row, abi, "OUT_OF_MEMORY", "more memory than there is", "memory.alloc", "d0", huge, out("uint64_t"))
    other_space = struct("fl_mem_alloc_args", {"bytes": 64, "space": 7})
    _status(row, abi, "UNIMPLEMENTED", "an unknown space", "memory.alloc", "d0", other_space, out("uint64_t"))
    for name in ("fl.no_such_extension", "", "nobody.thing"):
        args = ({"string": name}, 1, out("const fl_extension*"))
        _status(row, abi, "UNIMPLEMENTED", f"extension {name!r}", "root.get_extension", *args)
    for name, revision in abi.driver.describe()["extensions"].items():
        for other in (name[:-1], f"{name}2", f"{name}.", name.upper()):
            args = ({"string": other}, 1, out("const fl_extension*"))
            _status(row, abi, "UNIMPLEMENTED", f"extension {other!r}", "root.get_extension", *args)
        args = ({"string": name}, revision + 1000, out("const fl_extension*"))
        _status(row, abi, "UNIMPLEMENTED", f"a later revision of {name}", "root.get_extension", *args)
    urgent = struct("fl_stream_create_args", {"priority": device["priority_greatest"] - 1})
    _status(row, abi, "INVALID_ARGUMENT", "priority out of range", "stream.create", "d0", urgent, out("fl_stream"))
    odd = struct("fl_mem_alloc_args", {"bytes": 64, "alignment": 48})
    _status(row, abi, "INVALID_ARGUMENT", "alignment 48", "memory.alloc", "d0", odd, out("uint64_t"))
    stream, block = abi.stream(), abi.alloc("d0", 64)
    _status(row, abi, "INVALID_ARGUMENT", "pattern_bytes 3", "memory.fill", stream, block, 0, 1, 3, 1)
    opened = struct("fl_device_open_args")
    _status(row, abi, "FAILED_PRECONDITION", "a second open", "device.open", 0, opened, out("fl_device"))
    untimed = abi.event()
    abi.record(untimed, stream)
    abi.sync(stream)
    _status(row, abi, "FAILED_PRECONDITION", "no TIMING", "event.elapsed", untimed, untimed, out("int64_t"))
    if len(abi.devices) > 1:
        far = abi.stream("d1")
        _status(row, abi, "INVALID_ARGUMENT", "a stream of another device", "event.record", untimed, far)
    _unclaimed_dtype(row, abi)
    if gates_work(abi):
        row.require("gated")
        gate = abi.gate(stream)
        row.label("gated")
        event = abi.event(timing=True)
        abi.record(event, stream)
        _status(row, abi, "NOT_READY", "a stalled stream", "stream.query", stream)
        _status(row, abi, "NOT_READY", "a pending event", "event.query", event)
        _status(row, abi, "TIMEOUT", "1 ms", "stream.sync", stream, 1_000_000)
        _status(row, abi, "TIMEOUT", "1 ms", "event.sync", event, 1_000_000)
        _status(row, abi, "TIMEOUT", "1 ms", "device.sync", "d0", 1_000_000)
        gate.open()
        abi.sync(stream)


def _status(row: Row, abi: Abi, name: str, what: str, fn: str, *args: Any) -> None:
    row.case(call=fn, what=what)
    result = abi.call(fn, *args)
    row.check(result.status_name == name, f"{result} for {what}, expected {name}")
    row.check(all(result.untouched), f"{fn} did not return OK and wrote an out parameter")


def _unclaimed_dtype(row: Row, abi: Abi) -> None:
    """A kernel asked for a dtype that exists but that none of its rows claims."""
    payload = Affine.of(abi)
    if payload is None:
        return
    for dtype in (header.FL_DTYPE_F8E4M3FN, header.FL_DTYPE_F8E5M2, 200):
        call = payload.planned(WORDS)
        tensors = [entry["value"]["tensor"] for entry in call["fields"]["args"]["array"][:2]]
        for tensor in (*tensors, call["fields"]["outs"]["array"][0]):
            tensor["fields"]["dtype"] = dtype
        _status(row, abi, "UNIMPLEMENTED", f"dtype {dtype}", "kernel.plan", payload.kernel, "d0", call, out("fl_plan"))


@rule("FL-ERROR-003", exclusive=True)
def test_failures_have_no_effect(row: Row, abi: Abi) -> None:
    """Outputs keep their sentinels, objects work on, and a success leaves err alone."""
    stream, block = abi.stream(), abi.alloc("d0", 256)
    abi.fill(stream, block, 0x61)
    for fill in (0xA5, 0x00, 0xFF):
        for sample in samples(abi):
            for position in sample.null:
                args = [
                    {**arg, "fill": fill} if isinstance(arg, dict) and "out" in arg and "save" not in arg else arg
                    for arg in _without(sample, position)
                ]
                row.case(call=sample.fn, null_argument=position, outputs_hold=hex(fill))
                result = abi.call(sample.fn, *args)
                row.check(not result.ok, f"{sample.fn} with argument {position} NULL returned OK")
                row.check(all(result.untouched), f"{sample.fn} failed and wrote an out parameter")
                row.check(result.intact, f"{sample.fn} failed and wrote an argument")
    for fn, args, status in _refused_work(abi, stream, block):
        row.case(call=fn, refused=status)
        row.check(abi.call(fn, *args).status_name == status, f"{fn} was not refused with {status}")
    row.case(what="the stream and block that refused calls were made on")
    row.check(abi.download(stream, block) == b"\x61" * 256, "a refused call changed device memory")
    abi.fill(stream, block, 0x62)
    row.check(abi.download(stream, block) == b"\x62" * 256, "an object does not work after refused calls")
    taken = memory_taken(abi, "d0", lambda: _refuse_again_and_again(row, abi))
    row.case(what="memory after refused allocations")
    row.check(not taken, "refused allocations took memory", **taken)
    for sample in samples(abi):
        if sample.fn == "root.get_extension":
            continue
        row.case(call=sample.label, what="success")
        result = abi.call(sample.fn, *sample.build({}))
        row.check(result.ok, f"{result} for valid arguments, expected OK")
        row.check(result.err is None, f"{sample.fn} succeeded and wrote err", err=str(result.err))
        row.check(result.intact, f"{sample.fn} wrote an argument")


def _refuse_again_and_again(row: Row, abi: Abi) -> None:
    for _ in range(20):
        abi.call("memory.alloc", "d0", struct("fl_mem_alloc_args", {"bytes": 1 << 62}), out("uint64_t"))
        abi.call("memory.alloc", "d0", struct("fl_mem_alloc_args", {"bytes": 4096, "flags": 1 << 9}), out("uint64_t"))
    row.case(what="every refusal, again and again")
    command = {"do": "loop", "name": "work_cycle", "device": 0, "what": "refused", "count": 5}
    outcome = abi.driver.execute(command, timeout=60.0)
    row.check(not outcome["failures"], "an object does not work after refused calls", **outcome)
    row.check(not outcome["wrong"], "a call that must be refused was not", **outcome)


def _refused_work(abi: Abi, stream: Any, block: Any) -> list[tuple[str, list[Any], str]]:
    copy = abi.copy_args(block, block, 64, 32, 0)
    other = abi.alloc("d0", block.bytes)
    abi.fill(stream, other, 0x19)
    required = {"next": [{"kind": 1024 + 778, "required": True}]}
    refused: list[tuple[str, list[Any], str]] = []
    payload = Affine.of(abi)
    if payload is not None:
        call = payload.call(4, block, other, other, 3, options=required)
        refused.append(("kernel.run", [payload.kernel, stream, call], "UNIMPLEMENTED"))
    return [
        *refused,
        ("memory.copy", [stream, {**abi.copy_args(block, other), **required}], "UNIMPLEMENTED"),
        ("memory.copy", [stream, copy], "INVALID_ARGUMENT"),
        ("memory.fill", [stream, block, 0, 0, 3, 8], "INVALID_ARGUMENT"),
    ]


@rule("FL-ERROR-005")
def test_nothing_escapes_a_call(row: Row, fresh_driver: FreshDriver) -> None:
    """Signals, floating-point mode, directory, umask, environment, locale, limits are as before, whatever the call."""
    driver = fresh_driver()
    untouched = driver.execute({"do": "process_state"})
    abi = Abi(driver)
    for sample in samples(abi):
        _watched(row, abi.driver, sample.fn, sample.build({}), "valid")
        for position in sample.null:
            _watched(row, abi.driver, sample.fn, _without(sample, position), f"argument {position} NULL")
    other = fresh_driver()
    opened = [0, struct("fl_device_open_args"), out("fl_device", save="opened")]
    for fn, args in (("device.count", [out("int32_t")]), ("device.open", opened), ("device.close", ["opened"])):
        _watched(row, other, fn, args, "before anything else")
    payload = Affine.of(abi)
    if payload is not None:
        row.case(call="kernel.run", what="a fl_call of nonsense")
        nonsense = struct("fl_call", {"args": array([], "fl_arg"), "n_args": 0, "n_outs": 0})
        _watched(
            row, abi.driver, "kernel.plan", [payload.kernel, "d0", nonsense, out("fl_plan")], "no arguments at all"
        )
        _watched(row, abi.driver, "kernel.run", [payload.kernel, abi.stream(), nonsense], "no arguments at all")
    for value in (0, 1, 2**63, 2**64 - 1):
        alloc = struct("fl_mem_alloc_args", {"bytes": value, "alignment": value})
        _watched(row, abi.driver, "memory.alloc", ["d0", alloc, out("uint64_t")], f"bytes and alignment {value}")
    # A call that always sets the same state is seen by no comparison before and after it but that of its first time.
    row.case(what="the process before the first call and after the last")
    state = driver.execute({"do": "process_state"})
    changed = [name for name in state if state[name] != untouched[name]]
    row.check(not changed, f"calls changed the process's {', '.join(changed)}", changed=changed)


def _watched(row: Row, driver: Driver, fn: str, args: list[Any], what: str) -> None:
    row.case(call=fn, what=what)
    command = {"do": "call", "fn": fn, "args": [encode(value) for value in args], "state": True}
    raw = driver.execute(command)
    changed = raw.get("state_changed")
    row.check(changed is not None, "the driver did not watch the process's state")
    row.check(not changed, f"{fn} ({what}) changed the process's {', '.join(changed or [])}")
    result = result_of(fn, raw)
    row.check(result.intact, f"{fn} ({what}) wrote where it had no right to")


@rule("FL-ERROR-007")
def test_null_is_refused(row: Row, abi: Abi) -> None:
    """Each handle, args struct and out pointer NULL in turn: INVALID_ARGUMENT, with and without err."""
    for sample in samples(abi):
        for position in sample.null:
            spec: dict[str, int] = {}
            for err in (spec, None):
                row.case(call=sample.fn, null_argument=position, err="NULL" if err is None else "given")
                result = abi.call(sample.fn, *_without(sample, position), err=err)
                row.check(
                    result.status == header.FL_INVALID_ARGUMENT,
                    f"{result} with argument {position} NULL, expected INVALID_ARGUMENT",
                )
                row.check(all(result.untouched), f"{sample.fn} was refused and wrote an out parameter")
