"""Operators on their way through the generic tier: what serves them there, and whether they may be abandoned midway."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

from torch_fl.foresight import schemas
from torch_fl.foresight.record import Tier

#: ((operator, dtypes, tier, reason), whether in the backward pass) -> calls
Calls = collections.Counter[tuple[tuple[str, tuple[torch.dtype, ...], Tier, "str | None"], bool]]


class Refused(NotImplementedError):
    """An operator within an attempt would leave the device, or would raise."""


@dataclass
class Attempt:
    """One operator on its way. counted: what it consists of; counts where the attempt is not abandoned."""

    op: OpOverload
    can_be_abandoned: bool
    abandoned: bool = False
    counted: Calls = field(default_factory=Calls)


def generic_kernel(op: OpOverload) -> DispatchKey | None:
    """The composite kernel that the generic tier takes; not always the dispatcher's own choice."""
    if schemas.has_kernel(op, DispatchKey.CompositeExplicitAutograd):
        return DispatchKey.CompositeExplicitAutograd
    # Those with a CPU kernel as well only hand their arguments to their own out= form.
    non_functional = DispatchKey.CompositeExplicitAutogradNonFunctional
    if schemas.has_kernel(op, non_functional) and not schemas.has_kernel(op, DispatchKey.CPU):
        return non_functional
    implicit = DispatchKey.CompositeImplicitAutograd
    return implicit if schemas.has_kernel(op, implicit) else None


def can_begin_again(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether nothing that the operator writes is something that it reads."""
    given = schemas.named(op, args, kwargs)
    arguments = op._schema.arguments
    if any(schemas.is_written(argument) and not argument.is_out for argument in arguments):
        return False
    read, written = [
        {
            tensor.untyped_storage()._cdata
            for argument in arguments
            if schemas.is_written(argument) is which
            for tensor in schemas.tensors_in(given.get(argument.name))
        }
        for which in (False, True)
    ]
    return not read & written
