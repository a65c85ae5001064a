"""Runs one kernel of the reference library on torch tensors, through the driver's executor.

Every tensor gets a block of its own with sentinel bytes before, behind and between its elements. Inputs keep the
strides that torch gave them, 0 included; outputs get the strides asked for. A run fails when a sentinel of an output's
block has changed, when an input has changed, or when a guard of the workspace has.
"""

from __future__ import annotations

import mmap
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_fl_spec.session import Session

REFERENCE = Path(__file__).parents[2] / "runtime" / "reference"
SENTINEL = 0xA5
MARGIN = 64  # bytes on both sides of a tensor

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def build_library() -> Path:
    """The INLINE reference library, brought up to date."""
    subprocess.run(["make", "-s", "-C", str(REFERENCE), "build/libfl_reference_inline.so"], check=True)
    return REFERENCE / "build" / "libfl_reference_inline.so"


@dataclass(frozen=True)
class Out:
    """An output: dtype's short name, shape, and strides in elements (None: contiguous)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


class KernelError(Exception):
    """plan, run or sync did not say FL_OK."""

    def __init__(self, step: str, status: int, message: str) -> None:
        super().__init__(f"{step}: status {status}: {message}")
        self.step = step
        self.status = status


def spread_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a layout with the dimensions in reverse order and a hole beside every element."""
    strides, step = [], 2
    for size in shape:
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


class _Layout:
    """Blocks and tensors of one command, one after the other in the shared memory."""

    def __init__(self) -> None:
        self.image = bytearray()
        self.blocks: list[dict[str, Any]] = []
        self.tensors: dict[str, dict[str, Any]] = {}

    def add(self, dtype: str, shape: Sequence[int], strides: Sequence[int], content: bytes | None) -> str:
        name = f"t{len(self.tensors)}"
        span = _span(shape, strides) * DTYPES[dtype].itemsize
        body = content if content is not None else bytes([SENTINEL]) * span
        image = bytes([SENTINEL]) * MARGIN + body + bytes([SENTINEL]) * MARGIN
        self.blocks.append({"name": name, "bytes": len(image), "image": [len(self.image), len(image)]})
        self.image += image
        self.tensors[name] = {
            "block": name,
            "byte_offset": MARGIN,
            "sizes": list(shape),
            "strides": list(strides),
            "dtype": dtype,
        }
        return name

    def add_tensor(self, tensor: torch.Tensor) -> str:
        """An input, with the strides it has."""
        span = _span(tensor.shape, tensor.stride())
        content = _bytes_of(tensor.as_strided((span,), (1,))) if span else b""
        return self.add(NAMES[tensor.dtype], tensor.shape, tensor.stride(), content)


class KernelRunner:
    """One session on the library; see the module's text."""

    def __init__(self, library: Path) -> None:
        self.session = Session(library)

    def close(self) -> list[str]:
        """Ends the session; returns what failed, as text."""
        return self.session.close()

    def rows(self, op: str) -> list[dict[str, Any]]:
        """The dtype rows of aten::op."""
        kernels = self.session.execute({"do": "describe"})["kernels"][0]
        (kernel,) = (k for k in kernels if k["op"] == f"aten::{op}")
        return list(kernel["rows"])

    def run(self, op: str, args: Sequence[Any], outs: Sequence[Out]) -> list[torch.Tensor]:
        """Outputs of aten::op. args: tensors, lists of them, None, or slots ({"ints": [0]}); raises KernelError."""
        layout = _Layout()
        slots: list[dict[str, Any]] = []
        for arg in args:
            if arg is None:
                slots.append({"none": True})
            elif isinstance(arg, torch.Tensor):
                slots.append({"tensor": layout.add_tensor(arg)})
            elif isinstance(arg, list):
                slots.append({"tensors": [layout.add_tensor(tensor) for tensor in arg]})
            else:
                slots.append(arg)
        names = []
        for out in outs:
            dense = torch.empty(out.shape, device="meta").stride()
            names.append(layout.add(out.dtype, out.shape, out.strides or dense, None))
        size = len(layout.image)
        with mmap.mmap(-1, max(size, 1)) as memory:
            memory[:size] = bytes(layout.image)
            result = self._execute(op, memory, layout, slots, names)
            after = memory[:size]
        self._check(result)
        inputs_end = layout.blocks[-len(outs)]["image"][0]
        assert after[:inputs_end] == bytes(layout.image[:inputs_end]), "an input has changed"
        return [self._take(layout, after, name, out) for name, out in zip(names, outs, strict=True)]

    def _execute(
        self, op: str, memory: mmap.mmap, layout: _Layout, slots: list[dict[str, Any]], outs: list[str]
    ) -> dict[str, Any]:
        self.session.attach_memory(memory)
        try:
            return self.session.execute(
                {
                    "do": "kernel_case",
                    "device": 0,
                    "op": f"aten::{op}",
                    "revision": 1,
                    "variant": "generic",
                    "blocks": layout.blocks,
                    "tensors": layout.tensors,
                    "args": slots,
                    "outs": outs,
                    "workspace": {"fill": 0xFF, "guard": 256},
                    "results": {block["name"]: block["image"] for block in layout.blocks},
                }
            )
        finally:
            self.session.detach_memory()

    @staticmethod
    def _check(result: dict[str, Any]) -> None:
        for step in ("plan", "workspace", "upload", "run", "sync", "download"):
            outcome = result.get(step)
            if outcome is not None and outcome["status"] != 0:
                raise KernelError(step, outcome["status"], (outcome["err"] or {}).get("message", ""))
        assert result["workspace_intact"], "a guard of the workspace has changed"

    @staticmethod
    def _take(layout: _Layout, after: bytes, name: str, out: Out) -> torch.Tensor:
        """The output as a contiguous tensor, after a look at the sentinels around and between its elements."""
        block = next(b for b in layout.blocks if b["name"] == name)
        offset, size = block["image"]
        image = bytearray(after[offset : offset + size])
        dtype = DTYPES[out.dtype]
        strides = layout.tensors[name]["strides"]
        if 0 in out.shape:
            assert set(image) <= {SENTINEL}, "bytes of an empty output have changed"
            return torch.empty(out.shape, dtype=dtype)
        body = torch.frombuffer(image, dtype=torch.uint8)[MARGIN : size - MARGIN].clone()
        values = body.view(dtype).as_strided(out.shape, strides).clone()
        body.view(-1, dtype.itemsize).as_strided(
            (*out.shape, dtype.itemsize), (*(s * dtype.itemsize for s in strides), 1)
        ).fill_(SENTINEL)
        image[MARGIN : size - MARGIN] = body.numpy().tobytes()
        assert set(image) == {SENTINEL}, "bytes beside the elements of an output have changed"
        return values
