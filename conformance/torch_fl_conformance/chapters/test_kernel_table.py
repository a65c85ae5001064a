"""Chapter kernel, the table: well formed, unique, constant (FL-KERNEL-001 and 002)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from torch_fl_spec import abi as header
from torch_fl_spec.kernel_table import digest_of
from torch_fl_spec.registry import load_registry

from torch_fl_conformance.arguments import out, struct, text
from torch_fl_conformance.calls import abi_call
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.kernel_samples import claimed, one_row, plain
from torch_fl_conformance.raw_calls import RawCall
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule

OP = re.compile(r"[a-z0-9_]+::[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")
VARIANT = re.compile(r"[a-z0-9_]+")
UNKNOWN_BIT = re.compile(r"0x[0-9a-f]+")
LARGEST_ALIGN = 65_536  # bytes; alloc_align, from which a host places tensors, ends there


@rule("FL-KERNEL-001")
def test_every_entry_is_well_formed(row: Row, declarations: dict[str, Any]) -> None:
    """Names, revision, types, rows, layouts, flags, tier and rank of every entry of every device."""
    row.require("entry", "dtype row")
    for index, entries in enumerate(declarations["kernels"]):
        for position, entry in enumerate(entries):
            row.case(device=index, entry=position, op=entry["op"], revision=entry["revision"], variant=entry["variant"])
            row.label("entry")
            _check_entry(row, entry)
            for declared in entry["rows"]:
                row.label("dtype row")
                _check_row(row, entry, declared)


def _check_entry(row: Row, entry: dict[str, Any]) -> None:
    name = f"{entry['op']} r{entry['revision']} {entry['variant']}"
    row.check(OP.fullmatch(entry["op"]), f"op {entry['op']!r} is no ATen overload such as aten::add.Tensor")
    row.check(VARIANT.fullmatch(entry["variant"]), f"{name}: the variant's name is not of [a-z0-9_]+")
    row.check(entry["revision"] >= 1, f"{name}: revision {entry['revision']}, the first one is 1")
    row.check(entry["max_ndim"] >= 1, f"{name}: max_ndim {entry['max_ndim']}, expected at least 1")
    operator = load_registry().get(entry["op"], entry["revision"])
    if operator is not None:
        row.label("known operator")
        expected = len(operator.types)
        row.check(entry["n_types"] == expected, f"{name}: n_types {entry['n_types']}, the registry has {expected}")
    row.check(entry["rows"] or entry["ignored_rows"], f"{name}: no dtype row")
    row.check(
        not entry["ignored_rows"],
        f"{name}: {entry['ignored_rows']} row(s) with a dtype or accumulator that plugin.h does not define",
    )
    row.check(entry["layouts"], f"{name}: no layout, so that it serves no tensor")
    for what in ("layouts", "flags"):
        unknown = [bit for bit in entry[what] if UNKNOWN_BIT.fullmatch(bit)]
        row.check(not unknown, f"{name}: {what} {'|'.join(unknown)} that plugin.h does not define")
    align = entry["data_align"]
    row.check(
        align & (align - 1) == 0 and align <= LARGEST_ALIGN,
        f"{name}: data_align {align}, expected 0 or a power of two up to {LARGEST_ALIGN}",
    )


def _check_row(row: Row, entry: dict[str, Any], declared: dict[str, Any]) -> None:
    name = f"{entry['op']} r{entry['revision']} {entry['variant']} {','.join(declared['dtypes'])}"
    unknown = [bit for bit in declared["flags"] if UNKNOWN_BIT.fullmatch(bit)]
    row.check(not unknown, f"{name}: row flags {'|'.join(unknown)} that plugin.h does not define")
    accumulator, bits = declared["accumulator"], declared["accumulator_bits"]
    if accumulator is not None:
        kind = DTYPES[accumulator]
        most = kind.precision if kind.is_float else 8 * kind.size
        row.check(bits <= most, f"{name}: accumulator_bits {bits}, {accumulator} has {most}")
    if accumulator is None:
        row.check(bits == 0, f"{name}: accumulator_bits {bits} without an accumulator")


@rule("FL-KERNEL-002")
def test_the_table_is_unique_and_constant(
    row: Row,
    abi: Abi,
    fresh_driver: FreshDriver,
    declarations: dict[str, Any],
    rng: np.random.Generator,
    effort: Effort,
) -> None:
    """No entry twice; the same bytes after calls of all kinds; the same declarations in other orders of opening."""
    devices = [f"d{index}" for index in range(len(abi.devices))]
    for index, entries in enumerate(declarations["kernels"]):
        row.case(device=index, what="uniqueness")
        keys = [(entry["op"], entry["revision"], entry["variant"]) for entry in entries]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        row.check(not twice, f"device {index} lists {len(twice)} entries twice, the first {twice[:1]}")
    before = {device: _table(abi.driver, device=device) for device in devices}
    for device, entries in zip(devices, declarations["kernels"], strict=True):
        row.case(device=device, what="the table that the rows of this run are made from")
        row.check(
            before[device]["declared"] == digest_of([entries]),
            f"{device} has another kernel table than in the process that the suite asked before its first row",
        )
    for kernel in claimed(declarations)[:: effort.pick(5, 1)]:
        row.case(kernel=kernel.name, what="the table's bytes around a plan")
        raw = RawCall(abi, kernel, plain(kernel, one_row(kernel, rng) or kernel.rows[0]))
        raw.plan()
    row.case(what="the table's bytes around streams, events and memory")
    for device in devices:
        stream, block, event = abi.stream(device), abi.alloc(device, 4096), abi.event(device)
        abi.fill(stream, block, 1)
        abi.record(event, stream)
        abi.sync(stream)
        abi.free(block)
        now = _table(abi.driver, device=device)
        row.check(now["sha256"] == before[device]["sha256"], f"the kernel table of {device} changed during the run")
    row.require("other process")
    for order in ([*range(len(devices))], [*reversed(range(len(devices)))]):
        _other_order(row, fresh_driver(), order, before)


def _table(driver: Driver, **which: Any) -> dict[str, Any]:
    table: dict[str, Any] = driver.execute({"do": "table_bytes", **which})
    return table


def _other_order(row: Row, driver: Driver, order: list[int], before: dict[str, dict[str, Any]]) -> None:
    """In a process of its own, the devices are opened in `order`; then the first one is closed and opened again."""
    row.case(what="opening order", order=order)
    row.label("other process")
    tables = {index: _open(row, driver, index) for index in order}
    for index, handle in tables.items():
        table = _table(driver, handle=handle)
        row.check(
            table["declared"] == before[f"d{index}"]["declared"],
            f"device {index} has another kernel table when the devices are opened in the order {order}",
        )
    if order != sorted(order):
        row.label("reversed order")
    first = order[0]
    old = _table(driver, handle=tables[first])
    closed = abi_call(driver, "device.close", tables[first])
    row.check(closed.ok, f"{closed}, expected OK")
    again = _table(driver, handle=_open(row, driver, first))
    row.check(again["sha256"] == old["sha256"], f"device {first} has another kernel table when it is opened again")


def _open(row: Row, driver: Driver, index: int) -> str:
    handle = driver.name("device")
    args = struct("fl_device_open_args", {"options": text(driver.config.options)})
    opened = abi_call(driver, "device.open", index, args, out("fl_device", save=handle))
    row.check(opened.status == header.FL_OK, f"{opened} for device {index}, expected OK")
    return handle
