"""One execution of one kernel, as plain data: what the driver is told, and what it brought back.

A `KernelCase` knows nothing of operators or oracles: blocks of bytes, tensors inside them, arguments. `run_case`
turns it into the driver's `kernel_case` command, passing bytes through shared memory, and checks that what lies in
shared memory is what the driver sealed (sha256 over each block as it came back).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch_fl_spec.abi import FL_OK, status_name

from torch_fl_conformance.failures import RuleViolated


class CaseDriver(Protocol):
    """The part of the driver that kernel rows use."""

    def execute(self, command: Any, timeout: float | None = None) -> Any: ...

    def place(self, data: Any) -> list[int]: ...

    def room(self, length: int) -> list[int]: ...

    def view(self, region: list[int]) -> memoryview: ...


@dataclass(frozen=True)
class TensorPlace:
    """A tensor as fl_tensor describes it: strides in elements, byte_offset from the block's base to element 0."""

    block: str | None  # None: base 0, legal where numel is 0
    byte_offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int
    readonly: bool = False

    def command(self) -> dict[str, Any]:
        """The driver's form."""
        return {
            "block": self.block,
            "byte_offset": self.byte_offset,
            "sizes": list(self.sizes),
            "strides": list(self.strides),
            "dtype": self.dtype,
            "flags": 1 if self.readonly else 0,
        }


@dataclass(frozen=True)
class Step:
    """One run on the case's blocks: their bytes before it (whole blocks) and the workspace's garbage byte."""

    images: Mapping[str, bytes | memoryview]
    workspace_fill: int = 0xA5


@dataclass(frozen=True)
class KernelCase:
    """One plan and one or more runs of the same call on the same addresses."""

    op: str
    revision: int
    variant: str
    tensors: dict[str, TensorPlace]
    args: list[dict[str, Any]]
    outs: list[str]
    steps: list[Step]
    device: str = "d0"


@dataclass(frozen=True)
class StepResult:
    """What one run left: statuses (FL_*), whole blocks, and whether the workspace's guard bytes are intact."""

    run: dict[str, Any]
    sync: dict[str, Any]
    blocks: dict[str, bytes]
    workspace_intact: bool
    arguments_intact: bool = True


@dataclass(frozen=True)
class CaseResult:
    """plan: {status, err, workspace_bytes, workspace_align, rng_increment, token}; steps that were run.

    unplaced: why the planned workspace could not be allocated, if so; the case ended there.
    """

    plan: dict[str, Any]
    steps: list[StepResult]
    plans: list[dict[str, Any]]
    unplaced: str | None = None


class SealBroken(Exception):
    """Bytes in shared memory are not those that the driver sealed: a fault of the harness."""


class MemoryFailed(RuleViolated):
    """Allocating or copying for a case failed, though the kernel was not to blame."""

    def __init__(self, stage: str, answer: dict[str, Any]) -> None:
        super().__init__(f"{stage} of a kernel case: {status_text(answer)}", {})


def status_text(answer: Mapping[str, Any]) -> str:
    """A failed call's status by its name, with the plugin's message."""
    message = (answer.get("err") or {}).get("message", "")
    return status_name(answer["status"]) + (f" ({message})" if message else "")


def number(value: float | int) -> Any:
    """A float as the driver's JSON carries it exactly."""
    return float(value).hex() if value == value and abs(value) != float("inf") else str(float(value))


def run_case(driver: CaseDriver, case: KernelCase) -> CaseResult:
    """Execute a case. Raises what the driver raises when the plugin crashes or hangs."""
    first = case.steps[0]
    regions = [{name: driver.room(len(image)) for name, image in step.images.items()} for step in case.steps]
    images = [{name: driver.place(image) for name, image in step.images.items()} for step in case.steps]
    command: dict[str, Any] = {
        "do": "kernel_case",
        "device": case.device,
        "op": case.op,
        "revision": case.revision,
        "variant": case.variant,
        "blocks": [
            {"name": name, "bytes": len(image), "image": images[0][name]} for name, image in first.images.items()
        ],
        "tensors": {name: tensor.command() for name, tensor in case.tensors.items()},
        "args": case.args,
        "outs": case.outs,
        "workspace": {"fill": first.workspace_fill, "guard": 256},
        "results": regions[0],
    }
    if len(case.steps) > 1:
        command["again"] = [
            {"images": image, "workspace": {"fill": step.workspace_fill, "guard": 256}, "results": region}
            for step, image, region in zip(case.steps[1:], images[1:], regions[1:], strict=True)
        ]
    answer = driver.execute(command)
    plan = answer["plan"]
    if plan["status"] != FL_OK:
        return CaseResult(plan, [], [plan])
    answers = [answer, *answer.get("again", [])]
    steps = []
    unplaced = None
    for place, (got, region) in enumerate(zip(answers, regions, strict=False)):
        for stage in ("stream", "alloc", "upload", "download", "free"):
            if (got.get(stage) or {}).get("status", FL_OK) != FL_OK and not _failed(got):
                raise MemoryFailed(stage, got[stage])
        if got.get("workspace"):
            unplaced = got["workspace"]["err"]["message"]
            break
        blocks = {}
        for name, sealed in got.get("sha256", {}).items():
            blocks[name] = bytes(driver.view(region[name]))
            if hashlib.sha256(blocks[name]).hexdigest() != sealed:
                raise SealBroken(f"block {name} of run {place} differs from its seal")
        run, sync = got.get("run") or _NOT_REACHED, got.get("sync") or _NOT_REACHED
        intact = bool(got.get("intact", True))
        steps.append(StepResult(run, sync, blocks, bool(got["workspace_intact"]), intact))
    return CaseResult(plan, steps, [got["plan"] for got in answers if got.get("plan")], unplaced)


_NOT_REACHED: dict[str, Any] = {"status": FL_OK, "err": None}


def _failed(got: dict[str, Any]) -> bool:
    """Whether the run itself failed, which explains that later stages did."""
    return any((got.get(stage) or _NOT_REACHED)["status"] != FL_OK for stage in ("plan", "run", "sync"))
