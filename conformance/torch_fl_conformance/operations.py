"""One operation of each kind (kernel, copies, fill) that can be made to fail or to take longer.

All work on one block of the stream's device; `old` is what its bytes were before, `new` what the operation makes them.
"""

from __future__ import annotations

from torch_fl_spec import abi as header

from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, CallResult, HostBuffer, Stream
from torch_fl_conformance.payload import WORD, Affine
from torch_fl_conformance.row import Row

WORDS = 64
SIZE = WORDS * WORD
OLD = 0x1D1D1D1D
NEW = 0x2E2E2E2E

THREAD = "operation"


class Operations:
    """The kinds that the device has, and their memory. `target` holds OLD words until an operation has run."""

    def __init__(self, abi: Abi, device: str = "d0") -> None:
        self.abi, self.device = abi, device
        self.target, self.source, self.zeros = (abi.alloc(device, SIZE) for _ in range(3))
        self.host_source, self.host_target = abi.host_buffer(SIZE), abi.host_buffer(SIZE)
        self.payload = Affine.of(abi, device)
        self.kinds = ["fill", "d2d", "h2d", "d2h", *(["kernel"] if self.payload else [])]

    def reset(self, stream: Stream) -> None:
        """Old words in both targets, new ones in the sources; waits."""
        self.abi.fill(stream, self.target, OLD, WORD)
        self.abi.fill(stream, self.source, NEW, WORD)
        self.abi.fill(stream, self.zeros, 0, WORD)
        self.abi.sync(stream)
        self.abi.write(self.host_source, NEW.to_bytes(WORD, "little") * WORDS)
        self.abi.write(self.host_target, OLD.to_bytes(WORD, "little") * WORDS)
        if self.payload is not None:
            self.payload.prepare(WORDS)

    def submit(self, row: Row, kind: str, stream: Stream, *, stalled: bool) -> CallResult | None:
        """Submit one. None where the stream is stalled and the call, a copy from or to the host, waits for it."""
        if kind == "fill":
            return self.abi.call("memory.fill", stream, self.target, 0, NEW, WORD, WORDS)
        if kind == "kernel" and self.payload is not None:
            call = self.payload.call(WORDS, self.target, self.source, self.zeros, 1)
            return self.abi.call("kernel.run", self.payload.kernel, stream, call)
        ends: dict[str, tuple[Block | HostBuffer, Block | HostBuffer]] = {
            "d2d": (self.target, self.source),
            "h2d": (self.target, self.host_source),
            "d2h": (self.host_target, self.source),
        }
        args = self.abi.copy_args(*ends[kind])
        if not stalled:
            return self.abi.call("memory.copy", stream, args)
        self.abi.queue(THREAD, "memory.copy", stream, args)
        results, pending = self.abi.join(THREAD, 5.0 if kind == "d2d" else 0.2)
        row.check(not pending or kind != "d2d", "a copy within the device waits for its stalled stream")
        return None if pending else results[-1]

    def waited(self) -> CallResult | None:
        """What a call that `submit` left waiting has returned since the stream went on; None if nothing was waiting."""
        results, _ = self.abi.join(THREAD, 20.0)
        return results[-1] if results else None

    def words(self, kind: str, stream: Stream) -> set[int]:
        """The distinct words of the kind's target now, read through a healthy stream."""
        data = self.abi.read(self.host_target) if kind == "d2h" else self.abi.download(stream, self.target)
        return {int.from_bytes(data[at : at + WORD], "little") for at in range(0, SIZE, WORD)}


def need_fault(row: Row, abi: Abi) -> None:
    """End the row as not-claimed where the plugin has no fl.fault."""
    if "fl.fault" not in abi.driver.describe()["extensions"]:
        row.not_claimed("the plugin has no extension fl.fault")


def fail_next(abi: Abi, stream: Stream, status: int = header.FL_ASYNC_FAILURE) -> None:
    """The stream's next kernel, copy or fill will fail with this status."""
    abi.ok("fault.fail_next", stream, status)
