"""Pinned host memory for checks: what fl.pinned's alloc gives, and ordinary memory that is registered."""

from __future__ import annotations

from dataclasses import dataclass

from torch_fl_conformance.arguments import Arg, host, out
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import HostBuffer
from torch_fl_conformance.row import Row


@dataclass(frozen=True)
class Pinned:
    """`bytes` of pinned memory at `address`; `buffer` is the same memory to read, write and copy with."""

    ref: str
    device: str
    address: int
    bytes: int
    buffer: HostBuffer


def need_pinned(row: Row, abi: Abi) -> None:
    """End the row as not-claimed where the plugin has no fl.pinned."""
    if "fl.pinned" not in abi.driver.describe()["extensions"]:
        row.not_claimed("the plugin has no extension fl.pinned")


def pin(abi: Abi, size: int, device: str = "d0") -> Pinned:
    """Allocate pinned memory, its content undefined."""
    name = abi.driver.name("p")
    address = abi.ok("pinned.alloc", device, size, out("void*", save=name)).value
    abi.driver.execute({"do": "host_adopt", "name": name, "ref": name, "bytes": size})
    return Pinned(name, device, address, size, HostBuffer(name, size))


def unpin(abi: Abi, pinned: Pinned) -> None:
    """Free what `pin` gave."""
    abi.driver.execute({"do": "host_free", "name": pinned.ref})
    abi.ok("pinned.free", pinned.device, pinned.ref)


def register(abi: Abi, buffer: HostBuffer, offset: int = 0, size: int | None = None, device: str = "d0") -> None:
    """Make a part of a host buffer pinned."""
    length = buffer.bytes - offset if size is None else size
    abi.ok("pinned.register_range", device, host(buffer, offset), length)


def unregister(abi: Abi, buffer: HostBuffer, offset: int = 0, device: str = "d0") -> None:
    """Undo `register`."""
    abi.ok("pinned.unregister_range", device, host(buffer, offset))


def is_pinned(abi: Abi, pointer: Arg) -> int:
    """What is_pinned says of an address."""
    answer: int = abi.ok("pinned.is_pinned", pointer, out("int32_t")).value
    return answer
