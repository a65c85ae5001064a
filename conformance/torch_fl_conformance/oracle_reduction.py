"""Expected values of reductions, scans and normalisations, with what their budgets need beside the value.

Sums run in float64 for types up to f32 and in long double for f64: numpy adds pairwise, so the error is
log2(n) * 2^-53 (2^-64) of sum |x|, far below T / 64. Integer sums wrap mod 2^64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import wide_type, widen, wrap


def _counted(x: Array, axes: tuple[int, ...], precision: Precision) -> dict[str, Any]:
    n = math.prod(x.shape[axis] for axis in axes)
    total = np.sum(np.abs(x), axis=axes, keepdims=True)
    return {"n": n, "h": precision.additions(n), "sum_abs": total, "mean_abs": total / max(n, 1)}


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    n = math.prod(x.shape[axis] for axis in axes)
    return np.asarray(np.sum(x, axis=axes, keepdims=True) / x.dtype.type(n))


def sum_(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Sum over dims, kept as size one."""
    w = widen(x, dtype)
    if not dtype.is_float:
        return Expected(wrap(np.asarray(np.sum(w, axis=dims, keepdims=True, dtype=np.int64)), output))
    return Expected(np.asarray(np.sum(w, axis=dims, keepdims=True)), _counted(w, dims, precision))


def mean(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Mean over dims; NaN of no elements."""
    w = widen(x, dtype)
    elements = _counted(w, dims, precision)
    total = np.sum(w, axis=dims, keepdims=True)
    return Expected(np.asarray(total / w.dtype.type(elements["n"])), elements)


def amax(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Largest element; NaN wins."""
    return Expected(np.asarray(np.max(widen(x, dtype), axis=dims, keepdims=True)).astype(_kind(output)))


def amin(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Smallest element; NaN wins."""
    return Expected(np.asarray(np.min(widen(x, dtype), axis=dims, keepdims=True)).astype(_kind(output)))


def _kind(output: DType) -> Any:
    return wide_type(output) if output.is_float else output.logical


def argmax(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Index of the largest element; NaN wins. Of several equal ones any is right: the witness is the value there."""
    w = widen(x, dtype)
    axis = dims[0]
    first = np.argmax(w, axis=axis, keepdims=True).astype(np.int64)
    largest = np.take_along_axis(w, first, axis) if w.size else first

    def witness(got: Array) -> Array:
        inside = (got >= 0) & (got < w.shape[axis])
        value = np.take_along_axis(w, np.where(inside, got, 0), axis)
        return np.asarray(inside & ((value == largest) | (np.isnan(value) & np.isnan(largest))))

    return Expected(first, accept=witness if w.size else None)


def prod(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Product over one dimension."""
    w = widen(x, dtype)
    axis = dims[0]
    if not dtype.is_float:
        return Expected(wrap(np.asarray(np.prod(w, axis=axis, keepdims=True, dtype=np.int64)), output))
    n = w.shape[axis]
    value = np.asarray(np.prod(w.astype(np.longdouble), axis=axis, keepdims=True))
    with np.errstate(all="ignore"):
        logs = np.log2(np.abs(w.astype(np.float64)))
        up = np.sum(np.maximum(logs, 0), axis=axis, keepdims=True)
        down = np.sum(np.minimum(logs, 0), axis=axis, keepdims=True)
    # no product of a subset leaves the accumulator's normal range; a zero or NaN factor is decided by class
    in_range = (up < precision.accumulator.emax) & (down > precision.accumulator.emin)
    free = ~in_range & np.isfinite(value)
    return Expected(value, {"n": n, "in_range": in_range}, class_only=free & (value != 0), care=~(free & (value == 0)))


def any_(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Whether an element differs from zero (NaN does)."""
    return Expected(np.any(x != 0, axis=dims[0], keepdims=True).astype(output.logical))


def var(
    x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision, correction: float
) -> Expected:
    """Sum of squared distances from the mean over max(n - correction, 0)."""
    w = widen(x, dtype)
    elements = _counted(w, dims, precision)
    n = elements["n"]
    distance = w - _mean(w, dims)
    # the mean is itself rounded: subtracting the square of the mean distance removes what that adds
    rest = _mean(distance, dims)
    squares = np.sum(distance * distance, axis=dims, keepdims=True) - n * rest * rest
    value = np.asarray(squares / w.dtype.type(max(n - correction, 0.0)))
    if n > correction:
        return Expected(value, elements)
    # a divisor of zero: NaN, or infinity where squares have not vanished
    return Expected(value, elements, accept=lambda got: ~np.isfinite(got))


def cumsum(x: Array, dims: tuple[int, ...], dtype: DType, output: DType, precision: Precision) -> Expected:
    """Running sum along one dimension; h and sum_abs are those of each position."""
    w = widen(x, dtype)
    axis = dims[0]
    if not dtype.is_float:
        return Expected(wrap(np.asarray(np.cumsum(w, axis=axis, dtype=np.int64)), output))
    length = w.shape[axis]
    place = np.arange(1, length + 1).reshape([-1 if a == axis else 1 for a in range(w.ndim)])
    # numpy's cumsum adds one after the other: long double keeps its error below T / 64
    exact = np.cumsum(w.astype(np.longdouble), axis=axis)
    absolute = np.cumsum(np.abs(w), axis=axis)
    return Expected(exact, {"n": place, "h": precision.additions(place), "sum_abs": absolute})


def softmax(x: Array, dim: int, dtype: DType, precision: Precision, log: bool) -> Expected:
    """exp(x - max) / sum, or x - max - log(sum)."""
    w = widen(x, dtype)
    if w.size == 0:
        return Expected(w, {"n": 1, "h": 0, "dev": w, "mean_dev": w, "log_s": w})
    shifted = w - np.max(w, axis=dim, keepdims=True)
    powers = np.exp(shifted)
    total = np.sum(powers, axis=dim, keepdims=True)
    p = powers / total
    distance = np.where(np.isneginf(shifted), 0, np.abs(shifted))
    log_s = np.log(total)
    n = w.shape[dim]
    elements = {
        "n": n,
        "h": precision.additions(n),
        "dev": distance,
        "mean_dev": np.sum(np.where(p > 0, p * distance, 0), axis=dim, keepdims=True),
        "log_s": log_s,
    }
    return Expected(shifted - log_s if log else p, elements)


def softmax_backward(grad: Array, output: Array, dim: int, dtype: DType, precision: Precision, log: bool) -> Expected:
    """output * (grad - sum(grad * output)), or grad - exp(output) * sum(grad)."""
    g, y = widen(grad, dtype), widen(output, dtype)
    p = np.exp(y) if log else y
    summed = g if log else g * y
    elements = _counted(summed, (dim,), precision)
    total = np.sum(summed, axis=dim, keepdims=True)
    return Expected(g - p * total if log else y * (g - total), {**elements, "p": p})


def layer_norm(
    x: Array,
    dims: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    eps: float,
    dtype: DType,
    precision: Precision,
) -> Mapping[str, Expected]:
    """out, mean and rstd over the trailing dims."""
    w = widen(x, dtype)
    elements = _counted(w, dims, precision)
    average = _mean(w, dims)
    centred = w - average
    variance = _mean(centred * centred, dims) - _mean(centred, dims) ** 2
    spread = np.sqrt(variance + w.dtype.type(eps))
    gain = w.dtype.type(1) if weight is None else widen(weight, dtype)
    shift = w.dtype.type(0) if bias is None else widen(bias, dtype)
    elements |= {"dev": np.abs(centred), "s": spread, "weight": gain, "bias": shift}
    return {
        "out": Expected(np.asarray(centred / spread * gain + shift), elements),
        "mean": Expected(np.asarray(average), elements),
        "rstd": Expected(np.asarray(1 / spread), elements),
    }
