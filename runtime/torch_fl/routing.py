"""Which kernel serves which call: gives the operator registry to the bridge, and shows and steers what it does.

The registry speaks of canonical operators, torch of schemas. What differs between the two is data, below: the names of
arguments, what becomes of a value on its way to a kernel, and which arguments need no slot.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch_fl_spec.abi import DTYPES
from torch_fl_spec.registry import Operator, Slot, load_registry

from torch_fl.compiled import Bridge
from torch_fl.compiled import bridge as _bridge

#: Slot kinds and rules by their numbers in bridge/core/operator.h.
KINDS = ("tensor", "tensor_list", "scalar", "int", "float", "bool", "int_list", "string", "dtype", "rng")
RULES = ("as is", "dim", "dims", "spatial", "window", "pad", "expand")

#: Slot name -> ATen's name of the argument, where they differ; for one operator as "op slot".
ARGUMENTS: Mapping[str, str] = {"dims": "dim", "rng": "generator", "aten::flip dims": "dims"}

#: Slot name -> what the host does to its value; for one operator or class as "op slot" and "class slot".
SLOT_RULES: Mapping[str, str] = {
    "dim": "dim",
    "dims": "dims",
    "stride": "spatial",
    "padding": "spatial",
    "dilation": "spatial",
    "output_padding": "spatial",
    **dict.fromkeys((f"pooling {name}" for name in ("kernel_size", "stride", "padding", "dilation")), "window"),
    "pad": "pad",
    "aten::addmm self": "expand",
}

#: "op slot" -> what None stands for, where the slot takes a number and ATen's argument may be absent.
ABSENT: Mapping[str, float] = {"aten::var.correction correction": 1.0}

#: ATen arguments without a slot that may have any value: they shape the outputs, which is the host's work, or they
#: speak of the backward pass or of memory.
FREE_ARGUMENTS = (
    *("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "keepdim"),
    *("sparse_grad", "padding_idx", "scale_grad_by_freq", "sparse"),
    *("ceil_mode", "output_size"),
)

#: What torch itself composes of others, whose kernels end in the same row; a kernel of its own would only shadow that.
COMPOSED = ("aten::_to_copy",)

#: What the user can wish for, process-wide. Tiers: native, generic, cpu. admit_fast: kernels of tier FAST (for matrix
#: products of float32 alone: torch.set_float32_matmul_precision). deterministic: only kernels that give equal bits from
#: run to run (torch.use_deterministic_algorithms asks for the same).
Wish = Literal["native", "generic", "cpu", "admit_fast", "deterministic"]

#: What is counted of each operator. The bridge leaves out what cannot happen to one outside the registry.
_COUNTED = ("native", "relayout", "generic", "cpu", "errors", "bytes_moved", "shape_hits", "shape_misses")

_FIXED, _NO_TYPE = 0x80, 0xFF
_log = logging.getLogger("torch_fl.routing")


def add_operators(bridge: Bridge, operators: Iterable[Operator] | None = None) -> None:
    """Give the newest revision of each operator to the bridge, and torch a kernel for those that have none yet.

    Called once, before the first device is added.
    """
    newest = newest_operators() if operators is None else _newest(operators)
    for operator in newest.values():
        bridge.add_operator(
            operator.op,
            operator.op_class,
            operator.revision,
            len(operator.types),
            [row_number(row) for row in operator.rows],
            [_slot(operator, slot) for slot in operator.slots],
            [_type(operator, out.type) for out in operator.outs],
            list(FREE_ARGUMENTS),
        )
    for name in newest.keys() - set(COMPOSED):
        reason = bridge.add_general_kernel(name, False)
        if reason:
            _log.info("%s: no kernel is registered with torch: %s", name, reason)


@functools.cache
def newest_operators() -> Mapping[str, Operator]:
    """The newest revision of each operator of the registry by its name: what the bridge knows."""
    return _newest(load_registry())


def _newest(operators: Iterable[Operator]) -> dict[str, Operator]:
    newest: dict[str, Operator] = {}
    for operator in operators:
        known = newest.get(operator.op)
        if known is None or known.revision < operator.revision:
            newest[operator.op] = operator
    return newest


def row_number(row: tuple[str, ...]) -> int:
    """A dtype row, short names in the order of the type variables, as the bridge has it."""
    return sum(DTYPES[dtype] << (8 * variable) for variable, dtype in enumerate(row))


def _type(operator: Operator, name: str | None) -> int:
    if name is None:
        return _NO_TYPE
    if name in operator.types:
        return operator.types.index(name)
    return _FIXED | DTYPES[name]


def argument_of(operator: Operator, slot: Slot) -> str:
    """The name of the ATen argument that fills the slot."""
    return ARGUMENTS.get(f"{operator.op} {slot.name}", ARGUMENTS.get(slot.name, slot.name))


def _slot(operator: Operator, slot: Slot) -> tuple[Any, ...]:
    own = f"{operator.op} {slot.name}"
    return (
        slot.name,
        argument_of(operator, slot),
        KINDS.index(slot.kind),
        RULES.index(_rule(own, f"{operator.op_class} {slot.name}", slot.name)),
        _type(operator, slot.type),
        slot.optional,
        slot.scalar,
        slot.name in operator.inplace,
        list(slot.choices),
        ABSENT.get(own, 0.0),
    )


def _rule(*names: str) -> str:
    return next((SLOT_RULES[name] for name in names if name in SLOT_RULES), "as is")


# ---- What it did -----------------------------------------------------------------------------------------------------


def counters() -> dict[str, dict[str, dict[str, int]]]:
    """Device -> operator -> what became of its calls since the process began or reset_counters().

    native: served by a kernel of the device; relayout: of these, after operands had been copied into a layout that the
    kernel takes; generic, cpu: computed one and two tiers further down; errors: raised, since no tier serves it;
    bytes_moved: between device and host, by the CPU tier; shape_hits, shape_misses: of the general lane, whether the
    outputs' sizes were known. Every operator has all of these; those that were never called are left out.
    """
    bridge = _bridge()
    found: dict[str, dict[str, dict[str, int]]] = {}
    for device in _usable(bridge):
        found[f"fl:{device}"] = bridge.counters(device)
    for device, name, *values in bridge.fallback_counters():
        counted = dict(zip(("generic", "cpu", "errors", "bytes_moved"), values, strict=True))
        if any(values):
            found.setdefault(f"fl:{device}", {})[name] = {**dict.fromkeys(_COUNTED, 0), **counted}
    return found


def reset_counters() -> None:
    """Set all counters to 0, and let the next step down of each operator warn again."""
    bridge = _bridge()
    for device in _usable(bridge):
        bridge.reset_counters(device)
    bridge.forget_steps_down()


def supports(
    operator: str | torch._ops.OpOverload,
    dtypes: torch.dtype | Sequence[torch.dtype],
    device: int | str | torch.device = 0,
) -> bool:
    """Whether a kernel of the device claims the dtypes for an operator, and the wishes admit it.

    operator: of torch, by name ("aten::mm", "mm", "add_.Tensor") or itself (torch.ops.aten.mm.default). In-place, out=
    and number forms ask for the operator of the registry whose kernels serve them. dtypes: a row, one per type variable
    of the registry's entry, or the first of them alone: does any row with it have a kernel?

    False, too, for an operator that the registry hasn't got: no vendor can have a kernel for it. ValueError for what is
    no operator of torch, and for a row of another length. What tier serves a call without a native kernel depends on
    its arguments: torch_fl.coverage() tells it of a model.
    """
    from torch_fl.dtypes import SHORT_NAMES
    from torch_fl.foresight.rows import operator_of

    found = operator_of(_overload(operator))
    if found is None:
        return False
    index = device_index(device)
    if isinstance(dtypes, torch.dtype):
        first = SHORT_NAMES.get(dtypes)
        return any(serves(index, found.op, row) for row in found.rows if row[0] == first)
    if len(dtypes) != len(found.types):
        raise ValueError(f"{found.op} takes {len(found.types)} dtypes ({', '.join(found.types)}), not {len(dtypes)}")
    if not all(dtype in SHORT_NAMES for dtype in dtypes):
        return False
    return serves(index, found.op, tuple(SHORT_NAMES[dtype] for dtype in dtypes))


def serves(device: int, operator: str, row: tuple[str, ...]) -> bool:
    """Whether a kernel of the device claims a dtype row of the registry, and native kernels are wished for at all."""
    bridge = _bridge()
    return bridge.policy("native") and bridge.claims(device, operator, row_number(row))


def _overload(operator: str | torch._ops.OpOverload) -> torch._ops.OpOverload:
    if isinstance(operator, torch._ops.OpOverload):
        return operator
    base, _, overload = operator.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"{operator} is no operator of this torch; names look like aten::mm or aten::add.Tensor")
    return found


def device_index(device: int | str | torch.device) -> int:
    """N of "fl:N"; -1, the current one, of "fl". ValueError for a device of another type."""
    if isinstance(device, int):
        return device
    wanted = torch.device(device)
    if wanted.type != "fl":
        raise ValueError(f"{wanted} is no fl device: name fl:0, fl:1, ...")
    return -1 if wanted.index is None else wanted.index


# ---- What it should do -----------------------------------------------------------------------------------------------


def wish(name: Wish) -> bool:
    """What holds now."""
    return _bridge().policy(name)


def set_wish(name: Wish, value: bool) -> None:
    """Change it for all threads, from the next call on."""
    _bridge().set_policy(name, value)


@contextlib.contextmanager
def wishes(
    *,
    native: bool | None = None,
    generic: bool | None = None,
    cpu: bool | None = None,
    admit_fast: bool | None = None,
    deterministic: bool | None = None,
) -> Iterator[None]:
    """Change some for a block, and for all threads; None leaves one as it is.

    `with wishes(generic=False, cpu=False): ...` lets native kernels serve alone. TypeError, with nothing changed, for
    what is not True or False.
    """
    asked: dict[Wish, bool | None] = {
        "native": native,
        "generic": generic,
        "cpu": cpu,
        "admit_fast": admit_fast,
        "deterministic": deterministic,
    }
    wanted = {name: value for name, value in asked.items() if value is not None}
    for name, value in wanted.items():
        if not isinstance(value, bool):
            raise TypeError(f"wishes({name}={value!r}): takes True or False")
    before = {name: wish(name) for name in wanted}
    try:
        for name, value in wanted.items():
            set_wish(name, value)
        yield
    finally:
        for name, value in before.items():
            set_wish(name, value)


def disable(operator: str, device: int | str | torch.device | None = None, disabled: bool = True) -> None:
    """Let calls of the operator step down on a device, or on all: for whoever distrusts one kernel."""
    bridge = _bridge()
    for index in _usable(bridge) if device is None else [device_index(device)]:
        bridge.disable(index, operator, disabled)


def _usable(bridge: Bridge) -> list[int]:
    usable = []
    for device in range(bridge.device_count()):
        with contextlib.suppress(RuntimeError):
            bridge.device_info(device)
            usable.append(device)
    return usable
