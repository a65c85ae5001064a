"""Calls of the registry's operators, as the suite draws them, made with torch; torch on the CPU as a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch_fl_conformance.dtypes import Array, DType, to_bits
from torch_fl_conformance.problem import Problem

from .fake_device import FakeDevice

TORCH = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip
Slots = dict[str, Any]


def _batch_norm_backward(s: Slots, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    if not s["input"].numel():  # torch divides by zero, which ends the process
        return (s["input"], *[torch.zeros(s["input"].shape[1])] * 2)
    results: tuple[torch.Tensor, ...] = torch.ops.aten.native_batch_norm_backward(*s.values(), [True] * 3)
    return results


def _batch_norm(s: Slots, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """torch changes the running statistics in place, where the canonical form has outputs."""
    running = [None if s[name] is None else s[name].clone() for name in ("running_mean", "running_var")]
    about = (s["weight"], s["bias"], *running, s["training"], s["momentum"], s["eps"])
    if not s["input"].numel():  # torch refuses it
        return (s["input"], *[torch.zeros(s["input"].shape[1])] * 4)
    results = torch.ops.aten.native_batch_norm(s["input"], *about)
    return (*results, *(torch.empty(0) if value is None else value for value in running))


_CALLS: dict[str, Callable[[Slots, torch.dtype], Any]] = {
    "div.Tensor_mode": lambda s, d: torch.div(s["self"], s["other"], rounding_mode=s["rounding_mode"]),
    "gelu": lambda s, d: torch.nn.functional.gelu(s["self"], approximate=s["approximate"]),
    "_to_copy": lambda s, d: s["self"].to(d),
    "sum.dim_IntList": lambda s, d: torch.sum(s["self"], s["dims"], keepdim=True),
    "mean.dim": lambda s, d: torch.mean(s["self"], s["dims"], keepdim=True),
    "amax": lambda s, d: torch.amax(s["self"], s["dims"], keepdim=True),
    "amin": lambda s, d: torch.amin(s["self"], s["dims"], keepdim=True),
    "argmax": lambda s, d: torch.argmax(s["self"], s["dim"], keepdim=True),
    "prod.dim_int": lambda s, d: torch.prod(s["self"], s["dim"], keepdim=True),
    "any.dim": lambda s, d: torch.any(s["self"], s["dim"], keepdim=True),
    "var.correction": lambda s, d: torch.var(s["self"], s["dims"], correction=s["correction"], keepdim=True),
    "addmm": lambda s, d: torch.addmm(s["self"], s["mat1"], s["mat2"], beta=s["beta"], alpha=s["alpha"]),
    "add.Tensor": lambda s, d: torch.add(s["self"], s["other"], alpha=s["alpha"]),
    "sub.Tensor": lambda s, d: torch.sub(s["self"], s["other"], alpha=s["alpha"]),
    "maximum": lambda s, d: torch.maximum(s["self"], s["other"]),
    "minimum": lambda s, d: torch.minimum(s["self"], s["other"]),
    "where.self": lambda s, d: torch.where(s["condition"], s["self"], s["other"]),
    "scatter_add": lambda s, d: torch.scatter_add(s["self"], s["dim"], s["index"], s["src"]),
    "pow.Tensor_Tensor": lambda s, d: torch.pow(s["self"], s["exponent"]),
    "_softmax": lambda s, d: torch.softmax(s["self"], s["dim"]),
    "_log_softmax": lambda s, d: torch.log_softmax(s["self"], s["dim"]),
    "convolution_backward": lambda s, d: torch.ops.aten.convolution_backward(
        *(s[name] for name in ("grad_output", "input", "weight")),
        [s["grad_output"].shape[1]],
        *list(s.values())[3:],
        [True, True, True],
    ),
    "addcmul": lambda s, d: torch.addcmul(s["self"], s["tensor1"], s["tensor2"], value=s["value"]),
    "addcdiv": lambda s, d: torch.addcdiv(s["self"], s["tensor1"], s["tensor2"], value=s["value"]),
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "_softmax_backward_data": lambda s, d: torch.ops.aten._softmax_backward_data(*s.values(), d),
    "_log_softmax_backward_data": lambda s, d: torch.ops.aten._log_softmax_backward_data(*s.values(), d),
    "cat": lambda s, d: torch.cat(s["tensors"], s["dim"]),
}


def _pooled(problem: Problem, slots: Slots) -> Any:
    """A pooling operator, with ceil_mode where the outputs are as many as that gives, in its place among the slots."""
    operator, out = problem.operator, problem.structure.outs[0]
    function = getattr(torch.ops.aten, operator.short_name)
    if "kernel_size" not in slots:
        return function(slots["self"], out.shape[-2:]) if out.name == "out" else function(*slots.values())
    narrow = slots["grad_output"].shape if "grad_output" in slots else out.shape
    ceil_mode = any(
        count > (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
        for count, size, window, stride, padding, dilation in zip(
            narrow[-2:], slots["self"].shape[-2:], slots["kernel_size"], slots["stride"], slots["padding"],
            slots.get("dilation", (1, 1)), strict=True,
        )
    )  # fmt: skip
    before = list(slots).index("dilation" if "dilation" in slots else "padding") + 1
    values = list(slots.values())
    return function(*values[:before], ceil_mode, *values[before:])


def call(problem: Problem, tensors: Mapping[str, torch.Tensor], device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """What the ATen operator gives, in dtype and shape of the problem's outputs. tensors: its inputs, on `device`."""
    structure, operator = problem.structure, problem.operator
    dtype = TORCH[structure.outs[0].dtype.name]
    slots: Slots = {}
    for slot, arg in zip(operator.slots, structure.args, strict=True):
        value = _value(arg, tensors)
        if slot.scalar and not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=TORCH[problem.claim.dtypes[0]], device=device)
        slots[slot.name] = value
    if operator.short_name == "fill.Scalar":
        result = torch.empty(structure.outs[0].shape, dtype=dtype, device=device).fill_(slots["value"])
    elif operator.short_name == "arange.start_step":
        result = torch.arange(*slots.values(), dtype=dtype, device=device)
    elif operator.op_class == "pooling":
        result = _pooled(problem, slots)
    elif operator.short_name in _CALLS:
        result = _CALLS[operator.short_name](slots, dtype)
    else:
        name, _, overload = operator.short_name.partition(".")
        result = getattr(getattr(torch.ops.aten, name), overload or "default")(*slots.values())
    results = result if isinstance(result, tuple) else (result,)
    return tuple(
        (value[:0] if out.shape == (0,) else value).to(TORCH[out.dtype.name]).reshape(out.shape)
        for value, out in zip(results, structure.outs, strict=True)
    )


def inputs(problem: Problem, elements: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Tensors on the CPU with these elements, but for what torch raises on where the interface leaves results open."""
    tensors = {}
    for tensor in problem.structure.inputs:
        made = to_torch(elements[tensor.name], tensor.dtype)
        if tensor.draw is not None and tensor.draw.domain == "index":
            inside = made % tensor.draw.bound
            ignored = problem.structure.params.get("ignore_index")
            made = inside if ignored is None else torch.where(made == ignored, made, inside)
        if tensor.draw is not None and tensor.draw.domain == "nonzero" and not tensor.dtype.is_float:
            made = torch.where(made == 0, 1, made)
        tensors[tensor.name] = made
    return tensors


def _value(arg: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    ((kind, value),) = arg.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "tensors":
        return [tensors[entry] for entry in value]
    if kind == "float":
        return float.fromhex(value)
    return None if kind == "none" else value


class TorchDevice(FakeDevice):
    """Runs the ATen operator of the registry entry."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        problem = self.problem
        assert problem is not None
        results = call(problem, inputs(problem, operands))
        return {
            out.name: from_torch(value, out.dtype) for out, value in zip(problem.structure.outs, results, strict=True)
        }


def to_torch(values: Array, dtype: DType) -> torch.Tensor:
    """A tensor with these logical values."""
    if dtype.name == "bf16":
        return torch.from_numpy(to_bits(values, dtype).astype(np.int32).astype(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(values, dtype.logical))


def from_torch(value: torch.Tensor, dtype: DType) -> Array:
    """Storage words of a tensor."""
    value = value.contiguous()
    if dtype.name == "bf16":
        return np.asarray(value.view(torch.int16).numpy().view(np.uint16))
    return to_bits(value.numpy(), dtype)
