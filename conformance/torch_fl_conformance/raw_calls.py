"""plan and run of one kernel by single calls, for calls that a host would never make.

`kernel_case` of the driver plans, uploads, runs and compares; it can't run what plan has refused. A `RawCall` is a
problem's fl_call with slots, tags and counts that may be exchanged, on scratch memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import Arg, array, out, struct
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import Block, CallResult, Stream
from torch_fl_conformance.kernel_samples import ClaimedKernel
from torch_fl_conformance.layout_blocks import Blocks
from torch_fl_conformance.problem import Problem, Tensor

ANSWER = ("workspace_bytes", "workspace_align", "rng_increment", "token")
"""Fields of fl_plan that plan writes."""


class RawCall:
    """The call of a problem. Arguments are fl_arg dicts as `arguments()` gives them, outputs tensor names."""

    def __init__(self, abi: Abi, kernel: ClaimedKernel, problem: Problem) -> None:
        structure = problem.structure
        self.abi, self.kernel, self.problem = abi, kernel, problem
        self.tensors: dict[str, Tensor] = {t.name: t for t in (*structure.inputs, *structure.outs)}
        self.outs = [tensor.name for tensor in structure.outs]
        placed = [(t.name, t.dtype, t.core, problem.layouts[t.name]) for t in self.tensors.values()]
        blocks = Blocks.arrange(placed, "pool", problem.claim.data_align, {})
        self._places, self._size = blocks.places, blocks.sizes["pool"]
        self.memory: Block | None = None
        self._workspace: Block | None = None
        self._planned: dict[str, Any] | None = None

    def arguments(self, *, planned: bool) -> list[dict[str, Any]]:
        """The fl_args of the problem, in slot order; planned: tensors carry no address."""
        return [self._argument(slot, planned) for slot in self.problem.structure.args]

    def tensor(self, name: str, *, planned: bool, dtype: int | None = None) -> dict[str, Any]:
        """fl_tensor of an input or output; dtype: state this number instead of its own."""
        given, layout = self.tensors[name], self.problem.layouts[name]
        fields: dict[str, Arg] = {
            "sizes": array(given.shape, "int64_t"),
            "strides": array(layout.strides, "int64_t"),
            "numel": math.prod(given.shape),
            "dtype": given.dtype.number if dtype is None else dtype,
            "ndim": len(given.shape),
            "device": int(self.kernel.device[1:]),
        }
        if not planned:
            memory = self.scratch()
            fields |= {"base": memory, "byte_offset": self._places[name].offset, "base_bytes": memory.bytes}
        return struct("fl_tensor", fields)

    def plan(
        self,
        args: Sequence[Any] | None = None,
        outs: Sequence[Any] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> CallResult:
        """Call plan. args, outs: fl_args and fl_tensors in place of the problem's; counts: n_args, n_outs."""
        call = self._call(args, outs, counts or {}, planned=True)
        return self.abi.call("kernel.plan", self.kernel.ref, self.kernel.device, call, out("fl_plan"))

    def plan_arguments(self) -> tuple[Any, ...]:
        """Arguments of "kernel.plan", for checks that queue the call themselves."""
        return (self.kernel.ref, self.kernel.device, self._call(None, None, {}, planned=True), out("fl_plan"))

    def run(
        self,
        stream: Stream,
        args: Sequence[Any] | None = None,
        outs: Sequence[Any] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> CallResult:
        """Call run on scratch memory, with the workspace and token that plan gave the unchanged call."""
        if self._planned is None:
            made = self.plan()
            self._planned = made.value if made.ok else self.abi.refuse(made)
        fields: dict[str, Arg] = {**(counts or {}), "plan_token": self._planned["token"]}
        need = self._planned["workspace_bytes"]
        if need:
            if self._workspace is None:
                self._workspace = self.abi.alloc(self.kernel.device, need, self._planned["workspace_align"])
            fields |= {"workspace_base": self._workspace, "workspace_bytes": need}
        call = self._call(args, outs, fields, planned=False)
        return self.abi.call("kernel.run", self.kernel.ref, stream, call)

    def release(self) -> None:
        """Free the scratch memory."""
        for block in (self.memory, self._workspace):
            if block is not None:
                self.abi.free(block)
        self.memory = self._workspace = None

    def scratch(self) -> Block:
        """The memory that all tensors of a run lie in, its content undefined."""
        if self.memory is None:
            self.memory = self.abi.alloc(self.kernel.device, self._size, self.problem.claim.data_align)
        return self.memory

    def _call(
        self, args: Sequence[Any] | None, outs: Sequence[Any] | None, fields: Mapping[str, Arg], *, planned: bool
    ) -> dict[str, Any]:
        slots = self.arguments(planned=planned) if args is None else list(args)
        results = [self.tensor(name, planned=planned) for name in self.outs] if outs is None else list(outs)
        return struct(
            "fl_call",
            {
                "args": array(slots, "fl_arg"),
                "n_args": len(slots),
                "outs": array(results, "const fl_tensor*"),
                "n_outs": len(results),
                **fields,
            },
        )

    def _argument(self, slot: dict[str, Any], planned: bool) -> dict[str, Any]:
        """fl_arg of one slot in the driver's kernel_case form."""
        ((kind, value),) = slot.items()
        if kind == "none":
            return {"tag": header.FL_TAG_NONE}
        if kind == "tensor":
            return {"tag": header.FL_TAG_TENSOR, "value": {"tensor": self.tensor(value, planned=planned)}}
        if kind == "tensors":
            entries = [None if name is None else self.tensor(name, planned=planned) for name in value]
            listed = array(entries, "const fl_tensor*")
            return {"tag": header.FL_TAG_TENSOR_LIST, "count": len(value), "value": {"tensors": listed}}
        if kind == "string":
            return {"tag": header.FL_TAG_STRING, "count": len(value), "value": {"string": {"string": value}}}
        if kind in ("ints", "floats", "bools"):
            tag = {"ints": header.FL_TAG_INT_LIST, "floats": header.FL_TAG_FLOAT_LIST}.get(
                kind, header.FL_TAG_BOOL_LIST
            )
            ctype = {"ints": "int64_t", "floats": "double", "bools": "uint8_t"}[kind]
            return {"tag": tag, "count": len(value), "value": {kind: {"array": list(value), "ctype": ctype}}}
        if kind == "rng":
            return {"tag": header.FL_TAG_RNG, "value": {"rng": {"seed": value[0], "offset": value[1]}}}
        if kind == "float":
            return {"tag": header.FL_TAG_FLOAT, "value": {"f": value}}
        tags = {"bool": header.FL_TAG_BOOL, "int": header.FL_TAG_INT, "dtype": header.FL_TAG_DTYPE}
        return {"tag": tags[kind], "value": {"i": int(value)}}


def answer(result: CallResult) -> tuple[int, tuple[int, ...]]:
    """(status, what plan wrote) for comparing two plans; nothing where it failed."""
    return result.status, tuple(int(result.value[name]) for name in ANSWER) if result.ok else ()
