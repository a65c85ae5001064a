"""Operators expressed by others: what the generic tier does for an operator that has no kernel and no composite form.

Torch's table of decompositions serves, and torch_fl.own_decompositions and recurrent_cells for what it lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Decomposition = Callable[..., Any]


def find(name: str, overload: str) -> tuple[Decomposition, bool] | None:
    """The decomposition of `name` ("aten::silu") and `overload` ("" for the default one), None where there is none.

    It takes the operator's arguments, defaults left out, and gives its results: tensors on the device of the arguments.
    The second value says whether it writes the arguments that the operator writes. Where it doesn't, it is that of the
    functional form: it takes no out=, and what it gives belongs into the arguments that are written.

    NotImplementedError says that it does not take these arguments, or that something is wrong with them, for which the
    CPU tier has torch's own words; nothing has changed then. Autograd is off while it runs, and no torch function mode
    of the user's sees what it calls.
    """
    namespace, _, base = name.partition("::")
    if namespace != "aten":
        return None
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    if not op._schema.is_mutable:
        decomposition = _table().get(op)
        return None if decomposition is None else (_leaving_errors(decomposition), False)
    functional = _functional(op)
    if functional is not None:
        return _leaving_errors(_table()[functional]), False
    decomposition = _table().get(op)
    return None if decomposition is None else (_below_modes(decomposition), True)


def _below_modes(decomposition: Decomposition) -> Decomposition:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return decomposition(*args, **kwargs)

    return run


def _leaving_errors(decomposition: Decomposition) -> Decomposition:
    """The decomposition with what it says against its arguments as NotImplementedError."""
    below = _below_modes(decomposition)

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return below(*args, **kwargs)
        except (Warning, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if str(error).startswith("fl:"):  # the device's own
                raise
            raise NotImplementedError(str(error)) from error

    return run


@functools.cache
def _table() -> dict[Any, Decomposition]:
    # Nobody sees it before it is whole: an import within lets other threads run, and can be interrupted.
    from torch._decomp import core_aten_decompositions, decomposition_table

    from torch_fl.own_decompositions import OWN
    from torch_fl.recurrent_cells import CELLS

    aten = torch.ops.aten
    left_out = (
        # Round coordinates to the dtype of the image, which in half precision is off by pixels.
        aten.grid_sampler_2d.default,
        aten.grid_sampler_2d.out,
        # Come back to the operator itself or to its functional form, and add nothing to it but a step.
        aten.uniform.default,
        aten.uniform.out,
        aten.uniform_.default,
        aten.normal_.default,
        aten.scatter_add_.default,
    )
    table = {**decomposition_table, **dict(core_aten_decompositions()), **OWN, **CELLS}
    for op in left_out:
        table.pop(op, None)
    return table


def _functional(op: Any) -> Any:
    """The overload that has a decomposition, the same arguments without out=, and writes none; else None."""
    arguments = op._schema.arguments
    outs = [argument.name for argument in arguments if argument.is_out]
    written = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
    if written not in (outs, ["self"]):
        return None
    wanted = _types(argument for argument in arguments if not argument.is_out)
    base = op._schema.name.removeprefix("aten::")
    for name in dict.fromkeys((base, base.removesuffix("_"))):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            other = getattr(packet, overload)
            if not other._schema.is_mutable and other in _table() and _types(other._schema.arguments) == wanted:
                return other
    return None


def _types(arguments: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in arguments]
