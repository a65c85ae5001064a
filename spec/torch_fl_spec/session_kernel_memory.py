"""The memory of one kernel case: blocks, their images, the guarded workspace, and the stream that moves them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import abi
from .session_calls import call_table
from .session_memory import HostBuffer

if TYPE_CHECKING:
    from .session import Session
    from .session_describe import Device

ffi = abi.ffi

_WORKSPACE_LIMIT = 4 << 30  # bytes; cases are small, and none has a use for more
_GUARD_BYTE = 0x6B
_STALE_FILL = 0xA5A5A5A5A5A5A5A5  # what a gated kernel must not see: its inputs arrive behind the gate


class Stop(Exception):
    """A call of the case failed; its result is already entered."""


def blank_result() -> dict[str, Any]:
    """The result of a step that has not begun."""
    result: dict[str, Any] = dict.fromkeys(("upload", "plan", "run", "sync", "download"))
    return result | {"sha256": {}, "workspace_intact": True, "intact": True}


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


class KernelMemory:
    """What a case has allocated, and `result`, where each of its calls enters how it went."""

    def __init__(self, session: Session, command: Mapping[str, Any]) -> None:
        self.session = session
        self.command = command
        self.device: Device = session.device(command["device"])
        self.result = blank_result()
        self.bases: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.staged: dict[str, int] = {}
        self.call_fields: dict[str, int] = {}
        self._workspaces: dict[tuple[int, int, int], int] = {}
        self._workspace_image = b""
        self._owned: list[tuple[int, int]] = []
        self._stuck = False
        self.stream = 0

    def _stream_key(self) -> tuple[int, str]:
        return self.device.handle, threading.current_thread().name

    def choose_stream(self) -> int:
        """The command's stream, or one per device and thread, kept from case to case while it is healthy."""
        if "stream" in self.command:
            return self.session.resolve(self.command["stream"])
        key = self._stream_key()
        kept = self.session.kernel_streams.get(key)
        if kept is None:
            args = [self.device.handle, {"struct": "fl_stream_create_args"}, {"out": "fl_stream"}]
            kept = self.enter("stream", call_table(self.session, "stream.create", args))["outs"][0]
            self.session.kernel_streams[key] = kept
        return kept

    def enter(self, step: str, outcome: dict[str, Any]) -> dict[str, Any]:
        """Keep a step's status and error text; stop the case at the first failure."""
        self.result[step] = {"status": outcome["status"], "err": outcome["err"]}
        self.result["intact"] = self.result["intact"] and outcome["intact"]
        if outcome["status"] != abi.FL_OK:
            raise Stop
        return outcome

    # -- memory -----------------------------------------------------------------------------------------

    def allocate(self, size: int, alignment: int) -> int:
        """Base of a new block; freed when the case ends."""
        fields = {"bytes": size, "alignment": alignment}
        args = [self.device.handle, {"struct": "fl_mem_alloc_args", "fields": fields}, {"out": "uint64_t"}]
        base: int = self.enter("alloc", call_table(self.session, "memory.alloc", args))["outs"][0]
        self._owned.append((base, size))
        return base

    def copy(self, step: str, target: int | None, source: int | None, size: int, host: int = 0) -> None:
        """Stream-ordered copy of whole blocks; None is host memory at address `host`."""
        device, space_host, space_device = self.device.handle, abi.FL_SPACE_HOST, abi.FL_SPACE_DEVICE
        fields = {
            "dst_space": space_host if target is None else space_device,
            "src_space": space_host if source is None else space_device,
            "dst_device": 0 if target is None else device,
            "src_device": 0 if source is None else device,
            "dst_base": host if target is None else target,
            "src_base": host if source is None else source,
            "bytes": size,
        }
        args = [self.stream, {"struct": "fl_copy_args", "fields": fields}]
        self.enter(step, call_table(self.session, "memory.copy", args))

    def synchronise(self, step: str) -> None:
        """stream_sync within the command's "timeout" (seconds, 60)."""
        limit = int(self.command.get("timeout", 60.0) * 1e9)
        outcome = call_table(self.session, "stream.sync", [self.stream, limit])
        self._stuck = outcome["status"] in (abi.FL_TIMEOUT, abi.FL_NOT_READY)
        self.enter(step, outcome)

    def allocate_blocks(self) -> None:
        """One mem_alloc per block that holds anything; a gated case has a staging block for each image."""
        for block in self.command["blocks"]:
            name, size = block["name"], block["bytes"]
            self.sizes[name] = size
            self.bases[name] = self.allocate(size, block.get("alignment", 0)) if size else 0
            if size and self.command.get("gate") and "image" in block:
                self.staged[name] = self.allocate(size, 0)

    def upload(self, images: Mapping[str, list[int]]) -> None:
        """Bring the images to the blocks, or, with a gate, to the staging blocks, and wait.

        The wait keeps a stream's defects out of the kernels' verdicts; gated cases are there to show them.
        """
        for name, image in images.items():
            size = self.sizes[name]
            if not size:
                continue
            if name in self.staged:
                self._make_stale(name, size)
            target = self.staged.get(name, self.bases[name])
            self.copy("upload", target, None, size, self.session.shared_address(image[0], size))
        self.synchronise("upload")

    def _make_stale(self, name: str, size: int) -> None:
        words, rest = divmod(size, 8)
        for width, count, offset in ((8, words, 0), (1, rest, words * 8)):
            if count:
                args = [self.stream, self.bases[name], offset, _STALE_FILL, width, count]
                self.enter("upload", call_table(self.session, "memory.fill", args))

    def download(self, results: Mapping[str, list[int]]) -> None:
        """Bring every block back whole and seal it by its sha256."""
        places: list[tuple[str, Any, int]] = []
        spare: list[HostBuffer] = []
        for name, size in self.sizes.items():
            if size == 0:
                continue
            if name in results:
                place = self.session.shared(results[name][0], size)
            else:
                spare.append(HostBuffer(size))
                place = spare[-1].pointer
            self.copy("download", None, self.bases[name], size, _address(place))
            places.append((name, place, size))
        self.synchronise("download")
        for name, place, size in places:
            self.result["sha256"][name] = hashlib.sha256(ffi.buffer(place, size)).hexdigest()
        for buffer in spare:
            buffer.release()

    # -- workspace ----------------------------------------------------------------------------------------

    def prepare_workspace(self, planned: Mapping[str, int], wish: Mapping[str, Any]) -> None:
        """Allocate the workspace between guards, exactly as large as planned, and fill it with garbage."""
        size, align = planned["workspace_bytes"], max(planned["workspace_align"], 1)
        self.call_fields = {"plan_token": planned["token"]}
        self._workspace_image = b""
        if size == 0:
            return
        largest = self.device.info["max_align"]
        text = None
        if size > _WORKSPACE_LIMIT:
            text = f"workspace_bytes {size} for a case of a few MiB; the suite gives up to {_WORKSPACE_LIMIT}"
        elif align > largest or align & (align - 1):
            text = f"workspace_align {align}, expected a power of two up to the device's max_align {largest}"
        if text:
            self.result["workspace"] = {"status": abi.FL_OUT_OF_MEMORY, "err": {"message": text}}
            raise Stop
        guard = -(-max(wish.get("guard", 256), 1) // align) * align
        base = self._workspaces.get((size, align, guard))
        if base is None:
            base = self._workspaces[size, align, guard] = self.allocate(guard + size + guard, align)
        around = bytes((_GUARD_BYTE,)) * guard
        self._workspace_image = around + bytes((wish.get("fill", 0xFF),)) * size + around
        fields = {"workspace_base": base, "workspace_offset": guard, "workspace_bytes": size}
        self.call_fields |= fields
        buffer = HostBuffer(len(self._workspace_image))
        buffer.view(0, buffer.size)[:] = self._workspace_image
        self.copy("upload", base, None, buffer.size, _address(buffer.pointer))
        self.synchronise("upload")
        buffer.release()

    def check_workspace(self) -> None:
        """The guards around the workspace are as they were."""
        image = self._workspace_image
        if not image:
            return
        buffer = HostBuffer(len(image))
        self.copy("download", None, self.call_fields["workspace_base"], buffer.size, _address(buffer.pointer))
        self.synchronise("download")
        guard, size = self.call_fields["workspace_offset"], self.call_fields["workspace_bytes"]
        after = buffer.view(0, buffer.size)[:]
        same = after[:guard] == image[:guard] and after[guard + size :] == image[guard + size :]
        self.result["workspace_intact"] = same
        buffer.release()

    def clean(self) -> None:
        """Free all of it, unless work that never ended may still use it."""
        own = "stream" not in self.command
        if self._stuck:
            if own:
                self.session.kernel_streams.pop(self._stream_key(), None)
            return
        steps = ("upload", "run", "sync", "download", "gate")
        failed = any((self.result.get(step) or {}).get("status", abi.FL_OK) != abi.FL_OK for step in steps)
        if failed and self.stream:
            # Submitted work may be pending on a healthy stream whose last submit was refused.
            call_table(self.session, "stream.sync", [self.stream, 5_000_000_000])
            if own:
                call_table(self.session, "stream.destroy", [self.stream])
                self.session.kernel_streams.pop(self._stream_key(), None)
        for base, size in self._owned:
            freed = call_table(self.session, "memory.free", [self.device.handle, base, size])
            if freed["status"] != abi.FL_OK:
                self.result["free"] = {"status": freed["status"], "err": freed["err"]}
