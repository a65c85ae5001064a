"""The `describe` command: what the plugin declares; opens every device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import abi
from .kernel_table import KernelTable, digest_of
from .loader import EXTENSION_STRUCTS, RESERVED_EXTENSIONS, PluginRefused
from .session_calls import call_table

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi

_EXECUTION = {abi.FL_EXEC_ASYNC: "ASYNC", abi.FL_EXEC_INLINE: "INLINE"}
_ADDRESS = {abi.FL_ADDRESS_LINEAR: "LINEAR", abi.FL_ADDRESS_HANDLE: "HANDLE"}


class Device:
    """An opened device: index, handle (number), info (as described), kernels."""

    def __init__(self, index: int, handle: int, info: dict[str, Any], kernels: KernelTable) -> None:
        self.index = index
        self.handle = handle
        self.info = info
        self.kernels = kernels


def _or_refuse(what: str, result: dict[str, Any]) -> dict[str, Any]:
    if result["status"] != abi.FL_OK:
        text = (result["err"] or {}).get("message") or "no error text"
        raise PluginRefused([f"{what} returned {abi.status_name(result['status'])}: {text}"])
    return result


def read_info(session: Session, handle: int, index: int) -> dict[str, Any]:
    """device_info as JSON."""
    result = call_table(session, "device.info", [handle, {"out": "fl_device_info", "fill": 0}])
    raw = _or_refuse(f"device_info of device {index}", result)["outs"][0]
    numbers = (
        "numa_node independent_streams priority_least priority_greatest alloc_align max_align alloc_may_wait "
        "host_accessible total_bytes timer_resolution_ns"
    )
    return {
        "index": index,
        "name": raw["name"] or None,  # NULL comes as 0
        "uuid": bytes(raw["uuid"]).hex(),
        "execution_model": _EXECUTION.get(raw["execution_model"], str(raw["execution_model"])),
        "address_model": _ADDRESS.get(raw["address_model"], str(raw["address_model"])),
        **{name: raw[name] for name in numbers.split()},
    }


def read_kernels(session: Session, handle: int, index: int) -> KernelTable:
    """Fetch, check and index the kernel table of a device."""
    result = call_table(session, "kernel.kernels", [handle, {"out": "const fl_kernel_table*"}])
    address = _or_refuse(f"kernels of device {index}", result)["outs"][0]
    return KernelTable(ffi.cast("const fl_kernel_table*", address), index)


def open_devices(session: Session) -> None:
    """Open every device; references d0, d1, ... and kernel/<device>/<op>/r<rev>/<variant>."""
    session.touched = True
    for index in range(session.plugin.device_count()):
        options = {"struct": "fl_device_open_args", "fields": {"options": {"string": session.options}}}
        args = [index, options, {"out": "fl_device", "save": f"d{index}"}]
        _or_refuse(f"device_open({index})", call_table(session, "device.open", args))
        handle = session.references[f"d{index}"]
        kernels = read_kernels(session, handle, index)
        session.devices.append(Device(index, handle, read_info(session, handle, index), kernels))
        for (op, revision, variant), pointer in kernels.pointers.items():
            name = f"kernel/{index}/{op}/r{revision}/{variant}"
            session.references[name] = int(ffi.cast("uintptr_t", pointer))


def add_extension(session: Session, prefix: str) -> None:
    """Make an extension's functions callable as <prefix>.<slot>, where the plugin has it."""
    for name, (_, known_prefix) in EXTENSION_STRUCTS.items():
        if known_prefix != prefix:
            continue
        session.touched = True
        for slot, function in (session.plugin.extension(name) or {}).items():
            if slot != "revision":
                session.functions[f"{prefix}.{slot}"] = function


def _describe(session: Session, _: Mapping[str, Any]) -> dict[str, Any]:
    """-> name, version, header_id, minor, devices, kernels (a list per device), extensions, table_hash."""
    session.touched = True
    if not session.devices:
        open_devices(session)
    extensions = {}
    for name in (*EXTENSION_STRUCTS, *RESERVED_EXTENSIONS):
        slots = session.plugin.extension(name)
        if slots is not None:
            extensions[name] = slots["revision"]
    kernels = [device.kernels.entries for device in session.devices]
    return {
        "name": session.plugin.name,
        "version": session.plugin.version,
        "header_id": session.plugin.header_id,
        "minor": session.plugin.minor,
        "devices": [device.info for device in session.devices],
        "kernels": kernels,
        "extensions": extensions,
        "table_hash": digest_of(kernels),
    }


def _table_bytes(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """Fetch a kernel table anew: {"device": index or "d0"}, or {"handle": reference of a device that `call` opened}.

    -> {"address", "sha256" of its raw bytes, "declared": sha256 of its entries as `describe` gives them, equal in any
    process for equal declarations, "same": the pointer is that of the device's opening, null for a handle}.
    """
    first = None if "handle" in command else session.device(command["device"])
    handle, index = (session.resolve(command["handle"]), 0) if first is None else (first.handle, first.index)
    again = read_kernels(session, handle, index)
    return {
        "address": int(ffi.cast("uintptr_t", again.raw)),
        "sha256": again.raw_digest(),
        "declared": digest_of([again.entries]),
        "same": None if first is None else again.raw == first.kernels.raw,
    }


COMMANDS = {"describe": _describe, "table_bytes": _table_bytes}
