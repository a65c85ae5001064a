"""The kernel part of `torch_fl_conformance.facade.Abi`: plan and run one kernel in a given stream.

For chapters that order kernels among other work. Operator rows use the driver's `kernel_case` instead, which
also holds the frames, the poisons and the digests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, array, out, struct
from torch_fl_conformance.handles import Block, CallResult, Stream
from torch_fl_conformance.memory_calls import MemoryCalls


@dataclass(frozen=True)
class TensorView:
    """A tensor inside a block: sizes and strides in elements, byte_offset to element 0, dtype as "f32"."""

    block: Block
    sizes: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    byte_offset: int = 0
    readonly: bool = False

    def argument(self, *, addressless: bool = False) -> dict[str, Any]:
        """fl_tensor; addressless as `plan` gets it."""
        fields: dict[str, Arg] = {
            "base": 0 if addressless else {"ref": self.block.ref},
            "byte_offset": self.byte_offset,
            "base_bytes": self.block.bytes,
            "sizes": array(self.sizes, "int64_t"),
            "strides": array(self.strides, "int64_t"),
            "numel": math.prod(self.sizes),
            "dtype": header.DTYPES[self.dtype],
            "ndim": len(self.sizes),
            "device": int(self.block.device[1:]),
            "flags": header.FL_TENSOR_READONLY if self.readonly else 0,
        }
        return struct("fl_tensor", fields)


def tensor(
    block: Block,
    sizes: Sequence[int],
    dtype: str,
    strides: Sequence[int] | None = None,
    byte_offset: int = 0,
    readonly: bool = False,
) -> TensorView:
    """A view of a block, contiguous unless strides are given."""
    if strides is None:
        strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return TensorView(block, tuple(sizes), dtype, tuple(strides), byte_offset, readonly)


class KernelCalls(MemoryCalls):
    """Kernels by operator name."""

    def variant(self, device: str, op: str, *dtypes: str, revision: int = 1) -> str | None:
        """Name of a variant that claims the dtype row on the device (EXACT or ACCURATE first), or None."""
        kernels = self.driver.describe()["kernels"][int(device[1:])]
        claiming = [
            kernel
            for kernel in kernels
            if (kernel["op"], kernel["revision"]) == (op, revision)
            and any(tuple(row["dtypes"]) == dtypes for row in kernel["rows"])
        ]
        claiming.sort(key=lambda kernel: (kernel["tier"] == "FAST", -kernel["priority"], kernel["variant"]))
        return str(claiming[0]["variant"]) if claiming else None

    def plan(
        self,
        device: str,
        op: str,
        variant: str,
        args: Sequence[Any],
        outs: Sequence[TensorView],
        revision: int = 1,
    ) -> CallResult:
        """Call plan, whatever comes back; the fl_plan is its `value`. args as for `run`."""
        call = call_struct(args, outs, addressless=True)
        return self.call("kernel.plan", kernel_ref(device, op, variant, revision), device, call, out("fl_plan"))

    def run(
        self,
        stream: Stream,
        op: str,
        variant: str,
        args: Sequence[Any],
        outs: Sequence[TensorView],
        revision: int = 1,
        workspace: Block | None = None,
    ) -> None:
        """Plan the kernel and enqueue it in the stream; both must return FL_OK.

        args: TensorView, None, bool, int, float, or list of int, one per slot of the registry entry; a ready
        fl_arg dict passes. workspace: needed only where plan asks for some; allocated otherwise.
        """
        made = self.plan(stream.device, op, variant, args, outs, revision)
        if made.status != header.FL_OK:
            self.refuse(made)
        need = made.value["workspace_bytes"]
        if need and workspace is None:
            workspace = self.alloc(stream.device, need, made.value["workspace_align"])
        call = call_struct(args, outs, token=made.value["token"], workspace=workspace if need else None)
        self.ok("kernel.run", kernel_ref(stream.device, op, variant, revision), stream, call)


def kernel_ref(device: str, op: str, variant: str, revision: int = 1) -> str:
    """The name under which the driver keeps a kernel of a device."""
    return f"kernel/{int(device[1:])}/{op}/r{revision}/{variant}"


def call_struct(
    args: Sequence[Any],
    outs: Sequence[TensorView],
    *,
    token: int = 0,
    workspace: Block | None = None,
    addressless: bool = False,
) -> dict[str, Any]:
    """fl_call over these arguments and outputs."""
    fields: dict[str, Arg] = {
        "args": array([kernel_arg(value, addressless) for value in args], "fl_arg"),
        "n_args": len(args),
        "outs": array([view.argument(addressless=addressless) for view in outs], "fl_tensor*"),
        "n_outs": len(outs),
        "plan_token": token,
    }
    if workspace is not None:
        fields["workspace_base"] = {"ref": workspace.ref}
        fields["workspace_bytes"] = workspace.bytes
    return struct("fl_call", fields)


def kernel_arg(value: Any, addressless: bool = False) -> dict[str, Any]:
    """The fl_arg of a Python value, with the tag of its type; lists are INT_LIST."""
    if isinstance(value, TensorView):
        return _tagged(header.FL_TAG_TENSOR, "tensor", value.argument(addressless=addressless))
    if value is None:
        return {"tag": header.FL_TAG_NONE}
    if isinstance(value, bool):
        return _tagged(header.FL_TAG_BOOL, "i", int(value))
    if isinstance(value, int):
        return _tagged(header.FL_TAG_INT, "i", value)
    if isinstance(value, float):
        return _tagged(header.FL_TAG_FLOAT, "f", value)
    if isinstance(value, str):
        return {**_tagged(header.FL_TAG_STRING, "string", {"string": value}), "count": len(value.encode())}
    if isinstance(value, (list, tuple)):
        return {**_tagged(header.FL_TAG_INT_LIST, "ints", array(value, "int64_t")), "count": len(value)}
    return dict(value)


def _tagged(tag: int, member: str, value: Any) -> dict[str, Any]:
    return {"tag": tag, "value": {member: value}}
