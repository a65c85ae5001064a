"""Loads a plugin: dlopen, handshake, checks, and one full-width function table.

After `load` nobody looks at struct sizes of tables again: every slot that the plugin lacks, or that this
header does not know the plugin to have, is None in `Plugin.table`. A plugin is refused with all reasons
at once; each names the rule, what was found and what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import abi, elf
from .printable import is_printable

ffi = abi.ffi

QUERY = "fl_plugin_query_v1"
HOST_NAME = "torch-fl"

#: Slots of the root's sub-tables and of the root itself; together with the query 26 functions, all
#: mandatory [FL-VERSION-005].
SUB_TABLES = ("device", "memory", "stream", "event", "kernel")
ROOT_FUNCTIONS = ("get_extension", "shutdown")

#: Extension blocks whose struct this header describes, by name: (C struct, prefix in the table).
EXTENSION_STRUCTS = {"fl.pinned": ("fl_pinned_api", "pinned"), "fl.fault": ("fl_fault_api", "fault")}
#: Names that the interface reserves; their structs come later.
RESERVED_EXTENSIONS = (
    *("fl.streammem", "fl.p2p", "fl.ipc", "fl.graph", "fl.ccl"),
    *("fl.prof", "fl.native", "fl.module", "fl.managed", "fl.copy2d"),
)

LONGEST_VERSION = 200  # characters; it stands in reports, pages and badges

# dlclose would run when cffi collects the library; a plugin is never unloaded.
_KEPT: list[Any] = []


class PluginRefused(Exception):
    """The file is no plugin, or one that this host must not use."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def text_at(pointer: Any) -> str | None:
    """A vendor string [FL-LAYOUT-009], None for NULL; bytes that are no UTF-8 are shown escaped."""
    if pointer == ffi.NULL:
        return None
    raw: bytes = ffi.string(pointer)
    return raw.decode("utf-8", "backslashreplace")


def functions_of(struct: str) -> list[str]:
    """Names of a table's function slots, in order."""
    return [name for name, field in ffi.typeof(struct).fields if field.type.kind == "function"]


def read_slots(table: Any, struct: str, only: Iterable[str] = ()) -> dict[str, Any]:
    """Slot name -> function or None, None where the plugin's struct_size ends before the slot."""
    size = table.struct_size
    slots: dict[str, Any] = {}
    for name, field in ffi.typeof(struct).fields:
        if name not in (only or functions_of(struct)):
            continue
        present = size >= field.offset + ffi.sizeof(field.type)
        value = getattr(table, name) if present else None
        slots[name] = None if value is None or value == ffi.NULL else value
    return slots


def _check_struct(pointer: Any, struct: str, where: str) -> list[str]:
    """Kind and introduced size of a vendor-owned table; wrong kind makes the rest unreadable."""
    kind, least = abi.kind_of(struct), abi.introduced_size(struct)
    if pointer.kind != kind:
        return [
            f"FL-LAYOUT-003: {where} has kind {pointer.kind}, expected {kind}; "
            f"set .kind and .struct_size first in every {struct}"
        ]
    if least is not None and pointer.struct_size < least:
        return [
            f"FL-LAYOUT-006: {where} has struct_size {pointer.struct_size}, below the {least} bytes of "
            f"interface 1.0; set it to sizeof({struct})"
        ]
    return []


class Plugin:
    """A loaded plugin: path, name, version, header_id, minor, table (name -> function or None), query."""

    def __init__(self, path: Path, root: Any, table: dict[str, Any], mask: frozenset[str], query: Any) -> None:
        self.path = path
        self.root = root
        self.table = table
        self.mask = mask
        self.query = query
        self.name = text_at(root.name) or ""
        self.version = text_at(root.version) or ""
        self.header_id = text_at(root.header_id) or ""
        self.minor = int(root.minor)

    def device_count(self) -> int:
        """How many devices there are; opens none. Not called by `load`, so that a fork stays possible."""
        out = ffi.new("int32_t*")
        error, message = new_error()
        status = self.table["device.count"](out, error)
        if status != abi.FL_OK:
            raise PluginRefused([f"device_count returned {abi.status_name(status)}: {error_text(error, message)}"])
        return int(out[0])

    def extension(self, name: str, min_revision: int = 1) -> dict[str, Any] | None:
        """Slots of an extension block under their short names, plus "revision"; None when absent.

        Blocks whose struct this header does not know have "revision" only. A malformed header is refused.
        """
        header = self._extension_header(name, min_revision)
        if header is None:
            return None
        if name not in EXTENSION_STRUCTS:
            return {"revision": int(header.revision)}
        struct, prefix = EXTENSION_STRUCTS[name]
        problems = _check_struct(header, struct, f"extension {name}")
        if problems:
            raise PluginRefused(problems)
        slots = read_slots(ffi.cast(f"const {struct}*", header), struct)
        missing = [slot for slot, function in slots.items() if function is None]
        if missing:
            raise PluginRefused([f"FL-VERSION-005: extension {name} lacks {', '.join(missing)}"])
        return {"revision": int(header.revision)} | {
            slot: None if f"{prefix}.{slot}" in self.mask else function for slot, function in slots.items()
        }

    def extension_address(self, name: str, min_revision: int = 1) -> int:
        """Address of an extension's table, checked as `extension` does, for a host in C; 0 when absent."""
        if self.extension(name, min_revision) is None:
            return 0
        return int(ffi.cast("uintptr_t", self._extension_header(name, min_revision)))

    @property
    def root_address(self) -> int:
        """Address of the root table, for a host in C."""
        return int(ffi.cast("uintptr_t", self.root))

    def _extension_header(self, name: str, min_revision: int) -> Any:
        """The block's header, None when absent."""
        if name in self.mask:
            return None
        out = ffi.new("const fl_extension**")
        raw_name = ffi.new("char[]", name.encode())
        status = self.table["root.get_extension"](raw_name, min_revision, out, ffi.NULL)
        if status != abi.FL_OK:
            return None
        if out[0] == ffi.NULL:
            raise PluginRefused([f"FL-VERSION-005: get_extension({name!r}) said OK and gave NULL"])
        return out[0]


def new_error(capacity: int = 1024) -> tuple[Any, Any]:
    """An fl_error and the message buffer it points to (keep both alive)."""
    message = ffi.new("char[]", capacity)
    error = ffi.new("fl_error*", {"struct_size": ffi.sizeof("fl_error"), "kind": abi.FL_KIND_ERROR})
    error.message, error.capacity = message, capacity
    return error, message


def error_text(error: Any, message: Any) -> str:
    """What the plugin wrote, cut at the buffer's end even where it forgot the NUL."""
    raw: bytes = ffi.buffer(message)[:]
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _open_library(path: Path) -> Any:
    """dlopen with RTLD_LOCAL | RTLD_NOW and look the query up; raises PluginRefused with one line."""
    why_not = elf.refusal(path)
    if why_not:
        raise PluginRefused([why_not])
    try:
        library = ffi.dlopen(str(path.resolve()), os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        text = str(error)
        undefined = re.search(r"undefined symbol: (fl_\w+)", text)
        if undefined:
            raise PluginRefused(
                [
                    f"FL-VERSION-001: {path} imports {undefined.group(1)} from its host; "
                    "a plugin imports no fl_ symbol: link or define it inside the library"
                ]
            ) from None
        raise PluginRefused([f"cannot load {path}: {text.split(': ', 2)[-1]}"]) from None
    _KEPT.append(library)
    try:
        return library.fl_plugin_query_v1
    except (AttributeError, ffi.error):  # which of the two depends on cffi's version
        raise PluginRefused(
            [
                f"FL-VERSION-001: {path} exports no symbol {QUERY}; it is no Torch-FL plugin, "
                "or the symbol is hidden (static, C++ mangling, or a version script)"
            ]
        ) from None


def _query(query: Any, path: Path, host_minor: int, log: tuple[Any, Any] | None, host_name: str | None) -> Any:
    host = ffi.new("fl_host*", {"struct_size": ffi.sizeof("fl_host"), "kind": abi.FL_KIND_HOST})
    name = ffi.NULL if host_name is None else ffi.new("char[]", host_name.encode())
    host.minor, host.name = host_minor, name
    if log is not None:
        host.log, host.log_user = log
    _KEPT.extend([name, log])  # both stay valid until the process ends
    out = ffi.new("const fl_plugin**")
    error, message = new_error()
    status = query(host, out, error)
    if status != abi.FL_OK:
        text = error_text(error, message) or "no error text"
        raise PluginRefused([f"{QUERY} of {path} returned {abi.status_name(status)}: {text}"])
    if out[0] == ffi.NULL:
        raise PluginRefused([f"{QUERY} of {path} said OK and gave no root table"])
    return out[0]


def _check_strings(root: Any) -> list[str]:
    reasons = []
    for field in ("name", "version", "header_id"):
        pointer = getattr(root, field)
        if pointer == ffi.NULL:
            reasons.append(f"FL-LAYOUT-009: root.{field} is NULL; point it at a constant UTF-8 string")
            continue
        try:
            value = ffi.string(pointer).decode("utf-8")
        except UnicodeDecodeError:
            reasons.append(f"FL-LAYOUT-009: root.{field} is not UTF-8")
            continue
        if field == "name" and not re.fullmatch(r"[a-z0-9_]{1,64}", value):
            reasons.append(f"FL-LAYOUT-009: root.name is {value!r:.80}; a vendor name is 1 to 64 of [a-z0-9_]")
        if field == "version" and not (0 < len(value) <= LONGEST_VERSION and is_printable(value)):
            reasons.append(
                f"FL-LAYOUT-009: root.version is {value!r:.80}; "
                f"a version is 1 to {LONGEST_VERSION} printable characters"
            )
    return reasons


def load(
    path: str | Path,
    host_minor: int = 0,
    log: tuple[Any, Any] | None = None,
    mask: Iterable[str] = (),
    host_name: str | None = HOST_NAME,
) -> Plugin:
    """Load a plugin library and check it; raises PluginRefused.

    host_minor and host_name are what the host claims to be (informational, FL-VERSION-002). log: (C function of type
    fl_log_fn, user pointer) or None. mask: functions ("stream.query") and extensions ("fl.pinned") that
    are treated as if the plugin lacked them.
    """
    path, hidden = Path(path), frozenset(mask)
    query = _open_library(path)
    root = _query(query, path, host_minor, log, host_name)
    reasons = _check_struct(root, "fl_plugin", "the root table")
    if reasons:
        raise PluginRefused(reasons)
    reasons = _check_strings(root)
    table: dict[str, Any] = {}
    for name in SUB_TABLES:
        struct, sub = f"fl_{name}_api", getattr(root, name)
        slots: dict[str, Any] = dict.fromkeys(functions_of(struct))
        if sub != ffi.NULL:
            problems = _check_struct(sub, struct, f"root.{name}")
            reasons += problems
            # A table of another kind holds something else at these offsets: read none of it.
            if sub.kind == abi.kind_of(struct):
                slots = read_slots(sub, struct)
        table |= {f"{name}.{slot}": function for slot, function in slots.items()}
    table |= {f"root.{slot}": function for slot, function in read_slots(root, "fl_plugin", ROOT_FUNCTIONS).items()}
    table = {name: None if name in hidden else function for name, function in table.items()}
    missing = [name for name, function in table.items() if function is None]
    if missing:
        reasons.append(
            f"FL-VERSION-005: {len(missing)} of the mandatory functions are missing: {', '.join(missing)}; "
            "fill every slot (a function that cannot work returns FL_UNIMPLEMENTED)"
        )
    if reasons:
        raise PluginRefused(reasons)
    return Plugin(path, root, table, hidden, query)
