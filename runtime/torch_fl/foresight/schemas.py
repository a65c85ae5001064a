"""What torch's dispatcher and an operator's schema say of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload

#: The composite kernels that the dispatcher takes for a device that has no kernel, the first one there is.
COMPOSITES = (
    DispatchKey.CompositeExplicitAutogradNonFunctional,
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeImplicitAutograd,
)


def name_of(op: OpOverload) -> str:
    """As the dispatcher has it: "aten::add.Tensor"."""
    overload = op._schema.overload_name
    return f"{op._schema.name}.{overload}" if overload else str(op._schema.name)


def has_kernel(op: OpOverload, key: DispatchKey) -> bool:
    """Whether one is registered for the very key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(name_of(op), key.name)


@functools.cache
def composite(op: OpOverload) -> DispatchKey | None:
    """By which of torch's composite kernels the dispatcher serves the operator where a device has none."""
    return next((key for key in COMPOSITES if has_kernel(op, key)), None)


def is_written(argument: Any) -> bool:
    """Whether the operator changes it."""
    return argument.alias_info is not None and argument.alias_info.is_write


@functools.cache
def is_view(op: OpOverload) -> bool:
    """Whether a result is a view of an argument that the operator does not change."""
    return any(out.alias_info is not None and not out.alias_info.is_write for out in op._schema.returns)


def meets_devices(tensor: Tensor) -> bool:
    """Whether operators on it go to kernels of fl devices, whatever device it names."""
    return torch._C._dispatch_keys(tensor).has(DispatchKey.PrivateUse1)


def named(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the schema, with defaults."""
    given = {argument.name: argument.default_value for argument in op._schema.arguments if argument.has_default_value()}
    given.update({argument.name: value for argument, value in zip(op._schema.arguments, args, strict=False)})
    return {**given, **kwargs}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Of one argument."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


def without_numbers(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with tensors of one value for numbers that stand for tensors, which torch gives to modes as numbers and
    takes back for some operators only. Their dtypes are such that others promote with them as with the numbers."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]

    def tensor_for(argument: Any, value: Any) -> Any:
        if not isinstance(value, (bool, int, float, complex)) or str(argument.type) != "Tensor":
            return value
        dtype = torch.result_type(given[0], value) if given else None
        return torch.scalar_tensor(value, dtype=dtype)

    arguments = {argument.name: argument for argument in op._schema.arguments}
    return (
        tuple(tensor_for(argument, value) for argument, value in zip(op._schema.arguments, args, strict=False)),
        {name: tensor_for(arguments[name], value) for name, value in kwargs.items()},
    )


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The operator without out= or changed arguments: itself, or what takes the same arguments and changes none."""
    schema = op._schema
    if not schema.is_mutable:
        return op
    wanted = _types(argument for argument in schema.arguments if not argument.is_out)
    namespace, _, base = schema.name.partition("::")
    packets = getattr(torch.ops, namespace)
    for name in dict.fromkeys((base, base.removesuffix("_"))):
        packet = getattr(packets, name, None)
        for overload in packet.overloads() if packet is not None else ():
            other: OpOverload = getattr(packet, overload)
            if not other._schema.is_mutable and _types(other._schema.arguments) == wanted:
                return other
    return None


def _types(arguments: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in arguments]


def below_autograd() -> Any:
    """A context in which operators meet kernels of devices at once, as the bridge calls them."""
    return torch._C._AutoDispatchBelowADInplaceOrView()


def run_kernel(op: OpOverload, key: DispatchKey, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the kernel registered for the key gives."""
    kernel: Callable[..., Any] = op._op_dk
    return kernel(key, *args, **kwargs)
