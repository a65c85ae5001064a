"""The payload of ordering checks: a kernel x -> a*x + b mod 2^32, whose compositions do not commute.

The word that a chain of such kernels leaves behind names the order in which they ran, so an order check needs no
clock. The kernel is `aten::add.Tensor` on i32, out = self + alpha * other, with the constant b as self and x as
other; the registry requires it of every profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torch_fl_conformance.arguments import Arg, out
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, CallResult, Stream
from torch_fl_conformance.kernel_calls import call_struct, kernel_ref, tensor

OP, DTYPE = "aten::add.Tensor", "i32"
WORD = 4  # bytes of an element

Words = np.ndarray[Any, np.dtype[np.uint32]]


class Affine:
    """The payload kernel on one device. Blocks hold int32 words; offsets are in bytes, multiples of 4."""

    def __init__(self, abi: Abi, device: str, kernel: str) -> None:
        self.abi = abi
        self.device = device
        self.kernel = kernel
        self._plans: dict[int, tuple[Block | None, int]] = {}  # by number of words: workspace and token

    @classmethod
    def of(cls, abi: Abi, device: str = "d0") -> Affine | None:
        """The payload on this device; None where no variant claims add.Tensor on i32."""
        variant = abi.variant(device, OP, DTYPE)
        return None if variant is None else cls(abi, device, kernel_ref(device, OP, variant))

    def prepare(self, words: int) -> None:
        """Plan calls of this many words, so that `run` makes one call of the interface only."""
        if words not in self._plans:
            plan = self.abi.ok("kernel.plan", self.kernel, self.device, self.planned(words), out("fl_plan")).value
            need = plan["workspace_bytes"]
            space = self.abi.alloc(self.device, need, plan["workspace_align"]) if need else None
            self._plans[words] = (space, plan["token"])

    def run(
        self,
        stream: Stream,
        target: Block,
        x: Block,
        b: Block,
        a: int,
        words: int,
        offsets: tuple[int, int, int] = (0, 0, 0),
    ) -> CallResult:
        """Enqueue target = a*x + b elementwise, which must succeed. offsets: of target, x and b."""
        call = self.call(words, target, x, b, a, offsets)
        return self.abi.ok("kernel.run", self.kernel, stream, call)

    def planned(
        self, words: int, call: Mapping[str, Any] | None = None, first: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The fl_call of a plan, without addresses; call, first: options of its struct and of its first tensor."""
        nowhere = Block("", self.device, words * WORD, 0)
        return _with_options(_call(words, nowhere, nowhere, nowhere, 1, addressless=True), call, first)

    def call(
        self,
        words: int,
        target: Block,
        x: Block,
        b: Block,
        a: int,
        offsets: tuple[int, int, int] = (0, 0, 0),
        options: Mapping[str, Any] | None = None,
        first: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The fl_call of a run; options, first: as call and first of `planned`."""
        self.prepare(words)
        space, token = self._plans[words]
        return _with_options(_call(words, target, x, b, a, offsets, token=token, workspace=space), options, first)


def _call(
    words: int, target: Block, x: Block, b: Block, a: int, offsets: tuple[int, int, int] = (0, 0, 0), **more: Any
) -> dict[str, Any]:
    views = [
        tensor(block, (words,), DTYPE, byte_offset=offset)
        for block, offset in zip((target, x, b), offsets, strict=True)
    ]
    return call_struct([views[2], views[1], a], [views[0]], **more)


def _with_options(
    call: dict[str, Any], options: Mapping[str, Any] | None, first: Mapping[str, Any] | None
) -> dict[str, Arg]:
    first_tensor = call["fields"]["args"]["array"][0]["value"]["tensor"]
    first_tensor.update(first or {})
    return {**call, **(options or {})}


def affine(a: int, x: Words, b: Words) -> Words:
    """What the payload computes: a*x + b mod 2^32 on uint32 arrays."""
    wide = np.uint64(a % 2**32) * x.astype(np.uint64) + b.astype(np.uint64)
    words: Words = (wide % np.uint64(2**32)).astype(np.uint32)
    return words


def words_of(data: bytes) -> Words:
    """Downloaded bytes as uint32 words."""
    words: Words = np.frombuffer(data, dtype="<u4")
    return words
