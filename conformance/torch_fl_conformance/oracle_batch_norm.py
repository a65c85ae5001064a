"""Expected values of batch norm and of what it gives back, with what their budgets need beside the value.

Channels are dimension 1. Inputs are [N, C, ...]; weight, bias and statistics are [C] or absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import widen

Values = Mapping[str, Array]


def _over(ndim: int) -> tuple[int, ...]:
    """The dimensions that a channel's elements lie in."""
    return (0, *range(2, ndim))


def _along(values: Array, ndim: int) -> Array:
    """[C] beside [N, C, ...]."""
    return values.reshape(1, -1, *[1] * (ndim - 2))


def statistics(w: Array, eps: float) -> tuple[Array, Array, Array]:
    """(mean, sum of squares about it, 1 / sqrt(variance + eps)) of each channel, [C]; the variance divides by n."""
    over, n = _over(w.ndim), w.dtype.type(_count(w))
    mean = np.sum(w, axis=over) / n
    centred = w - _along(mean, w.ndim)
    # the mean is itself rounded: subtracting the square of the mean distance removes what that adds
    squares = np.sum(centred * centred, axis=over) - np.square(np.sum(centred, axis=over)) / n
    return mean, squares, 1 / np.sqrt(squares / n + w.dtype.type(eps))


def _count(w: Array) -> int:
    """Elements of a channel."""
    return math.prod(w.shape[axis] for axis in _over(w.ndim))


def batch_norm(
    values: Values, training: bool, momentum: float, eps: float, dtypes: tuple[DType, DType], precision: Precision
) -> dict[str, Expected]:
    """All five outputs; those that are not wanted too, where they have a value."""
    w = widen(values["input"], dtypes[0])
    named = {name: widen(array, dtypes[1]).astype(w.dtype) for name, array in values.items() if name != "input"}
    n, kind = _count(w), w.dtype.type
    over, ndim = _over(w.ndim), w.ndim
    if training:
        mean, squares, invstd = statistics(w, eps)
        mean_abs = np.sum(np.abs(w), axis=over) / kind(n)
        counted = {"n": n, "h": precision.additions(n)}
    else:
        mean, squares = named["running_mean"], np.zeros(w.shape[1], w.dtype)
        invstd, mean_abs = 1 / np.sqrt(named["running_var"] + kind(eps)), np.abs(mean)
        counted = {"n": 0, "h": 0}
    gain, shift = (
        named.get(name, np.full(w.shape[1], number, w.dtype)) for name, number in (("weight", 1), ("bias", 0))
    )
    centred = w - _along(mean, ndim)
    wide = {"s": _along(1 / invstd, ndim), "mean_abs": _along(mean_abs, ndim), "dev": np.abs(centred)}
    wide |= {"weight": _along(gain, ndim), "bias": _along(shift, ndim)}
    unbiased = squares / kind(n - 1) if n > 1 else np.full_like(squares, np.nan)
    each = {**counted, "s": 1 / invstd, "mean_abs": mean_abs, "variance": unbiased}
    care = None if n else np.zeros(mean.shape, bool)  # statistics of nothing are unspecified
    out = centred * _along(invstd, ndim) * _along(gain, ndim) + _along(shift, ndim)
    answers = {
        "out": Expected(out, {**counted, **wide}),
        "save_mean": Expected(mean, each, care=care),
        "save_invstd": Expected(invstd, each, care=care),
    }
    for name, new in (("running_mean", mean), ("running_var", unbiased)):
        old = named.get(name, np.zeros_like(mean))
        factor = kind(momentum)
        updated = (1 - factor) * old + factor * new
        answers[f"{name}_out"] = Expected(updated, {**each, name: old}, care=care)
    return answers


def batch_norm_backward(
    values: Values, train: bool, eps: float, dtypes: tuple[DType, DType], precision: Precision
) -> dict[str, Expected]:
    """grad_input, grad_weight and grad_bias; those that are not wanted too."""
    g, w = widen(values["grad_out"], dtypes[0]), widen(values["input"], dtypes[0])
    own = ("grad_out", "input")
    named = {name: widen(array, dtypes[1]).astype(w.dtype) for name, array in values.items() if name not in own}
    n, kind, over, ndim = _count(w), w.dtype.type, _over(w.ndim), w.ndim
    mean = named["save_mean" if train else "running_mean"]
    invstd = named["save_invstd"] if train else 1 / np.sqrt(named["running_var"] + kind(eps))
    gain = named.get("weight", np.ones(w.shape[1], w.dtype))
    distance = w - _along(mean, ndim)
    normal = distance * _along(invstd, ndim)
    cross, cross_abs = np.sum(g * normal, axis=over), np.sum(np.abs(g * normal), axis=over)
    total, total_abs = np.sum(g, axis=over), np.sum(np.abs(g), axis=over)
    counted = {"n": n, "h": precision.additions(n)}
    nothing = np.zeros((), w.dtype)
    inner, wide = g, {"dev": nothing, "mean_abs": nothing, "cross": nothing}
    if train:  # running statistics do not depend on the input
        inner = g - _along(total / kind(n), ndim) - normal * _along(cross / kind(n), ndim)
        wide = {"dev": np.abs(distance), "mean_abs": _along(total_abs / kind(n), ndim)}
        wide["cross"] = _along(cross_abs / kind(n), ndim)
    wide |= {"s": _along(1 / invstd, ndim), "weight": _along(gain, ndim), "grad_out": g}
    return {
        "grad_input": Expected(inner * _along(invstd * gain, ndim), {**counted, **wide}),
        "grad_weight": Expected(cross, {**counted, "sum_abs": cross_abs, "s": 1 / invstd}),
        "grad_bias": Expected(total, {**counted, "sum_abs": total_abs}),
    }
