"""torch on the CPU as a device: an honest implementation, not ours, in float32 and half types, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch_fl_conformance.dtypes import Array, DType, to_bits
from torch_fl_spec.registry import load_registry

from .fake_device import FakeDevice, judge_operator

_TORCH = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip
_Slots = dict[str, Any]
_CALLS: dict[str, Callable[[_Slots, torch.dtype], Any]] = {
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
    "cat": lambda s, d: torch.cat(s["tensors"], s["dim"]),
}


class TorchDevice(FakeDevice):
    """Runs the ATen operator of the registry entry."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        problem = self.problem
        assert problem is not None
        structure, operator = problem.structure, problem.operator
        dtypes = {tensor.name: tensor.dtype for tensor in structure.inputs}
        tensors = {name: to_torch(operands[name], dtype) for name, dtype in dtypes.items()}
        for tensor in structure.inputs:
            if tensor.draw is not None and tensor.draw.domain == "index":  # torch raises where we leave results open
                tensors[tensor.name] = tensors[tensor.name] % tensor.draw.bound
            if tensor.draw is not None and tensor.draw.domain == "nonzero" and not tensor.dtype.is_float:
                tensors[tensor.name] = torch.where(tensors[tensor.name] == 0, 1, tensors[tensor.name])
        slots: _Slots = {}
        for slot, arg in zip(operator.slots, structure.args, strict=True):
            value = self._value(arg, tensors)
            is_number = slot.scalar and not isinstance(value, torch.Tensor)
            slots[slot.name] = torch.tensor(value, dtype=_TORCH[problem.claim.dtypes[0]]) if is_number else value
        out = structure.outs[0]
        if operator.short_name in _CALLS:
            result = _CALLS[operator.short_name](slots, _TORCH[out.dtype.name])
        else:
            name, _, overload = operator.short_name.partition(".")
            result = getattr(getattr(torch.ops.aten, name), overload or "default")(*slots.values())
        results = result if isinstance(result, tuple) else (result,)
        words = {}
        for tensor, value in zip(structure.outs, results, strict=True):
            words[tensor.name] = from_torch(value.to(_TORCH[tensor.dtype.name]).reshape(tensor.shape), tensor.dtype)
        return words

    @staticmethod
    def _value(arg: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> Any:
        ((kind, value),) = arg.items()
        if kind == "tensor":
            return tensors[value]
        if kind == "tensors":
            return [tensors[entry] for entry in value]
        if kind == "float":
            return float.fromhex(value)
        return None if kind == "none" else value


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


# torch's CPU kernels that do not keep the registry's bounds, and why; the budgets are meant so
_DEPARTURES = {
    "_softmax": ("f16", "bf16"),  # exponentials and sums rounded to half along outer dims
    "_log_softmax": ("f16", "bf16"),
    "native_layer_norm": ("f16", "bf16"),  # mean and rstd are computed, then kept, in half
    "add.Tensor": ("f16", "bf16"),  # alpha * other is rounded to half
    "sub.Tensor": ("f16", "bf16"),
    "rsqrt": ("f16", "bf16"),  # 1 / half(sqrt)
    "prod.dim_int": ("f16", "bf16"),  # every product is rounded to half
    "erf": ("f16", "bf16"),  # subnormal arguments give zero
    "gelu": ("bf16",),
    "mm": ("bf16",),  # NaN where an infinity is split into two parts
    "bmm": ("bf16",),
    "addmm": ("bf16",),
    "convolution": ("f16", "bf16"),  # sums in half; subnormals flushed
    "div.Tensor_mode": ("bf16", "f16"),  # quotient and remainder are rounded to half on the way
    "sqrt": ("f32", "f64"),  # within one unit, not correctly rounded
    "remainder.Tensor": ("f32", "f64", "bf16"),  # NaN for quotients beyond 2^63
}
_BOUNDED = [operator for operator in load_registry() if any(not budget.exact for budget in operator.budgets)]
_ROWS = [
    pytest.param(operator.short_name, dtypes, id=f"{operator.short_name}-{','.join(dtypes)}")
    for operator in [*_BOUNDED, *(load_registry().operators[f"aten::{name}", 1] for name in ("mul.Tensor", "amax"))]
    for dtypes in operator.rows
    if operator.op_class != "random" and operator.short_name != "arange.start_step"
    and dtypes[0] in ("f32", "f16", "bf16", "f64")
    and dtypes[0] not in _DEPARTURES.get(operator.short_name, ())
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtypes"), _ROWS)
def test_torch_passes(name: str, dtypes: tuple[str, ...]) -> None:
    """No budget rejects what torch computes."""
    judge_operator(TorchDevice(), name, dtypes, seed=0)
