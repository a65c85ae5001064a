"""The payload of ordering checks: a kernel x -> a*x + b mod 2^32, whose compositions do not commute.

The word that a chain of such kernels leaves behind names the order in which they ran, so an order check needs no
clock. The kernel is `aten::add.Tensor` on i32, out = self + alpha * other, with the constant b as self and x as
other; the registry requires it of every profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, array, out, struct
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, CallResult, Stream

OP, REVISION, DTYPE = "aten::add.Tensor", 1, "i32"
WORD = 4  # bytes of an element


class Affine:
    """The payload kernel on one device. Blocks hold int32 words; offsets are in bytes, multiples of 4."""

    def __init__(self, abi: Abi, device: str, kernel: str) -> None:
        self.abi = abi
        self.device = device
        self.kernel = kernel
        self._workspaces: dict[int, tuple[Block | None, int]] = {}

    @classmethod
    def of(cls, abi: Abi, device: str = "d0") -> Affine | None:
        """The payload on this device; None where no variant claims add.Tensor on i32."""
        index = int(device[1:])
        for entry in abi.driver.describe()["kernels"][index]:
            claims = any(row["dtypes"] == [DTYPE] for row in entry["rows"])
            if entry["op"] == OP and entry["revision"] == REVISION and claims:
                return cls(abi, device, f"kernel/{index}/{OP}/r{REVISION}/{entry['variant']}")
        return None

    def prepare(self, words: int) -> None:
        """Plan calls of this many words, so that `run` makes one call of the interface only."""
        if words in self._workspaces:
            return
        plan = self.abi.ok(
            "kernel.plan",
            self.kernel,
            self.device,
            self.planned(words),
            out("fl_plan"),
        ).value
        need = plan["workspace_bytes"]
        space = self.abi.alloc(self.device, need, plan["workspace_align"]) if need else None
        self._workspaces[words] = (space, plan["token"])

    def submit(
        self,
        stream: Stream,
        target: Block,
        x: Block,
        b: Block,
        a: int,
        words: int,
        offsets: tuple[int, int, int] = (0, 0, 0),
    ) -> CallResult:
        """Enqueue target = a*x + b elementwise, whatever comes back. offsets: of target, x and b."""
        self.prepare(words)
        space, token = self._workspaces[words]
        call = self._call(words, target, x, b, a, offsets, space, token)
        return self.abi.call("kernel.run", self.kernel, stream, call)

    def run(
        self,
        stream: Stream,
        target: Block,
        x: Block,
        b: Block,
        a: int,
        words: int,
        offsets: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """`submit`, which must succeed."""
        self.prepare(words)
        space, token = self._workspaces[words]
        self.abi.ok("kernel.run", self.kernel, stream, self._call(words, target, x, b, a, offsets, space, token))

    def call_args(
        self,
        words: int,
        target: Block,
        x: Block,
        b: Block,
        a: int,
        call: Mapping[str, Any] | None = None,
        tensor: Mapping[str, Any] | None = None,
    ) -> list[Arg]:
        """Arguments of "kernel.run" behind the stream; call, tensor: options of these structs."""
        self.prepare(words)
        space, token = self._workspaces[words]
        return [self._call(words, target, x, b, a, (0, 0, 0), space, token, call, tensor)]

    def planned(
        self, words: int, call: Mapping[str, Any] | None = None, tensor: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The fl_call of a plan, without addresses."""
        return self._call(words, None, None, None, 1, (0, 0, 0), None, 0, call, tensor)

    def _call(
        self,
        words: int,
        target: Block | None,
        x: Block | None,
        b: Block | None,
        a: int,
        offsets: tuple[int, int, int],
        space: Block | None,
        token: int,
        call: Mapping[str, Any] | None = None,
        tensor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        inputs = [self._tensor(b, words, offsets[2], tensor), self._tensor(x, words, offsets[1], None)]
        args = [
            {"tag": header.FL_TAG_TENSOR, "value": {"tensor": inputs[0]}},
            {"tag": header.FL_TAG_TENSOR, "value": {"tensor": inputs[1]}},
            {"tag": header.FL_TAG_INT, "value": {"i": a}},
        ]
        fields: dict[str, Arg] = {
            "args": array(args, "fl_arg"),
            "n_args": len(args),
            "outs": array([self._tensor(target, words, offsets[0], None)], "const fl_tensor*"),
            "n_outs": 1,
            "plan_token": token,
        }
        if space is not None:
            fields |= {"workspace_base": space, "workspace_bytes": space.bytes}
        return struct("fl_call", fields, **(call or {}))

    def _tensor(
        self, block: Block | None, words: int, offset: int, options: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return struct(
            "fl_tensor",
            {
                "base": 0 if block is None else block,
                "byte_offset": 0 if block is None else offset,
                "base_bytes": 0 if block is None else block.bytes,
                "sizes": array([words], "int64_t"),
                "strides": array([1], "int64_t"),
                "numel": words,
                "dtype": header.FL_DTYPE_I32,
                "ndim": 1,
                "device": int(self.device[1:]),
            },
            **(options or {}),
        )


def affine(a: int, x: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the payload computes: a*x + b mod 2^32 on uint32 arrays."""
    wide = np.uint64(a % 2**32) * x.astype(np.uint64) + b.astype(np.uint64)
    return (wide % np.uint64(2**32)).astype(np.uint32)


def words_of(data: bytes) -> np.ndarray[Any, Any]:
    """Downloaded bytes as uint32 words."""
    return np.frombuffer(data, dtype="<u4")
