"""The `kernel_case` command: one kernel on blocks whose whole images come and go through shared memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import abi
from .session_args import OUT_FILL, CommandError
from .session_calls import call_table, internal_error, invoke
from .session_kernel_args import fill_call, tensor_reader
from .session_memory import HostBuffer

if TYPE_CHECKING:
    from .session import Session
    from .session_describe import Device

ffi = abi.ffi

_WORKSPACE_LIMIT = 4 << 30  # bytes; more than any planned case needs is the plugin's error
_GUARD_BYTE = 0x6B
_STALE_FILL = 0xA5A5A5A5A5A5A5A5  # what a gated kernel must not see: its inputs arrive behind the gate


class _Stop(Exception):
    """A call of the case failed; its result is already entered."""


def _blank_result() -> dict[str, Any]:
    result: dict[str, Any] = dict.fromkeys(("upload", "plan", "run", "sync", "download"))
    return result | {"sha256": {}, "workspace_intact": True, "intact": True}


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


class _Case:
    """One running kernel_case: what it allocated and what it found so far."""

    def __init__(self, session: Session, command: Mapping[str, Any]) -> None:
        self.session = session
        self.command = command
        self.device: Device = session.device(command["device"])
        self.result = _blank_result()
        self.bases: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.staged: dict[str, int] = {}
        self.workspaces: dict[tuple[int, int, int], int] = {}
        self.workspace_image = b""
        self.call_fields: dict[str, int] = {}
        self.owned: list[tuple[int, int]] = []
        self.stuck = False
        key = (command["op"], command["revision"], command["variant"])
        try:
            self.kernel = self.device.kernels.pointers[key]
        except KeyError:
            raise CommandError(f"device {self.device.index} has no kernel {key}") from None
        self.stream = session.resolve(command["stream"]) if "stream" in command else self._own_stream()

    def _own_stream(self) -> int:
        """One stream per device and thread, kept from case to case while it is healthy."""
        key = (self.device.handle, threading.current_thread().name)
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
            raise _Stop
        return outcome

    # -- memory -----------------------------------------------------------------------------------------

    def allocate(self, size: int, alignment: int) -> int:
        """Base of a new block; freed when the case ends."""
        fields = {"bytes": size, "alignment": alignment}
        args = [self.device.handle, {"struct": "fl_mem_alloc_args", "fields": fields}, {"out": "uint64_t"}]
        base: int = self.enter("alloc", call_table(self.session, "memory.alloc", args))["outs"][0]
        self.owned.append((base, size))
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
        self.stuck = outcome["status"] in (abi.FL_TIMEOUT, abi.FL_NOT_READY)
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
        """Bring the images to the blocks, or, with a gate, to the staging blocks, and wait."""
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
        self.workspace_image = b""
        if size == 0:
            return
        if size > _WORKSPACE_LIMIT or align > self.device.info["max_align"] or align & (align - 1):
            text = f"a workspace of {size} bytes aligned to {align} cannot be allocated"
            self.result["workspace"] = {"status": abi.FL_OUT_OF_MEMORY, "err": {"message": text}}
            raise _Stop
        guard = -(-max(wish.get("guard", 256), 1) // align) * align
        base = self.workspaces.get((size, align, guard))
        if base is None:
            base = self.workspaces[size, align, guard] = self.allocate(guard + size + guard, align)
        around = bytes((_GUARD_BYTE,)) * guard
        self.workspace_image = around + bytes((wish.get("fill", 0xFF),)) * size + around
        fields = {"workspace_base": base, "workspace_offset": guard, "workspace_bytes": size}
        self.call_fields |= fields
        buffer = HostBuffer(len(self.workspace_image))
        buffer.view(0, buffer.size)[:] = self.workspace_image
        self.copy("upload", base, None, buffer.size, _address(buffer.pointer))
        self.synchronise("upload")
        buffer.release()

    def check_workspace(self) -> None:
        """The guards around the workspace are as they were."""
        image = self.workspace_image
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

    # -- plan and run -------------------------------------------------------------------------------------

    def plan(self) -> dict[str, int]:
        """Call plan without addresses; returns the fl_plan's fields."""
        frame = self.session.frame()
        tensors = tensor_reader(frame, self.command["tensors"], self.device.index, None, {})
        call = fill_call(frame, self.command, tensors, {})
        out = frame.out({"out": "fl_plan", "fill": OUT_FILL})
        device = ffi.cast("fl_device", self.device.handle)
        args = [self.kernel, device, call, ffi.cast("fl_plan*", out)]
        error = internal_error(self.session)
        outcome = invoke(self.session, frame, "kernel.plan", self.kernel.plan, args, error)
        self.enter("plan", outcome)
        names = ("workspace_bytes", "workspace_align", "rng_increment", "token")
        planned = {name: outcome["outs"][0][name] for name in names}
        self.result["plan"] |= planned
        return planned

    def run(self) -> None:
        """Call run, behind a closed gate where the command asks for one."""
        frame = self.session.frame()
        tensors = tensor_reader(frame, self.command["tensors"], self.device.index, self.bases, self.sizes)
        call = fill_call(frame, self.command, tensors, self.call_fields)
        args = [self.kernel, ffi.cast("fl_stream", self.stream), call]
        watchdog = self._close_gate() if self.command.get("gate") else None
        error = internal_error(self.session)
        outcome = invoke(self.session, frame, "kernel.run", self.kernel.run, args, error)
        if watchdog is not None:
            self.result["returned_while_closed"] = watchdog.stop()
        self.enter("run", outcome)
        self.result["run"]["seconds"] = outcome["seconds"]

    def _close_gate(self) -> _Watchdog:
        """Stall the stream and queue the true inputs behind the gate: an early kernel sees stale bytes."""
        if self.device.info["execution_model"] == "INLINE":
            raise CommandError("an INLINE device cannot be gated: its submits return after completion")
        name = f"kernel_case {threading.current_thread().name}"
        gate = self.session.tasks.new_gate(name)
        watchdog = _Watchdog(self.session, gate, self.command.get("gate_seconds", 20.0))
        try:
            args = [self.stream, {"task": "gate", "name": name}]
            self.enter("gate", call_table(self.session, "stream.host_task", args))
            for block, base in self.staged.items():
                self.copy("upload", self.bases[block], base, self.sizes[block])
        except _Stop:
            watchdog.stop()
            raise
        return watchdog

    # -- the whole ----------------------------------------------------------------------------------------

    def execute(self) -> dict[str, Any]:
        """Every step on the same addresses, then free; the first step's result, with "again"."""
        images = {b["name"]: b["image"] for b in self.command["blocks"] if "image" in b}
        first = self.result
        try:
            planned = self.plan()
            self.allocate_blocks()
            self._step(planned, images, self.command)
            for step in self.command.get("again", ()):
                self.result = _blank_result()
                first.setdefault("again", []).append(self.result)
                self._step(self.plan(), step.get("images", images), step)
        except _Stop:
            pass
        finally:
            self._clean()
        return first

    def _step(self, planned: Mapping[str, int], images: Mapping[str, list[int]], step: Mapping[str, Any]) -> None:
        self.prepare_workspace(planned, step.get("workspace", {}))
        self.upload(images)
        self.run()
        self.synchronise("sync")
        self.download(step.get("results", {}))
        self.check_workspace()

    def _clean(self) -> None:
        if self.stuck:
            return  # the work may still run: its memory stays
        steps = ("upload", "run", "sync", "download", "gate")
        if any((self.result.get(step) or {}).get("status", abi.FL_OK) != abi.FL_OK for step in steps):
            # Submitted work may be pending on a healthy stream whose last submit was refused.
            call_table(self.session, "stream.sync", [self.stream, 5_000_000_000])
            if "stream" not in self.command:
                call_table(self.session, "stream.destroy", [self.stream])
                key = (self.device.handle, threading.current_thread().name)
                self.session.kernel_streams.pop(key, None)
        for base, size in self.owned:
            freed = call_table(self.session, "memory.free", [self.device.handle, base, size])
            if freed["status"] != abi.FL_OK:
                self.result["free"] = {"status": freed["status"], "err": freed["err"]}


class _Watchdog:
    """Opens a gate when the call before it has not returned in time, so that the driver lives on."""

    def __init__(self, session: Session, gate: Any, seconds: float) -> None:
        self._session = session
        self._gate = gate
        self._late = False
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def _fire(self) -> None:
        self._late = True
        self._session.tasks.open(self._gate)

    def stop(self) -> bool:
        """Open the gate; True when it had still been closed."""
        self._timer.cancel()
        in_time = not self._late
        self._session.tasks.open(self._gate)
        return in_time


def _kernel_case(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """Run one kernel: plan, upload, run, sync, download, free; stops at the first status that is not OK.

    {"device": index or "d0", "op", "revision", "variant",
    "blocks": [{"name", "bytes", "image": [offset, length], "alignment"}],
    "tensors": {t: {"block": name | null, "byte_offset", "sizes", "strides", "dtype", "flags"}},
    "args": [slot], "outs": [t], "workspace": {"fill": byte, "guard": bytes},
    "results": {block: [offset, length]},
    "again": [{"images": {block: [offset, length]}, "workspace", "results"}]: further runs, same addresses,
    "gate": bool, "gate_seconds", "stream": reference, "timeout": seconds}

    slot: {"tensor": t} | {"tensors": [t | null]} | {"none": true} | {"bool"} | {"int"} | {"uint"} |
    {"float"} | {"complex": [re, im]} | {"dtype": number or name} | {"ints"} | {"floats"} | {"bools"} |
    {"string"} | {"rng": [seed, offset]}.
    A block is one mem_alloc of exactly its bytes. An output may name an input's tensor.
    gate: the stream stands still while run is called; inputs reach the blocks behind the gate, from
    staging blocks.

    -> {"plan": {"status", "err", "workspace_bytes", "workspace_align", "rng_increment", "token"},
    "upload", "run", "sync", "download": {"status", "err"} or null where not reached,
    "sha256": {block: hex} of what came back, "workspace_intact", "intact": no argument was written to,
    "returned_while_closed" (gate only)};
    "alloc", "stream", "gate", "free", "workspace" only where that step ran or failed; "again": the same
    keys for each further run.
    """
    try:
        case = _Case(session, command)
    except _Stop:
        raise CommandError("stream_create failed for a kernel case") from None
    return case.execute()


COMMANDS = {"kernel_case": _kernel_case}
