"""Operators expressed by others: what the generic tier does for an operator that has no kernel and no composite form.

Torch's own table of core decompositions serves; what it lacks, or has in a form that suits no device, stands below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Decomposition = Callable[..., Any]


def find(name: str, overload: str) -> Decomposition | None:
    """The decomposition of `name` ("aten::silu") and `overload` ("" for the default one), None where there is none.

    It takes the operator's arguments, defaults left out, and gives its results: tensors on the device of the arguments.
    Autograd is off while it runs, and no torch function mode of the user's sees what it calls.
    """
    namespace, _, operator = name.partition("::")
    if namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, operator)
    op = getattr(packet, overload or "default")
    decomposition = _table().get(op)
    if decomposition is None:
        return None

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return decomposition(*args, **kwargs)

    return run


def _table() -> dict[Any, Decomposition]:
    if not _cached:
        from torch._decomp import core_aten_decompositions

        _cached.update(core_aten_decompositions())
    return _cached


_cached: dict[Any, Decomposition] = {}
