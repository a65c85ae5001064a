"""Chapter load: kinds, sizes, chains, flags, pads and strings (FL-LAYOUT-003 and 005 to 009)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, array, out, struct
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.payload import Affine
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.surface import WORDS, Options, Sample, introduced, struct_samples


def expect(row: Row, abi: Abi, sample: Sample, options: Options, status: int, what: str, **call: Any) -> None:
    """One call of the sample with these options of its struct; fail the row on another status or a stray write."""
    row.case(call=sample.label, what=what)
    result = abi.call(sample.fn, *sample.build(options), **call)
    wanted = header.status_name(status)
    row.check(result.status == status, f"{result} with {what}, expected {wanted}", call=sample.label)
    row.check(result.intact, f"{sample.fn} wrote where it had no right to, with {what}", call=sample.label)
    if status != header.FL_OK:
        row.check(all(result.untouched), f"{sample.fn} failed and wrote an out parameter, with {what}")


@rule("FL-LAYOUT-003")
def test_wrong_kinds_are_refused(row: Row, abi: Abi) -> None:
    """Each struct of each function under every kind but its own, the error struct included."""
    kinds = [0, *range(1, 21), 64, 65, 1024, 2**32 - 1]
    for sample in struct_samples(abi):
        own = header.kind_of(sample.struct)
        for kind in kinds:
            if kind != own:
                expect(row, abi, sample, {"kind": kind}, header.FL_INVALID_ARGUMENT, f"kind {kind}")
        expect(row, abi, sample, {}, header.FL_OK, "its own kind, after the wrong ones")
    for kind in (0, 2, 2**32 - 1):
        row.case(call="memory.info", error_kind=kind)
        info = ("memory.info", "d0", out("uint64_t"), out("uint64_t"))
        result = abi.call(*info, err={"kind": kind})
        row.check(
            result.status == header.FL_INVALID_ARGUMENT,
            f"memory.info returned {result.status_name} with an fl_error of kind {kind}, expected INVALID_ARGUMENT",
        )
        row.check(result.intact and all(result.untouched), "a call with a wrong fl_error wrote something")


@rule("FL-LAYOUT-005")
def test_nothing_is_touched_beyond_the_stated_size(row: Row, abi: Abi) -> None:
    """Out structs of the smallest legal size end at an inaccessible page; larger ones keep their unknown part."""
    for sample in struct_samples(abi):
        size = introduced(sample.struct)
        expect(row, abi, sample, {"size": size, "guard": True}, header.FL_OK, f"{size} bytes and a guard page behind")
        if sample.struct in ("fl_device_info", "fl_plan"):
            for more in (8, 64, 256):
                expect(row, abi, sample, {"size": size + more}, header.FL_OK, f"struct_size {size + more}")
                row.label("larger out struct")
    row.require("larger out struct", "error at a guard page")
    smallest = introduced("fl_error")
    for capacity in (0, 1, 2, 8, 64):
        row.case(call="stream.query", error_capacity=capacity)
        row.label("error at a guard page")
        result = abi.call("stream.query", None, err={"capacity": capacity, "size": smallest, "guard": True})
        row.check(result.status == header.FL_INVALID_ARGUMENT, f"{result}, expected INVALID_ARGUMENT")
        row.check(
            result.err is not None and result.err["intact"], "an error struct was written beyond its size or capacity"
        )


@rule("FL-LAYOUT-006")
def test_only_too_small_structs_are_refused(row: Row, abi: Abi) -> None:
    """struct_size as introduced and far larger ones are accepted, anything less is refused."""
    for sample in struct_samples(abi):
        size = introduced(sample.struct)
        expect(row, abi, sample, {"size": size}, header.FL_OK, f"struct_size {size}, as introduced")
        for more in (8, 64, 1000):
            options = {"size": size + more}
            if sample.struct not in ("fl_device_info", "fl_plan"):
                options["tail"] = 0xA5
            expect(row, abi, sample, options, header.FL_OK, f"struct_size {size + more} and a poisoned tail")
        for less in {8, size - 8, size - 1} - {0}:
            if less < size:
                what = f"struct_size {less} of {size}"
                expect(row, abi, sample, {"size": less}, header.FL_INVALID_ARGUMENT, what)
    for size in (introduced("fl_error"), introduced("fl_error") + 64):
        row.case(call="stream.query", error_size=size)
        result = abi.call("stream.query", None, err={"size": size})
        row.check(
            result.err is not None and result.err["intact"] and result.message,
            f"an fl_error of {size} bytes was not filled, or was written beyond its end",
        )


_CHAINED = ("fl_mem_alloc_args", "fl_copy_args", "fl_stream_create_args", "fl_event_create_args", "fl_call")
_UNKNOWN = 1024 + 777


@rule("FL-LAYOUT-007")
def test_unknown_nodes_and_flags(row: Row, abi: Abi, fresh_driver: FreshDriver) -> None:
    """Unknown optional nodes are skipped, required ones refused wherever they stand; undefined flag bits refused."""
    optional, required = {"kind": _UNKNOWN}, {"kind": _UNKNOWN + 1, "required": True}
    row.require(*_CHAINED)
    for sample in struct_samples(abi):
        if sample.struct not in _CHAINED:
            continue
        row.label(sample.struct)
        for chain in ([optional], [optional] * 3):
            expect(row, abi, sample, {"next": chain}, header.FL_OK, f"{len(chain)} unknown optional nodes")
        for chain in ([required], [optional, required], [required, optional], [optional, optional, required]):
            place = chain.index(required)
            what = f"an unknown required node at place {place} of {len(chain)}"
            expect(row, abi, sample, {"next": chain}, header.FL_UNIMPLEMENTED, what)
        expect(row, abi, sample, {"next": [optional] * 50}, header.FL_OK, "50 unknown optional nodes")
        for bit in range(1, 32):
            node = {"kind": _UNKNOWN, "flags": 1 << bit}
            what = f"undefined bit {bit} in a node's flags"
            expect(row, abi, sample, {"next": [optional, node]}, header.FL_INVALID_ARGUMENT, what)
    for what, fn, build in _flag_words(abi):
        for bit in range(32):
            row.case(call=fn, field=what, bit=bit)
            result = abi.call(fn, *build(1 << bit))
            row.check(
                result.status == header.FL_INVALID_ARGUMENT,
                f"{result} with undefined bit {bit} of {what}, expected INVALID_ARGUMENT",
            )
            row.check(all(result.untouched), f"{fn} was refused for its flags and wrote an out parameter")
    _open_options(row, fresh_driver)


def _flag_words(abi: Abi) -> list[tuple[str, str, Callable[[int], list[Arg]]]]:
    """(field, function, arguments with that value in the field), for fields all of whose bits are undefined."""

    def alloc(flags: int) -> list[Arg]:
        return ["d0", struct("fl_mem_alloc_args", {"bytes": 64, "flags": flags}), out("uint64_t")]

    def stream(flags: int) -> list[Arg]:
        return ["d0", struct("fl_stream_create_args", {"flags": flags}), out("fl_stream")]

    def event(flags: int) -> list[Arg]:
        # Bit 0 is FL_EVENT_TIMING: it is put to use beside an undefined bit.
        return ["d0", struct("fl_event_create_args", {"flags": flags if flags != 1 else 3}), out("fl_event")]

    words: list[tuple[str, str, Callable[[int], list[Arg]]]] = [
        ("fl_mem_alloc_args.flags", "memory.alloc", alloc),
        ("fl_stream_create_args.flags", "stream.create", stream),
        ("fl_event_create_args.flags", "event.create", event),
    ]
    payload = Affine.of(abi)
    if payload is not None:

        def tensor(flags: int) -> list[Arg]:
            call = payload.planned(WORDS)
            call["fields"]["args"]["array"][0]["value"]["tensor"]["fields"]["flags"] = flags if flags != 1 else 3
            return [payload.kernel, "d0", call, out("fl_plan")]

        def argument(flags: int) -> list[Arg]:
            call = payload.planned(WORDS)
            call["fields"]["args"]["array"][0]["flags"] = flags & 0xFFFF or 0x8000
            return [payload.kernel, "d0", call, out("fl_plan")]

        words += [("fl_tensor.flags", "kernel.plan", tensor), ("fl_arg.flags", "kernel.plan", argument)]
    return words


def _open_options(row: Row, fresh_driver: FreshDriver) -> None:
    """device_open on its own: chain, kind and options, before any device is open."""
    driver = fresh_driver()
    from torch_fl_conformance.arguments import text
    from torch_fl_conformance.calls import abi_call

    cases: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
        ("an unknown required node", {}, {"next": [{"kind": _UNKNOWN, "required": True}]}, header.FL_UNIMPLEMENTED),
        ("a wrong kind", {}, {"kind": 3}, header.FL_INVALID_ARGUMENT),
        ("struct_size 16", {}, {"size": 16}, header.FL_INVALID_ARGUMENT),
        ("an unknown option", {"options": text("no_such_option=1")}, {}, header.FL_INVALID_ARGUMENT),
    ]
    for what, fields, options, status in cases:
        row.case(call="device.open", what=what)
        args = struct("fl_device_open_args", fields, **options)
        result = abi_call(driver, "device.open", 0, args, out("fl_device"))
        row.check(
            result.status == status, f"{result} with {what}, expected {header.status_name(status)}", call="device.open"
        )
        if "option" in what:
            row.check(
                "no_such_option" in result.message,
                "the refusal of an unknown option does not name it",
                message=result.message,
            )
    for index in (-1, 9999):
        row.case(call="device.open", index=index)
        result = abi_call(driver, "device.open", index, struct("fl_device_open_args"), out("fl_device"))
        row.check(result.status == header.FL_INVALID_ARGUMENT, f"{result} for index {index}, expected INVALID_ARGUMENT")
    larger = {"size": introduced("fl_device_open_args") + 64, "tail": 0xA5}
    row.case(call="device.open", what="an unknown option in a larger struct")
    args = struct("fl_device_open_args", {"options": text("no_such_option=1")}, **larger)
    result = abi_call(driver, "device.open", 0, args, out("fl_device"))
    row.check(
        result.status == header.FL_INVALID_ARGUMENT,
        f"{result} for an unknown option in a larger struct, expected INVALID_ARGUMENT",
    )
    accepted: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("no options", {}, {"next": [], "size": introduced("fl_device_open_args")}),
        ("empty options", {"options": text("")}, {}),
        ("unknown optional nodes", {}, {"next": [{"kind": _UNKNOWN}, {"kind": _UNKNOWN + 1, "pad": 0xDEAD}]}),
        ("a larger struct with a poisoned tail", {}, larger),
    ]
    for what, fields, options in accepted:
        row.case(call="device.open", what=what)
        args = struct("fl_device_open_args", fields, **options)
        result = abi_call(driver, "device.open", 0, args, out("fl_device", save="opened"))
        row.check(result.ok, f"{result} with {what}, after refused calls and while it is closed, expected OK")
        closed = abi_call(driver, "device.close", "opened")
        row.check(closed.ok, f"{closed}, expected OK")


@rule("FL-LAYOUT-008")
def test_pads_are_zero_and_ignored(row: Row, abi: Abi) -> None:
    """Pads that the plugin writes are 0; garbage in pads that the host writes changes nothing."""
    for where, value in abi.driver.execute({"do": "pads"})["pads"].items():
        row.case(produced=where)
        row.check(value == 0, f"{where} is not 0", got=value)
    row.case(consumed="fl_host.pad")
    query = abi.call("root.query", struct("fl_host", {"pad": 0xDEADBEEF}), out("const fl_plugin*"))
    row.check(query.ok, f"{query} with garbage in fl_host.pad, expected OK")
    for sample in struct_samples(abi):
        if sample.struct in _CHAINED:
            nodes = {"next": [{"kind": _UNKNOWN, "pad": 0xDEADBEEF}]}
            expect(row, abi, sample, nodes, header.FL_OK, "garbage in the pad of an extension node")
    row.case(consumed="fl_event_create_args.pad")
    args = struct("fl_event_create_args", {"pad": 0xDEADBEEF})
    result = abi.call("event.create", "d0", args, out("fl_event", save=abi.driver.name("e")))
    row.check(result.ok, f"{result} with garbage in fl_event_create_args.pad, expected OK")
    payload = Affine.of(abi)
    if payload is not None:
        row.case(consumed="unused bytes of fl_arg")
        call = payload.planned(WORDS)
        call["fields"]["args"] = array(
            [*call["fields"]["args"]["array"][:2], {"tag": header.FL_TAG_INT, "value": {"c": {"re": 0.0, "im": 7.5}}}],
            "fl_arg",
        )
        result = abi.call("kernel.plan", payload.kernel, "d0", call, out("fl_plan"))
        row.check(result.ok, f"{result} with garbage behind an integer's 8 bytes, expected OK")


@rule("FL-LAYOUT-009")
def test_strings_are_constant(row: Row, abi: Abi) -> None:
    """Valid UTF-8, and the same address and bytes after a thousand calls."""
    before = abi.driver.execute({"do": "strings"})["strings"]
    for where, (address, raw) in before.items():
        row.case(string=where)
        row.check(address != 0, f"{where} is NULL")
        try:
            value = bytes.fromhex(raw).decode("utf-8")
        except UnicodeDecodeError:
            row.fail(f"{where} is not UTF-8", got=raw[:80])
        row.check(value, f"{where} is empty")
    stream = abi.stream()
    for _ in range(250):
        abi.call("device.info", "d0", out("fl_device_info"))
        abi.call("stream.query", None)
        abi.call("stream.query", stream)
        abi.call("kernel.kernels", "d0", out("const fl_kernel_table*"))
    first = {where: address for where, (address, _) in before.items() if address}
    kept = abi.driver.execute({"do": "strings", "reread": first})["strings"]
    for where, value in kept.items():
        row.check(value == before[where], f"{where} has changed where it stands", before=before[where], after=value)
    after = abi.driver.execute({"do": "strings"})["strings"]
    row.case(calls=1000)
    for where, value in before.items():
        row.check(after[where] == value, f"{where} changed over a thousand calls", before=value, after=after[where])
