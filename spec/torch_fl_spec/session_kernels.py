"""The `kernel_case` command: one kernel on blocks whose whole images come and go through shared memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import abi
from .session_args import OUT_FILL, CommandError
from .session_calls import call_table, internal_error, invoke
from .session_kernel_args import fill_call, tensor_reader
from .session_kernel_memory import KernelMemory, Stop, blank_result

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi


class _Case(KernelMemory):
    """One running kernel_case."""

    def __init__(self, session: Session, command: Mapping[str, Any]) -> None:
        super().__init__(session, command)
        key = (command["op"], command["revision"], command["variant"])
        try:
            self.kernel = self.device.kernels.pointers[key]
        except KeyError:
            raise CommandError(f"device {self.device.index} has no kernel {key}") from None
        if command.get("gate") and self.device.info["execution_model"] == "INLINE":
            raise CommandError("an INLINE device cannot be gated: its submits return after completion")

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
        name = f"kernel_case {threading.current_thread().name}"
        gate = self.session.tasks.new_gate(name)
        watchdog = _Watchdog(self.session, gate, self.command.get("gate_seconds", 20.0))
        try:
            args = [self.stream, {"task": "gate", "name": name}]
            self.enter("gate", call_table(self.session, "stream.host_task", args))
            for block, base in self.staged.items():
                self.copy("upload", self.bases[block], base, self.sizes[block])
        except Stop:
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
            self.stream = self.choose_stream()
            self.allocate_blocks()
            self._step(planned, images, self.command)
            for step in self.command.get("again", ()):
                self.result = blank_result()
                first.setdefault("again", []).append(self.result)
                self._step(self.plan(), step.get("images", images), step)
        except Stop:
            pass
        finally:
            self.clean()
        return first

    def _step(self, planned: Mapping[str, int], images: Mapping[str, list[int]], step: Mapping[str, Any]) -> None:
        self.prepare_workspace(planned, step.get("workspace", {}))
        self.upload(images)
        self.run()
        self.synchronise("sync")
        self.download(step.get("results", {}))
        self.check_workspace()


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
    return _Case(session, command).execute()


COMMANDS = {"kernel_case": _kernel_case}
