"""Reads and checks a device's kernel table: every entry and row, once, when the device is first used.

Unknown dtypes make a row unusable, not wrong; unknown operators are left to the reader of the registry.
What can't be trusted at all (wrong kind, short struct, a stride that splits an entry, a duplicate) refuses
the plugin, all reasons at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from . import abi
from .loader import PluginRefused, text_at

ffi = abi.ffi

_TIERS = {abi.FL_TIER_EXACT: "EXACT", abi.FL_TIER_ACCURATE: "ACCURATE", abi.FL_TIER_FAST: "FAST"}

_LONGEST_OP = 128  # characters; row ids, file names and pages are made of it


class KernelTable:
    """entries: JSON-able descriptions in table order; pointers: (op, revision, variant) -> fl_kernel."""

    def __init__(self, raw: Any, index: int) -> None:
        self.raw = raw
        self.entries: list[dict[str, Any]] = []
        self.pointers: dict[tuple[str, int, str], Any] = {}
        reasons = _header_reasons(raw, index)
        if reasons:
            raise PluginRefused(reasons)
        base = ffi.cast("char*", raw.entries)
        for position in range(raw.count):
            kernel = ffi.cast("const fl_kernel*", base + position * raw.entry_stride)
            entry, problems = _read_entry(kernel, f"device {index}, kernel entry {position}")
            reasons += problems
            if entry is None:
                continue
            key = (entry["op"], entry["revision"], entry["variant"])
            if key in self.pointers:
                reasons.append(
                    f"FL-KERNEL-002: device {index} lists {key[0]} r{key[1]} variant {key[2]!r} twice; "
                    "give each its own variant name"
                )
            self.pointers[key] = kernel
            self.entries.append(entry)
        if reasons:
            raise PluginRefused(reasons)

    def raw_digest(self) -> str:
        """sha256 of the bytes of table, entries and rows: constant within a process [FL-KERNEL-002]."""
        digest = hashlib.sha256(ffi.buffer(self.raw, ffi.sizeof("fl_kernel_table")))
        digest.update(ffi.buffer(ffi.cast("char*", self.raw.entries), self.raw.entry_stride * self.raw.count))
        for kernel in self.pointers.values():
            digest.update(ffi.buffer(ffi.cast("char*", kernel.rows), kernel.row_stride * kernel.n_rows))
        return digest.hexdigest()


def digest_of(tables: list[list[dict[str, Any]]]) -> str:
    """sha256 of the described tables of all devices: equal for equal declarations in any process."""
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def _header_reasons(raw: Any, index: int) -> list[str]:
    where = f"device {index}: kernel table"
    if raw == ffi.NULL:
        return [f"FL-KERNEL-001: {where} is NULL; an empty table has count 0"]
    if raw.kind != abi.FL_KIND_KERNEL_TABLE:
        return [f"FL-LAYOUT-003: {where} has kind {raw.kind}, expected {abi.FL_KIND_KERNEL_TABLE}"]
    if raw.struct_size < abi.FL_SIZE_V1_0_KERNEL_TABLE:
        return [f"FL-LAYOUT-006: {where} has struct_size {raw.struct_size}"]
    if raw.count and raw.entries == ffi.NULL:
        return [f"FL-KERNEL-001: {where} has count {raw.count} and no entries"]
    if raw.count and (raw.entry_stride < abi.FL_SIZE_V1_0_KERNEL or raw.entry_stride % 8):
        return [f"FL-KERNEL-001: {where} has entry_stride {raw.entry_stride}; use the entries' own sizeof"]
    return []


def _read_entry(kernel: Any, where: str) -> tuple[dict[str, Any] | None, list[str]]:
    """(description or None, reasons)."""
    if kernel.kind != abi.FL_KIND_KERNEL:
        return None, [f"FL-LAYOUT-003: {where} has kind {kernel.kind}, expected {abi.FL_KIND_KERNEL}"]
    if kernel.struct_size < abi.FL_SIZE_V1_0_KERNEL:
        return None, [f"FL-LAYOUT-006: {where} has struct_size {kernel.struct_size}"]
    op, variant = text_at(kernel.op), text_at(kernel.variant)
    reasons = []
    if not op or len(op) > _LONGEST_OP:
        reasons.append(f"FL-KERNEL-001: {where} has no operator name of 1 to {_LONGEST_OP} characters")
    where = f"{where} ({op!s:.80} r{kernel.revision})"
    if variant is None or not re.fullmatch(r"[a-z0-9_]{1,64}", variant):
        reasons.append(f"FL-LAYOUT-009: {where} has variant {variant!r:.80}; a variant name is 1 to 64 of [a-z0-9_]")
    if kernel.plan == ffi.NULL or kernel.run == ffi.NULL:
        reasons.append(f"FL-KERNEL-001: {where} lacks plan or run; set both")
    if kernel.n_types > abi.FL_MAX_TYPE_VARIABLES:
        reasons.append(
            f"FL-KERNEL-001: {where} has n_types {kernel.n_types}, at most {abi.FL_MAX_TYPE_VARIABLES} are possible; "
            "use the registry's number of type variables"
        )
    if kernel.n_rows and kernel.rows == ffi.NULL:
        reasons.append(f"FL-KERNEL-001: {where} has n_rows {kernel.n_rows} and no rows; point rows at them, or say 0")
    if kernel.n_rows and (kernel.row_stride < abi.FL_SIZE_V1_0_KERNEL_ROW or kernel.row_stride % 8):
        reasons.append(f"FL-KERNEL-001: {where} has row_stride {kernel.row_stride}; use the rows' own sizeof")
    if kernel.tier not in _TIERS:
        reasons.append(f"FL-KERNEL-001: {where} has unknown tier {kernel.tier}; use FL_TIER_EXACT, _ACCURATE or _FAST")
    if reasons:
        return None, reasons
    rows, ignored, reasons = _read_rows(kernel, where)
    return {
        "op": op,
        "revision": int(kernel.revision),
        "variant": variant,
        "n_types": int(kernel.n_types),
        "rows": rows,
        "ignored_rows": ignored,
        "layouts": abi.flag_names("FL_LAYOUT_", kernel.layouts),
        "max_ndim": int(kernel.max_ndim),
        "flags": abi.flag_names("FL_KERNEL_", kernel.flags),
        "tier": _TIERS[kernel.tier],
        "priority": int(kernel.priority),
        "data_align": int(kernel.data_align),
    }, reasons


def _read_rows(kernel: Any, where: str) -> tuple[list[dict[str, Any]], int, list[str]]:
    """(rows, number of rows with a dtype that this header does not know, reasons)."""
    rows: list[dict[str, Any]] = []
    reasons = []
    ignored = 0
    base = ffi.cast("char*", kernel.rows)
    for position in range(kernel.n_rows):
        row = ffi.cast("const fl_kernel_row*", base + position * kernel.row_stride)
        if row.kind != abi.FL_KIND_KERNEL_ROW or row.struct_size < abi.FL_SIZE_V1_0_KERNEL_ROW:
            reasons.append(
                f"FL-LAYOUT-003: {where} row {position} has kind {row.kind} and struct_size {row.struct_size}"
            )
            continue
        dtypes = [abi.DTYPE_NAMES.get(row.dtypes[i]) for i in range(kernel.n_types)]
        accumulator = abi.DTYPE_NAMES.get(row.accumulator)
        if None in dtypes or (accumulator is None and row.accumulator != abi.FL_DTYPE_NONE):
            ignored += 1
            continue
        if any(dtypes == known["dtypes"] for known in rows):
            reasons.append(f"FL-KERNEL-002: {where} lists the dtypes {','.join(map(str, dtypes))} twice")
        rows.append(
            {
                "dtypes": dtypes,
                "accumulator": accumulator,
                "accumulator_bits": int(row.accumulator_bits),
                "path_length": int(row.path_length),
                "flags": abi.flag_names("FL_ROW_", row.flags),
            }
        )
    return rows, ignored, reasons
