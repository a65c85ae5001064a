"""Host buffers: named page-mapped memory that plugin calls may read or write, outliving the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import abi
from .session_args import CommandError
from .session_memory import AdoptedBuffer, HostBuffer

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi


def _view(session: Session, name: str, offset: int, size: int) -> Any:
    try:
        return session.buffer(name).view(offset, size)
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from None


def _alloc(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "bytes", "fill": byte = 0, "guard": end at an unreadable page} -> {"address"}."""
    name = command["name"]
    if name in session.buffers:
        session.buffers[name].release()
    session.buffers[name] = HostBuffer(command["bytes"], command.get("fill", 0), command.get("guard", False))
    return {"address": session.address_of(name, 0)}


def _adopt(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "ref": saved pointer, "bytes"} -> {}: name the plugin's memory; host_free only forgets the name."""
    name = command["name"]
    if name in session.buffers:
        session.buffers[name].release()
    session.buffers[name] = AdoptedBuffer(session.resolve(command["ref"]), command["bytes"])
    return {}


def _write(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "offset" = 0, "data": hex | "mem": [offset, length] | "fill": byte and "bytes": n} -> {}."""
    offset = command.get("offset", 0)
    if "mem" in command:
        source = command["mem"]
        data: Any = ffi.buffer(session.shared(*source), source[1])
    elif "data" in command:
        data = bytes.fromhex(command["data"])
    else:
        data = bytes((command["fill"],)) * command["bytes"]
    _view(session, command["name"], offset, len(data))[:] = data
    return {}


def _read(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "offset" = 0, "bytes"} -> {"data": hex}; "mem": [offset, length]: there instead."""
    view = _view(session, command["name"], command.get("offset", 0), command["bytes"])
    if "mem" not in command:
        return {"data": view[:].hex()}
    ffi.memmove(session.shared(command["mem"][0], len(view)), view, len(view))
    return {}


def _free(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {}: unmaps, so that a late access faults."""
    session.buffer(command["name"]).release()
    del session.buffers[command["name"]]
    return {}


COMMANDS = {
    "host_alloc": _alloc,
    "host_adopt": _adopt,
    "host_write": _write,
    "host_read": _read,
    "host_free": _free,
}
