"""Which operator of the registry an operator of torch is for the bridge, and which dtype row a call asks for.

That the lists below are complete is what tests hold against the kernels that the bridge has registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch_fl_spec.registry import Operator, Slot

from torch_fl import routing
from torch_fl.dtypes import SHORT_NAMES
from torch_fl.foresight import copies, schemas

aten = torch.ops.aten

#: Operators whose kernel in the bridge fills the row of another one.
ROW_OF: Mapping[str, str] = {
    **{f"aten::{name}.Scalar": f"aten::{name}.Tensor" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "aten::pow.Tensor_Scalar": "aten::pow.Tensor_Tensor",
    "aten::pow.Scalar": "aten::pow.Tensor_Tensor",
    "aten::remainder.Scalar_Tensor": "aten::remainder.Tensor",
    "aten::arange.start_out": "aten::arange.start_step",
    "aten::normal_": "aten::normal_functional",
}

#: Classes whose operands the bridge casts to the row's dtypes; of other operators they have to be of one row already.
_CASTS = ("pointwise", "reduction", "movement")

#: Arguments for which the registry's revision has no place: such calls step down.
_REFUSES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "aten::_softmax": lambda given: bool(given["half_to_float"]),
    "aten::_log_softmax": lambda given: bool(given["half_to_float"]),
    "aten::_softmax_backward_data": lambda given: given["input_dtype"] != given["output"].dtype,
    "aten::_log_softmax_backward_data": lambda given: given["input_dtype"] != given["output"].dtype,
}


@functools.cache
def operator_of(op: OpOverload) -> Operator | None:
    """The registry's operator by which the bridge serves it; None where it has none."""
    known = routing.newest_operators()
    functional = schemas.functional_form(op)
    for form in (op, functional):
        if (
            form is not None
            and (found := known.get(ROW_OF.get(schemas.name_of(form), schemas.name_of(form)))) is not None
        ):
            return found
    return None


def row_of(operator: Operator, given: Mapping[str, Any], outs: Sequence[torch.dtype]) -> tuple[str, ...] | None:
    """The dtype row that a call fills, short names; None where it fills none.

    given: arguments by name. outs: dtypes of what the functional form gives.
    """
    refuses = _REFUSES.get(operator.op)
    if refuses is not None and refuses(given):
        return None
    tensors = {slot: _values(operator, slot, given) for slot in operator.slots}
    row = tuple(_dtype(variable, operator, tensors, outs) for variable in operator.types)
    if row not in operator.rows and operator.outs[0].type in operator.types:
        row = tuple(SHORT_NAMES.get(outs[0], "none") for _ in operator.types)  # cast first, which is what dtype= means
    if row not in operator.rows:
        return None
    if operator.op_class not in _CASTS and any(
        _differ(operator, slot, row, values) for slot, values in tensors.items()
    ):
        return None
    return row


def casts_of(operator: Operator, given: Mapping[str, Any], row: tuple[str, ...]) -> list[tuple[Tensor, str]]:
    """Tensors on the device that the bridge casts before the call, and to what."""
    return [
        (tensor, wanted)
        for slot in operator.slots
        if slot.type is not None
        for tensor in _values(operator, slot, given)
        if isinstance(tensor, Tensor) and not _is_number(tensor)
        for wanted in (operator.dtype_of(slot.type, row),)
        if SHORT_NAMES.get(tensor.dtype) != wanted
    ]


def _values(operator: Operator, slot: Slot, given: Mapping[str, Any]) -> list[Any]:
    """Tensors and numbers of a slot."""
    value = given.get(routing.argument_of(operator, slot))
    if slot.kind in ("tensor", "tensor_list"):
        return [value] if isinstance(value, (int, float, complex)) else list(schemas.tensors_in(value))
    return []


def _dtype(variable: str, operator: Operator, tensors: Mapping[Slot, list[Any]], outs: Sequence[torch.dtype]) -> str:
    for out, dtype in zip(operator.outs, outs, strict=False):
        if out.type == variable:
            return SHORT_NAMES.get(dtype, "none")
    values = [value for slot, of_slot in tensors.items() if slot.type == variable for value in of_slot]
    if not values:
        return "none"
    _, promoted = elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    return SHORT_NAMES.get(promoted, "none")


def _differ(operator: Operator, slot: Slot, row: tuple[str, ...], values: list[Any]) -> bool:
    if slot.type is None:
        return False
    wanted = operator.dtype_of(slot.type, row)
    found = {SHORT_NAMES.get(value.dtype) for value in values if isinstance(value, Tensor)}
    is_index = slot.type not in operator.types  # one fixed dtype, to which the bridge casts the other integers
    return not found <= ({wanted, "i32"} if is_index else {wanted})


def _is_number(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dim() == 0


# ---- Kernels of the bridge that are no operator's --------------------------------------------------------------------

#: What the runtime does itself, without a kernel of a vendor, and does not count.
OWN = frozenset(
    f"aten::{name}"
    for name in (
        *("empty.memory_format", "empty_strided", "record_stream", "_local_scalar_dense"),
        *("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "is_set_to"),
        *("resize_", "_resize_output_", "set_", "set_.source_Storage", "set_.source_Storage_storage_offset"),
        *("set_.source_Tensor", "conj_physical_", "conj_physical.out"),
    )
)

#: Copies, by the names of destination and source.
COPIES: Mapping[str, tuple[str, str]] = {
    "aten::copy_": ("self", "src"),
    "aten::_copy_from": ("dst", "self"),
    "aten::_copy_from_and_resize": ("dst", "self"),
}


def _fill(self: Tensor, value: Any) -> Any:
    return aten.fill_.Scalar(torch.empty_like(self), value)


def _fill_from(self: Tensor, value: Tensor) -> Any:
    return self.copy_(value) if value.device == self.device else aten.fill_.Scalar(self, 0)


def _zero(self: Tensor) -> Any:
    return self if copies.moves_memory(self, self) else aten.fill_.Scalar(self, 0)


def _product(self: Tensor, dtype: torch.dtype | None = None) -> Any:
    return aten.prod.dim_int(self.reshape(-1), 0, False, dtype=dtype)


def _any(self: Tensor) -> Any:
    return aten.any.dim(self.reshape(-1), 0, False)


def _any_out(self: Tensor, out: Tensor) -> Any:
    return aten.any.out(self.reshape(-1), 0, False, out=out)


def _divide(self: Tensor, other: Tensor, rounding_mode: str | None) -> Any:
    return NotImplemented if rounding_mode is not None else aten.div.Tensor(self, other)


def _divide_in_place(self: Tensor, other: Tensor, rounding_mode: str | None) -> Any:
    return NotImplemented if rounding_mode is not None else aten.div_.Tensor(self, other)


def _divide_out(self: Tensor, other: Tensor, rounding_mode: str | None, out: Tensor) -> Any:
    return NotImplemented if rounding_mode is not None else aten.div.out(self, other, out=out)


def _dropout(input: Tensor, p: float, train: bool | None) -> Any:
    if train is not False and 0 < p < 1:
        return NotImplemented
    kept = train is False or p == 0
    mask = torch.empty_like(input, dtype=torch.bool, memory_format=torch.contiguous_format).fill_(kept)
    return (input.clone(), mask) if kept else (torch.zeros_like(input), mask)


def _normal(out: Tensor, mean: Any, std: Any, generator: Any) -> Any:
    if not isinstance(std, Tensor):
        return aten.normal_(out, 0, std, generator=generator).add_(mean)
    std.min()  # which must not be negative
    return aten.normal_(out, 0, 1, generator=generator).mul_(std).add_(mean)


def _normal_mean(mean: Any, std: Any, generator: Any = None) -> Any:
    like = mean if isinstance(mean, Tensor) else std
    return _normal(torch.empty_like(like, memory_format=torch.contiguous_format), mean, std, generator)


def _normal_both(mean: Tensor, std: Tensor, generator: Any = None) -> Any:
    sizes = torch.broadcast_shapes(mean.shape, std.shape)  # type: ignore[no-untyped-call]
    return _normal(mean.new_empty(sizes), mean, std, generator)


def _normal_out(mean: Any, std: Any, generator: Any = None, *, out: Tensor) -> Any:
    return _normal(out, mean, std, generator)


#: Kernels that hand the call to other operators, and what they call; NotImplemented: this call is served as its own.
FORWARDS: Mapping[str, Callable[..., Any]] = {
    "aten::fill.Scalar": _fill,
    "aten::fill_.Tensor": _fill_from,
    "aten::zero_": _zero,
    "aten::prod": _product,
    "aten::any": _any,
    "aten::any.all_out": _any_out,
    "aten::div.Tensor_mode": _divide,
    "aten::div_.Tensor_mode": _divide_in_place,
    "aten::div.out_mode": _divide_out,
    "aten::floor_divide": lambda self, other: aten.div.Tensor_mode(self, other, rounding_mode="floor"),
    "aten::floor_divide_.Tensor": lambda self, other: aten.div_.Tensor_mode(self, other, rounding_mode="floor"),
    "aten::floor_divide.out": lambda self, other, out: aten.div.out_mode(self, other, rounding_mode="floor", out=out),
    "aten::clamp_min": lambda self, min: aten.clamp(self, min),
    "aten::clamp_min_": lambda self, min: aten.clamp_(self, min),
    "aten::clamp_min.out": lambda self, min, out: aten.clamp.out(self, min, out=out),
    "aten::clamp_max": lambda self, max: aten.clamp(self, None, max),
    "aten::clamp_max_": lambda self, max: aten.clamp_(self, None, max),
    "aten::clamp_max.out": lambda self, max, out: aten.clamp.out(self, None, max, out=out),
    "aten::native_dropout": _dropout,
    "aten::normal.Tensor_float": _normal_mean,
    "aten::normal.float_Tensor": _normal_mean,
    "aten::normal.Tensor_Tensor": _normal_both,
    "aten::normal.Tensor_float_out": _normal_out,
    "aten::normal.float_Tensor_out": _normal_out,
    "aten::normal.Tensor_Tensor_out": _normal_out,
}
