"""For each operator of the registry a call that torch on the CPU can answer, too."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_fl.dtypes import TORCH_DTYPES
from torch_fl_spec.registry import Operator, Output, load_registry
from torch_fl_spec.vocabulary import FLOATS

from . import training_samples
from .numbers import indices, number, values

Dtype = torch.dtype
#: Arguments as torch.ops.aten.<operator> takes them; tensors are on the CPU.
Arguments = tuple[Any, ...]

#: Everything of the registry but what fills memory with random numbers, whose values no other device gives.
OPERATORS: dict[str, Operator] = {op.op: op for op in load_registry() if op.op_class != "random"}
ROWS = [(name, row) for name, op in OPERATORS.items() for row in op.rows]


def overload(name: str) -> Any:
    """aten::add.Tensor -> torch.ops.aten.add.Tensor."""
    packet, _, rest = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")


Make = Callable[[Mapping[str, Dtype]], Arguments]


def _one(**wishes: bool) -> Make:
    return lambda t: (values(t["T"], 4, 5, **wishes),)


def _two(*more: Any, positive: bool = False) -> Make:
    return lambda t: (values(t["T"], 4, 5), values(t["T"], 4, 5, seed=1, positive=positive), *more)


def _reduce(*more: Any) -> Make:
    return lambda t: (values(next(iter(t.values())), 3, 4, 5), *more)


def _convolution(t: Mapping[str, Dtype]) -> Arguments:
    dtype = t["T"]
    return values(dtype, 2, 4, 6, 7), values(dtype, 6, 2, 3, 2), values(dtype, 6), [2, 1], [1, 0], [1, 2], False, [0], 2


def _scatter_add(t: Mapping[str, Dtype]) -> Arguments:
    return values(t["T"], 4, 5), 1, indices(torch.int64, 5, 3, 4), values(t["T"], 4, 6, seed=1)


_MAKE: dict[str, Make] = {
    "aten::add.Tensor": _two(),
    "aten::sub.Tensor": _two(),
    "aten::mul.Tensor": _two(),
    "aten::div.Tensor": _two(positive=True),
    "aten::div.Tensor_mode": _two(positive=True),
    "aten::remainder.Tensor": _two(positive=True),
    "aten::pow.Tensor_Tensor": lambda t: (values(t["T"], 4, 5, positive=True), values(t["T"], 4, 5, positive=True) % 4),
    "aten::clamp": lambda t: (values(t["T"], 4, 5), number(t["T"], 1.5), number(t["T"], 3.25)),
    "aten::where.self": lambda t: (values(torch.bool, 4, 5), *_two()(t)),
    "aten::_to_copy": lambda t: (values(t["S"], 4, 5, positive=True),),
    "aten::fill.Scalar": lambda t: (values(t["T"], 4, 5), number(t["T"], 3.25)),
    "aten::sum.dim_IntList": _reduce([0, -1]),
    "aten::mean.dim": _reduce([0, -1]),
    "aten::amax": _reduce([0, -1]),
    "aten::amin": _reduce([0, -1]),
    "aten::argmax": lambda t: (torch.arange(24).view(4, 6).to(t["T"]), -1),
    "aten::prod.dim_int": _reduce(-2),
    "aten::any.dim": _reduce(-2),
    "aten::var.correction": _reduce([0, -1]),
    "aten::cumsum": _reduce(-2),
    "aten::mm": lambda t: (values(t["T"], 4, 5), values(t["T"], 5, 3)),
    "aten::bmm": lambda t: (values(t["T"], 2, 4, 5), values(t["T"], 2, 5, 3)),
    "aten::addmm": lambda t: (values(t["T"], 3), values(t["T"], 4, 5), values(t["T"], 5, 3)),
    "aten::convolution": _convolution,
    "aten::_softmax": lambda t: (values(t["T"], 3, 4, 5), -2, False),
    "aten::_log_softmax": lambda t: (values(t["T"], 3, 4, 5), -2, False),
    "aten::native_layer_norm": lambda t: (values(t["T"], 3, 4, 5), [4, 5], values(t["T"], 4, 5), None, 1e-5),
    "aten::cat": lambda t: ([values(t["T"], 2, 3), values(t["T"], 2, 0), values(t["T"], 2, 4)], -1),
    "aten::flip": lambda t: (values(t["T"], 3, 4, 5), [-1, 0]),
    "aten::constant_pad_nd": lambda t: (values(t["T"], 3, 4), [1, 2], number(t["T"], 3)),
    "aten::arange.start_step": lambda t: (number(t["T"], 2), number(t["T"], 20), number(t["T"], 3)),
    "aten::index_select": lambda t: (values(t["T"], 3, 4, 5), -2, indices(t["X"], 4, 6)),
    "aten::gather": lambda t: (values(t["T"], 4, 5), -1, indices(torch.int64, 5, 3, 6)),
    "aten::scatter_add": _scatter_add,
    "aten::embedding": lambda t: (values(t["T"], 7, 3), indices(t["X"], 7, 2, 5)),
    **training_samples.MAKE,
}

_KEYWORDS: dict[str, Callable[[Mapping[str, Dtype]], dict[str, Any]]] = {
    "aten::div.Tensor_mode": lambda t: {"rounding_mode": "floor"},
    "aten::add.Tensor": lambda t: {"alpha": number(t["T"], 1 if t["T"] is torch.bool else 2)},
    "aten::sub.Tensor": lambda t: {"alpha": 2},
    "aten::_to_copy": lambda t: {"dtype": t["D"]},
    "aten::sum.dim_IntList": lambda t: {"dtype": t["Tacc"]},
    "aten::prod.dim_int": lambda t: {"dtype": t["Tacc"]},
    "aten::cumsum": lambda t: {"dtype": t["Tacc"]},
    "aten::addmm": lambda t: {"beta": 2, "alpha": 3},
    "aten::arange.start_step": lambda t: {"dtype": t["T"]},
    **training_samples.KEYWORDS,
}

_POSITIVE = ("aten::log", "aten::sqrt", "aten::rsqrt", "aten::reciprocal")


def sample(name: str, row: Sequence[str]) -> tuple[Arguments, dict[str, Any]]:
    """Arguments and keywords of one call of the row."""
    operator = OPERATORS[name]
    types = {variable: TORCH_DTYPES[dtype] for variable, dtype in zip(operator.types, row, strict=True)}
    tensors = sum(slot.kind == "tensor" for slot in operator.slots)
    make = _MAKE.get(name) or (_one(positive=name in _POSITIVE) if tensors == 1 else _two())
    return make(types), _KEYWORDS[name](types) if name in _KEYWORDS else {}


def seed(name: str) -> int:
    """The same for a name on every run."""
    return zlib.crc32(name.encode())


def moved(value: Any, device: str) -> Any:
    """Arguments with their tensors on another device, strides kept."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(each, device) for each in value)
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    return value


#: Where torch's own CPU kernel is an ulp off what the registry admits, on some processors (MKL's square root).
CPU_IS_OFF = {"aten::sqrt": ("f32", "f64")}


def is_exact(operator: Operator, row: tuple[str, ...], out: str | None = None) -> bool:
    """Whether the registry admits one result only for an output of the row (None: for all), and torch's CPU kernel
    gives that one."""
    if row[0] in CPU_IS_OFF.get(operator.op, ()):
        return False
    return all(_is_exact(operator, row, each) for each in operator.outs if out in (None, each.name))


def _is_exact(operator: Operator, row: tuple[str, ...], out: Output) -> bool:
    if operator.dtype_of(out.type, row) not in FLOATS:
        return True
    budgets = operator.candidates(out.name, row, "ACCURATE")
    return bool(budgets) and all(budget.exact and budget.also is None for budget in budgets)
