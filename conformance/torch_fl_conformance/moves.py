"""Bytes to and from the driver's process in one exchange: host memory read and written, blocks filled and fetched.

An exchange through the pipe costs more than most calls of the interface, and moving bytes takes five of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, encode, host, struct
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.handles import Block, CallResult, HostBuffer, Stream

SYNC_NS = 20_000_000_000  # below the watchdog, so that work which never completes is a failure with a name
_SHORT = 4096  # bytes that travel in the command itself


class Caller(Protocol):
    """What moves ask of the calls they are made through."""

    driver: Driver

    def keep(self, handle: HostBuffer) -> HostBuffer:
        """Release the buffer after the row."""

    def succeeded(self, fn: str, raw: Mapping[str, Any]) -> CallResult:
        """The result of a call that must have returned FL_OK."""


def call_command(fn: str, *args: Arg) -> dict[str, Any]:
    """The driver's command for one call of the interface."""
    return {"do": "call", "fn": fn, "args": [encode(value) for value in args]}


def copy_args(
    target: Block | HostBuffer,
    source: Block | HostBuffer,
    size: int | None = None,
    target_offset: int = 0,
    source_offset: int = 0,
) -> dict[str, Any]:
    """fl_copy_args for `size` bytes (default: as many as both sides hold)."""
    room = min(target.bytes - target_offset, source.bytes - source_offset)
    fields: dict[str, Arg] = {"bytes": room if size is None else size}
    for side, end, offset in (("dst", target, target_offset), ("src", source, source_offset)):
        on_device = isinstance(end, Block)
        fields[f"{side}_space"] = header.FL_SPACE_DEVICE if on_device else header.FL_SPACE_HOST
        fields[f"{side}_device"] = end.device if isinstance(end, Block) else None
        fields[f"{side}_base"] = end if on_device else host(end)
        fields[f"{side}_offset"] = offset
    return struct("fl_copy_args", fields)


def first_difference(got: bytes, expected: bytes) -> int:
    """Index of the first byte that differs, -1 if none does."""
    if got == expected:
        return -1
    both = (np.frombuffer(data, np.uint8, min(len(got), len(expected))) for data in (got, expected))
    differs = np.flatnonzero(np.not_equal(*both))
    return int(differs[0]) if differs.size else min(len(got), len(expected))


class Moves:
    """Moves in the order in which they are asked for; `run` makes them, and every call must return FL_OK."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._driver = caller.driver
        self._commands: list[dict[str, Any]] = []
        self._reads: list[tuple[int, list[int] | None]] = []  # place of the command, region where it has one
        self._seconds = 0.0

    def write(self, buffer: HostBuffer, data: bytes, offset: int = 0) -> Moves:
        """Store bytes in a host buffer, from the driver's own thread."""
        content: dict[str, Any] = {"data": data.hex()} if len(data) <= _SHORT else {"mem": self._driver.place(data)}
        self._commands.append({"do": "host_write", "name": buffer.ref, "offset": offset, **content})
        return self

    def read(self, buffer: HostBuffer, offset: int = 0, size: int | None = None) -> Moves:
        """Fetch bytes of a host buffer as they then are."""
        length = buffer.bytes - offset if size is None else size
        region = self._driver.room(length) if length > _SHORT else None
        self._reads.append((len(self._commands), region))
        command = {"do": "host_read", "name": buffer.ref, "offset": offset, "bytes": length}
        self._commands.append(command if region is None else {**command, "mem": region})
        return self

    def copy(self, stream: Stream, args: dict[str, Any]) -> Moves:
        """Make one copy (see copy_args), and wait."""
        self._commands += [call_command("memory.copy", stream, args), call_command("stream.sync", stream, SYNC_NS)]
        self._seconds += SYNC_NS / 1e9
        return self

    def upload(self, stream: Stream, block: Block, data: bytes, offset: int = 0) -> Moves:
        """Copy bytes into a block through the stream, and wait."""
        buffer = self._borrow(len(data))
        self.write(buffer, data)
        self.copy(stream, copy_args(block, buffer, len(data), target_offset=offset))
        return self._return(buffer)

    def download(self, stream: Stream, block: Block, offset: int = 0, size: int | None = None) -> Moves:
        """Fetch a block's bytes behind all earlier work of the stream, and wait."""
        buffer = self._borrow(block.bytes - offset if size is None else size)
        self.copy(stream, copy_args(buffer, block, buffer.bytes, source_offset=offset))
        self.read(buffer)
        return self._return(buffer)

    def run(self) -> list[bytes]:
        """Make them; returns the bytes that were fetched. Behind a call that failed nothing more happens."""
        answers = self._driver.execute_all(self._commands, self._seconds)
        left: dict[str, HostBuffer] = {}
        for command, _ in zip(self._commands, answers, strict=False):
            if command["do"] == "host_alloc":
                left[command["name"]] = HostBuffer(command["name"], command["bytes"])
            elif command["do"] == "host_free":
                del left[command["name"]]
        for buffer in left.values():
            self._caller.keep(buffer)
        for command, answer in zip(self._commands, answers, strict=False):
            if command["do"] == "call":
                self._caller.succeeded(command["fn"], answer)
        return [
            bytes.fromhex(answers[place]["data"]) if region is None else bytes(self._driver.view(region))
            for place, region in self._reads
        ]

    def _borrow(self, size: int) -> HostBuffer:
        buffer = HostBuffer(self._driver.name("h"), size)
        self._commands.append({"do": "host_alloc", "name": buffer.ref, "bytes": size, "fill": 0})
        return buffer

    def _return(self, buffer: HostBuffer) -> Moves:
        self._commands.append({"do": "host_free", "name": buffer.ref})
        return self
