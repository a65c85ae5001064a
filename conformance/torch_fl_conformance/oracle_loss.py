"""Expected values of nll_loss and of what it gives back, with what their budgets need beside the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import wide_type, widen


@dataclass(frozen=True)
class Named:
    """What targets name. All have the shape of the targets, or none where there is no batch.

    at: the class, 0 where the target does not count; counts: whether it does; astray: whether it is no class and not
    to be ignored, so that what it takes part in is unspecified; gain: its weight in the oracle's type, 0 likewise.
    """

    at: Array
    counts: Array
    astray: Array
    gain: Array

    @classmethod
    def of(cls, target: Array, weight: Array | None, classes: int, ignore_index: int, dtype: DType) -> Named:
        """weight: [classes] or None; dtype: its type."""
        wanted, inside = target != ignore_index, (target >= 0) & (target < classes)
        counts = np.asarray(wanted & inside)
        at = np.where(counts, target, 0)
        kind = wide_type(dtype)
        gain = np.ones(at.shape, kind) if weight is None else widen(weight, dtype)[at]
        return cls(at, counts, np.asarray(wanted & ~inside), np.where(counts, gain, kind(0)))


def _product(a: Array, b: Array, dtype: DType, is_result: bool) -> Array:
    """a * b. Where that is the result itself f64 is multiplied as f64: long double would be rounded a second time."""
    if is_result and dtype.name == "f64":
        return np.asarray(a.astype(np.float64) * b.astype(np.float64)).astype(a.dtype)
    return np.asarray(a * b)


def nll_loss(
    x: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    dtype: DType,
    precision: Precision,
) -> Mapping[str, Expected]:
    """output and total_weight; reduction as in the registry's notes."""
    w = widen(x, dtype)
    named = Named.of(target, weight, w.shape[-1], ignore_index, dtype)
    taken = np.take_along_axis(w, named.at[..., None], -1)[..., 0]
    losses = np.where(named.counts, -_product(taken, named.gain, dtype, reduction == 0), 0)
    if w.ndim == 2 and reduction == 0:
        whole = np.zeros((), w.dtype)
        nothing = {"n": 1, "h": 0, "sum_abs": whole}
        return {"output": Expected(losses, nothing, care=~named.astray), "total_weight": Expected(whole, nothing)}
    total = np.asarray(np.sum(named.gain))
    divisor = total if reduction == 1 else w.dtype.type(1)
    n = target.size
    counted = {"n": n, "h": precision.additions(n)}
    care = np.asarray(~np.any(named.astray))
    return {
        "output": Expected(
            np.asarray(np.sum(losses) / divisor),
            {**counted, "sum_abs": np.sum(np.abs(losses)) / np.abs(divisor)},
            care=care,
        ),
        "total_weight": Expected(total, {**counted, "sum_abs": np.sum(np.abs(named.gain))}, care=care),
    }


def nll_loss_backward(
    grad: Array,
    shape: tuple[int, ...],
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
    dtype: DType,
) -> Expected:
    """grad_input of the shape of self: zero but at the targets that count."""
    named = Named.of(target, weight, shape[-1], ignore_index, dtype)
    given = -_product(named.gain, widen(grad, dtype), dtype, reduction != 1)
    if reduction == 1:
        given = given / widen(total_weight, dtype)
    value, gain = np.zeros(shape, given.dtype), np.zeros(shape, given.dtype)
    np.put_along_axis(value, named.at[..., None], np.where(named.counts, given, 0)[..., None], -1)
    np.put_along_axis(gain, named.at[..., None], named.gain[..., None], -1)
    return Expected(value, {"gain": gain}, care=np.broadcast_to(~named.astray[..., None], shape))
