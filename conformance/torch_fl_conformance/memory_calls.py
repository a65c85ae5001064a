"""The memory part of `torch_fl_conformance.facade.Abi`: allocations, host buffers, copies and fills."""

from __future__ import annotations

from typing import Any

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.calls import Calls
from torch_fl_conformance.handles import Block, HostBuffer, Stream
from torch_fl_conformance.moves import Moves, copy_args


class MemoryCalls(Calls):
    """Methods of Abi that move or hold bytes; offsets and sizes are in bytes."""

    def mem_info(self, device: str) -> tuple[int, int]:
        """(free, total) bytes."""
        free, total = self.ok("memory.info", device, out("uint64_t"), out("uint64_t")).outs
        return free, total

    def alloc(self, device: str, size: int, alignment: int = 0) -> Block:
        """Allocate `size` bytes at `alignment` (0: the device's own)."""
        name = self.driver.name("b")
        fields = {"bytes": size, "alignment": alignment}
        base = self.ok("memory.alloc", device, struct("fl_mem_alloc_args", fields), out("uint64_t", save=name)).value
        return self.keep(Block(name, device, size, base))

    def free(self, block: Block) -> None:
        """Give an allocation back."""
        self._live.pop(block.ref, None)
        self.ok("memory.free", block.device, block, block.bytes)

    def host_buffer(self, size: int, fill: int = 0, guard: bool = False) -> HostBuffer:
        """Host memory of `size` bytes filled with a byte; guard: it ends at an inaccessible page."""
        name = self.driver.name("h")
        command: dict[str, Any] = {"do": "host_alloc", "name": name, "bytes": size, "fill": fill}
        if guard:
            command["guard"] = True
        self.driver.execute(command)
        return self.keep(HostBuffer(name, size))

    def write(self, buffer: HostBuffer, data: bytes, offset: int = 0) -> None:
        """Store bytes in a host buffer, from the driver's own thread."""
        Moves(self).write(buffer, data, offset).run()

    def read(self, buffer: HostBuffer, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of a host buffer as they are now."""
        (data,) = Moves(self).read(buffer, offset, size).run()
        return data

    def fill(
        self,
        stream: Stream,
        block: Block,
        pattern: int,
        width: int = 1,
        count: int | None = None,
        offset: int = 0,
    ) -> None:
        """Write the `width` low bytes of `pattern` `count` times (default: to the block's end)."""
        times = (block.bytes - offset) // width if count is None else count
        self.ok("memory.fill", stream, block, offset, pattern, width, times)

    @staticmethod
    def copy_args(
        target: Block | HostBuffer,
        source: Block | HostBuffer,
        size: int | None = None,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> dict[str, Any]:
        """See moves.copy_args."""
        return copy_args(target, source, size, target_offset, source_offset)

    def copy(
        self,
        stream: Stream,
        target: Block | HostBuffer,
        source: Block | HostBuffer,
        size: int | None = None,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> None:
        """Enqueue a copy in any direction: host to device, device to host, device to device."""
        self.ok("memory.copy", stream, self.copy_args(target, source, size, target_offset, source_offset))

    def upload(self, stream: Stream, block: Block, data: bytes, offset: int = 0) -> None:
        """Copy bytes into a block and wait."""
        Moves(self).upload(stream, block, data, offset).run()

    def download(self, stream: Stream, block: Block, offset: int = 0, size: int | None = None) -> bytes:
        """Copy a block's bytes back behind all earlier work of the stream, and wait."""
        (data,) = Moves(self).download(stream, block, offset, size).run()
        return data

    def release_host(self, buffer: HostBuffer) -> None:
        """Free a host buffer."""
        self._live.pop(buffer.ref, None)
        self.driver.execute({"do": "host_free", "name": buffer.ref})
