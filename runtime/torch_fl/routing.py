"""Which kernel serves which call: gives the operator registry to the bridge, and shows and steers what it does.

The registry speaks of canonical operators, torch of schemas. What differs between the two is data, below: the names of
arguments, what becomes of a value on its way to a kernel, and which arguments need no slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from torch_fl_spec.abi import DTYPES
from torch_fl_spec.registry import Operator, Slot, load_registry

#: Slot kinds and rules by their numbers in bridge/core/operator.h.
KINDS = ("tensor", "tensor_list", "scalar", "int", "float", "bool", "int_list", "string", "dtype", "rng")
RULES = ("as is", "dim", "dims", "spatial", "pad", "expand")

#: Slot name -> ATen's name of the argument, where they differ; for one operator as "op slot".
ARGUMENTS: Mapping[str, str] = {"dims": "dim", "rng": "generator", "aten::flip dims": "dims"}

#: Slot name -> what the host does to its value; for one operator as "op slot".
SLOT_RULES: Mapping[str, str] = {
    "dim": "dim",
    "dims": "dims",
    "kernel_size": "spatial",
    "stride": "spatial",
    "padding": "spatial",
    "dilation": "spatial",
    "output_padding": "spatial",
    "pad": "pad",
    "aten::addmm self": "expand",
}

#: ATen arguments without a slot that may have any value: they shape the outputs, which is the host's work, or they
#: speak of the backward pass or of memory.
FREE_ARGUMENTS = (
    *("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "keepdim"),
    *("sparse_grad", "padding_idx", "scale_grad_by_freq", "sparse"),
)

_VARIABLES_END, _FIXED, _NO_TYPE = 8, 0x80, 0xFF


class Bridge(Protocol):
    """What routing needs of the compiled bridge; bridge/module.cpp binds it."""

    def add_operator(
        self,
        name: str,
        op_class: str,
        revision: int,
        n_types: int,
        rows: list[int],
        slots: list[tuple[Any, ...]],
        outs: list[int],
        free_arguments: list[str],
    ) -> int: ...


def add_operators(bridge: Bridge, operators: Iterable[Operator] | None = None) -> None:
    """Give the newest revision of each operator to the bridge; called once, before the first device is added."""
    newest: dict[str, Operator] = {}
    for operator in load_registry() if operators is None else operators:
        known = newest.get(operator.op)
        if known is None or known.revision < operator.revision:
            newest[operator.op] = operator
    for operator in newest.values():
        bridge.add_operator(
            operator.op,
            operator.op_class,
            operator.revision,
            len(operator.types),
            [_row(row) for row in operator.rows],
            [_slot(operator, slot) for slot in operator.slots],
            [_type(operator, out.type) for out in operator.outs],
            list(FREE_ARGUMENTS),
        )


def _row(row: tuple[str, ...]) -> int:
    return sum(DTYPES[dtype] << (8 * variable) for variable, dtype in enumerate(row))


def _type(operator: Operator, name: str | None) -> int:
    if name is None:
        return _NO_TYPE
    if name in operator.types:
        return operator.types.index(name)
    return _FIXED | DTYPES[name]


def _slot(operator: Operator, slot: Slot) -> tuple[Any, ...]:
    own = f"{operator.op} {slot.name}"
    return (
        slot.name,
        ARGUMENTS.get(own, ARGUMENTS.get(slot.name, slot.name)),
        KINDS.index(slot.kind),
        RULES.index(SLOT_RULES.get(own, SLOT_RULES.get(slot.name, "as is"))),
        _type(operator, slot.type),
        slot.optional,
        slot.scalar,
        slot.name in operator.inplace,
        list(slot.choices),
    )
