"""Chapter version: symbols, what behaviour may depend on, the mandatory set, the header (FL-VERSION-001, 2, 5, 6)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch_fl_spec import abi as header
from torch_fl_spec.elf import dynamic_symbols
from torch_fl_spec.layout import known_headers
from torch_fl_spec.loader import PluginRefused

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.calls import abi_call
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.settings import RunSettings
from torch_fl_conformance.surface import samples

QUERY = "fl_plugin_query_v1"


@rule("FL-VERSION-001")
def test_one_symbol_is_exported(row: Row, settings: RunSettings) -> None:
    """fl_plugin_query_v1 (and queries of later major versions) and nothing else; no fl_ symbol is imported."""
    library = Path(settings.driver.library)
    row.case(library=library.name)
    try:
        exported, imported = dynamic_symbols(library)
    except ValueError as error:
        row.fail(f"its symbols can't be read, though it loads: {error}")
    # What linkers add by themselves is no interface.
    by_linker = {"_init", "_fini", "_edata", "_end", "__bss_start"}
    extra = [name for name in exported if not re.fullmatch(r"fl_plugin_query_v\d+", name) and name not in by_linker]
    row.check(QUERY in exported, f"{library.name} does not export {QUERY}")
    row.check(
        not extra,
        f"{library.name} exports {len(extra)} symbols beside {QUERY}: they can meet those of other vendors; "
        "link with a version script or -fvisibility=hidden",
        exported=extra[:12],
    )
    wanted = [name for name in imported if name.startswith("fl_")]
    row.check(not wanted, "the library imports fl_ symbols from its host", imported=wanted[:12])


@rule("FL-VERSION-002")
def test_no_behaviour_depends_on_a_version(row: Row, fresh_driver: FreshDriver) -> None:
    """The same transcript under host minor 0, 1 and 9999, and under other host names and none."""
    transcripts: dict[str, Any] = {}
    for name, minor in (("torch-fl", 0), ("torch-fl", 1), ("another host", 9999), (None, 0)):
        host = f"{name or 'no name'} {minor}"
        row.case(host_minor=minor, host_name=name)
        driver = fresh_driver(host_minor=minor, host_name=name, grease=False)
        try:
            transcripts[host] = _transcript(Abi(driver))
        except PluginRefused as refusal:
            row.fail(f"the plugin does not load under a host {name!r} of minor version {minor}: {refusal}")
        contents = transcripts[host]["contents"]
        row.check(contents == "9d" * 256, "a block that was filled holds something else", got=contents[:16])
    first = next(iter(transcripts))
    for host, transcript in transcripts.items():
        for what, value in transcript.items():
            row.check(
                value == transcripts[first][what],
                f"{what} differs between the hosts {first!r} and {host!r} (name and minor version)",
                expected=str(transcripts[first][what])[:300],
                got=str(value)[:300],
            )


def _transcript(abi: Abi) -> dict[str, Any]:
    """What a host can see without addresses: declarations, and the status of every sample."""
    described = {key: abi.driver.describe()[key] for key in ("name", "devices", "kernels", "extensions")}
    statuses = {sample.label: abi.call(sample.fn, *sample.build({})).status for sample in samples(abi)}
    stream, block = abi.stream(), abi.alloc("d0", 256)
    abi.fill(stream, block, 0x9D)
    contents = abi.download(stream, block).hex()
    refused = abi.call("memory.alloc", "d0", struct("fl_mem_alloc_args", {"bytes": 0}), out("uint64_t")).status
    abi.release_all()
    return {**described, "statuses": statuses, "contents": contents, "refusal": refused}


@rule("FL-VERSION-005")
def test_every_mandatory_function_works(row: Row, abi: Abi, fresh_driver: FreshDriver) -> None:
    """Each of the 26 functions, given valid arguments, does what it is for."""
    called = {"device.open", "device.close", "root.shutdown"}
    for sample in samples(abi):
        row.case(call=sample.label)
        result = abi.call(sample.fn, *sample.build({}))
        # The sample asks for an extension that nobody has.
        due = header.FL_UNIMPLEMENTED if sample.fn == "root.get_extension" else header.FL_OK
        row.check(result.status == due, f"{result} for valid arguments, expected {header.status_name(due)}")
        called.add(sample.fn)
    _check_effects(row, abi)
    driver = fresh_driver()
    driver.describe()
    for index in range(len(abi.devices)):
        for fn, args in (
            ("device.close", [f"d{index}"]),
            ("device.open", [index, struct("fl_device_open_args"), out("fl_device", save="again")]),
            ("device.close", ["again"]),
        ):
            row.case(call=fn, device=index)
            result = abi_call(driver, fn, *args)
            row.check(result.ok, f"{result} for valid arguments, expected OK")
    row.case(call="root.shutdown")
    result = abi_call(driver, "root.shutdown")
    row.check(result.ok, f"{result}, expected OK")
    functions = {name for name in called if not name.startswith("kernel.") or name == "kernel.kernels"}
    row.check(len(functions) == 26, "not every function was called", called=sorted(functions))


def _check_effects(row: Row, abi: Abi) -> None:
    """A status alone costs nothing: what was filled is copied back, and a host task runs."""
    row.case(call="memory.fill, memory.copy, stream.host_task")
    stream, block, counter = abi.stream(), abi.alloc("d0", 256), abi.driver.name("c")
    abi.fill(stream, block, 0x5E)
    abi.count_task(stream, counter)
    row.check(abi.download(stream, block) == b"\x5e" * 256, "a block that was filled holds something else")
    abi.sync(stream)
    row.check(abi.count(counter)["calls"] == 1, "a host task has not run when its stream is synchronised")


@rule("FL-VERSION-006")
def test_the_header_is_known(row: Row, settings: RunSettings) -> None:
    """header_id names a header that was released, or is a candidate of the coming release."""
    found = settings.description["header_id"]
    row.case(header_id=found)
    row.check(re.fullmatch(r"[0-9a-f]{64}", found), "header_id is no sha256 in hexadecimal", got=found)
    row.check(
        any(found in ids for ids in known_headers().values()),
        "header_id is not that of any released or candidate plugin.h: was the header edited? "
        "Build against an unchanged torch_fl/plugin.h",
        got=found,
        this_suite=header.HEADER_ID,
    )
