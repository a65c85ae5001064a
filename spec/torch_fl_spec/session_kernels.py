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


class _Case:
    """One running kernel_case: what it allocated and what it found so far."""

    def __init__(self, session: Session, command: Mapping[str, Any]) -> None:
        self.session = session
        self.command = command
        self.device: Device = session.device(command["device"])
        self.result: dict[str, Any] = dict.fromkeys(("upload", "plan", "run", "sync", "download"))
        self.result |= {"sha256": {}, "workspace_intact": True, "intact": True}
        self.bases: dict[str, int] = {}
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

    def upload(self) -> dict[str, int]:
        """Allocate and fill the blocks; with a gate return where their images wait: block -> staging base."""
        staged: dict[str, int] = {}
        for block in self.command["blocks"]:
            name, size = block["name"], block["bytes"]
            if size == 0:
                self.bases[name] = 0
                continue
            self.bases[name] = self.allocate(size, block.get("alignment", 0))
            if "image" not in block:
                continue
            target = self.bases[name]
            if self.command.get("gate"):
                words, rest = divmod(size, 8)
                for width, count, offset in ((8, words, 0), (1, rest, words * 8)):
                    if count:
                        args = [self.stream, target, offset, _STALE_FILL, width, count]
                        self.enter("upload", call_table(self.session, "memory.fill", args))
                target = staged[name] = self.allocate(size, 0)
            self.copy("upload", target, None, size, self.session.shared_address(*block["image"]))
        self.synchronise("upload")
        return staged

    def download(self) -> None:
        """Bring every block back whole and seal it by its sha256."""
        results = self.command.get("results", {})
        places: list[tuple[str, Any, int]] = []
        spare: list[HostBuffer] = []
        for block in self.command["blocks"]:
            name, size = block["name"], block["bytes"]
            if size == 0:
                continue
            if name in results:
                place = self.session.shared(results[name][0], size)
            else:
                spare.append(HostBuffer(size))
                place = spare[-1].pointer
            self.copy("download", None, self.bases[name], size, int(ffi.cast("uintptr_t", place)))
            places.append((name, place, size))
        self.synchronise("download")
        for name, place, size in places:
            self.result["sha256"][name] = hashlib.sha256(ffi.buffer(place, size)).hexdigest()
        for buffer in spare:
            buffer.release()

    # -- plan and run ------------------------------------------------------------------------------------

    def plan(self) -> dict[str, int]:
        """Call plan without addresses; returns the fl_plan."""
        frame = self.session.frame()
        tensors = tensor_reader(frame, self.command["tensors"], self.device.index, None, {})
        call = fill_call(frame, self.command, tensors, {})
        out = frame.out({"out": "fl_plan", "fill": OUT_FILL})
        args = [self.kernel, _handle("fl_device", self.device.handle), call, ffi.cast("fl_plan*", out)]
        outcome = invoke(
            self.session, frame, "kernel.plan", self.kernel.plan, args, internal_error(self.session)
        )
        self.enter("plan", outcome)
        planned = {
            key: outcome["outs"][0][key]
            for key in ("workspace_bytes", "workspace_align", "rng_increment", "token")
        }
        self.result["plan"] |= planned
        return planned

    def workspace(self, planned: Mapping[str, int]) -> tuple[dict[str, int], bytes]:
        """Allocate the workspace between guards; (fields of fl_call, its block's image before the run)."""
        size, align = planned["workspace_bytes"], max(planned["workspace_align"], 1)
        if size == 0:
            return {"plan_token": planned["token"]}, b""
        wish = self.command.get("workspace", {})
        if size > _WORKSPACE_LIMIT or align > self.device.info["max_align"] or align & (align - 1):
            self.result["run"] = None
            self.result["workspace"] = {"status": abi.FL_OUT_OF_MEMORY, "err": None}
            raise _Stop
        guard = -(-max(wish.get("guard", 256), 1) // align) * align
        base = self.allocate(guard + size + guard, align)
        image = bytes((_GUARD_BYTE,)) * guard
        image = image + bytes((wish.get("fill", 0xFF),)) * size + image
        self._with_host("upload", base, image)
        fields = {"workspace_base": base, "workspace_offset": guard, "workspace_bytes": size}
        return {**fields, "plan_token": planned["token"]}, image

    def _with_host(self, step: str, base: int, image: bytes) -> None:
        buffer = HostBuffer(len(image))
        buffer.view(0, len(image))[:] = image
        self.copy(step, base, None, len(image), int(ffi.cast("uintptr_t", buffer.pointer)))
        self.synchronise(step)
        buffer.release()

    def check_workspace(self, fields: Mapping[str, int], image: bytes) -> None:
        """The guards around the workspace are as they were."""
        if not image:
            return
        buffer = HostBuffer(len(image))
        self.copy(
            "download", None, fields["workspace_base"], len(image), int(ffi.cast("uintptr_t", buffer.pointer))
        )
        self.synchronise("download")
        guard, size = fields["workspace_offset"], fields["workspace_bytes"]
        after = buffer.view(0, len(image))[:]
        same = after[:guard] == image[:guard] and after[guard + size :] == image[guard + size :]
        self.result["workspace_intact"] = same
        buffer.release()

    def run(self, staged: Mapping[str, int], fields: Mapping[str, int]) -> None:
        """Call run, behind a closed gate where the command asks for one."""
        frame = self.session.frame()
        sizes = {block["name"]: block["bytes"] for block in self.command["blocks"]}
        tensors = tensor_reader(frame, self.command["tensors"], self.device.index, self.bases, sizes)
        call = fill_call(frame, self.command, tensors, fields)
        args = [self.kernel, _handle("fl_stream", self.stream), call]
        watchdog = self._close_gate(staged, sizes) if self.command.get("gate") else None
        outcome = invoke(
            self.session, frame, "kernel.run", self.kernel.run, args, internal_error(self.session)
        )
        if watchdog is not None:
            self.result["returned_while_closed"] = watchdog.stop()
        self.enter("run", outcome)
        self.result["run"]["seconds"] = outcome["seconds"]

    def _close_gate(self, staged: Mapping[str, int], sizes: Mapping[str, int]) -> _Watchdog:
        """Stall the stream and queue the true inputs behind the gate: an early kernel sees stale bytes."""
        if self.device.info["execution_model"] == "INLINE":
            raise CommandError("an INLINE device cannot be gated: its submits return after completion")
        name = f"kernel_case {threading.current_thread().name}"
        gate = self.session.tasks.new_gate(name)
        watchdog = _Watchdog(self.session, gate, self.command.get("gate_seconds", 20.0))
        try:
            args = [self.stream, {"task": "gate", "name": name}]
            self.enter("gate", call_table(self.session, "stream.host_task", args))
            for block, base in staged.items():
                self.copy("upload", self.bases[block], base, sizes[block])
        except _Stop:
            watchdog.stop()
            raise
        return watchdog

    # -- the whole ---------------------------------------------------------------------------------------

    def execute(self) -> dict[str, Any]:
        """plan, upload, run, sync, download, free."""
        try:
            planned = self.plan()
            staged = self.upload()
            fields, image = self.workspace(planned)
            self.run(staged, fields)
            self.synchronise("sync")
            self.download()
            self.check_workspace(fields, image)
        except _Stop:
            pass
        finally:
            self._clean()
        return self.result

    def _clean(self) -> None:
        if self.stuck:
            return  # the work may still run: its memory stays
        steps = ("upload", "run", "sync", "download", "gate")
        poisoned = any((self.result.get(s) or {}).get("status") not in (None, abi.FL_OK) for s in steps)
        if poisoned:
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


def _handle(ctype: str, number: int) -> Any:
    return ffi.cast(ctype, number)


def _kernel_case(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """Run one kernel: plan, upload, run, sync, download, free; stops at the first status that is not OK.

    {"device", "op", "revision", "variant",
    "blocks": [{"name", "bytes", "image": [offset, length], "alignment"}],
    "tensors": {t: {"block": name | null, "byte_offset", "sizes", "strides", "dtype", "flags"}},
    "args": [slot], "outs": [t], "workspace": {"fill": byte, "guard": bytes},
    "results": {block: [offset, length]},
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
    "alloc", "stream", "gate", "free", "workspace" only where that step failed or ran.
    """
    try:
        case = _Case(session, command)
    except _Stop:
        raise CommandError("stream_create failed for a kernel case") from None
    return case.execute()


COMMANDS = {"kernel_case": _kernel_case}
