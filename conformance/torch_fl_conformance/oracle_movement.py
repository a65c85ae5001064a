"""Expected values of movement and index operators. Copies are judged bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import widen, wrap


def copied(values: Array, dtype: DType, care: Array | None = None) -> Expected:
    """Elements that must arrive with their very bits (any payload of NaN)."""
    return Expected(widen(values, dtype) if dtype.is_float else values, bitwise=dtype.is_float, care=care)


def cat(tensors: Sequence[Array], dim: int, dtype: DType) -> Expected:
    """One after the other along dim."""
    return copied(np.concatenate(list(tensors), axis=dim), dtype)


def flip(x: Array, dims: Sequence[int], dtype: DType) -> Expected:
    """Order reversed along dims."""
    return copied(np.flip(x, tuple(dims)), dtype)


def pad(x: Array, widths: Sequence[int], value: Any, dtype: DType) -> Expected:
    """A border of `value`; widths in ATen's order, last dimension first, (before, after) each."""
    pairs = [(widths[2 * i], widths[2 * i + 1]) for i in reversed(range(x.ndim))]
    border = np.asarray(value).astype(x.dtype)
    return copied(np.pad(x, pairs, constant_values=border) if pairs else x, dtype)


def arange(start: Any, step: Any, n: int, dtype: DType) -> Expected:
    """start + i * step."""
    if not dtype.is_float:
        steps = np.int64(start) + np.arange(n, dtype=np.int64) * np.int64(step)
        return Expected(wrap(steps, dtype))
    kind = np.longdouble  # the product must be exact ahead of the sum's one rounding
    ref = kind(start) + np.arange(n).astype(kind) * kind(step)
    return Expected(ref if dtype.name == "f64" else ref.astype(np.float64), {"start": start, "step": step})


def _held(index: Array, size: int) -> tuple[Array, Array]:
    """(indices clipped into range, where they were in range)."""
    inside = (index >= 0) & (index < size)
    return np.where(inside, index, 0), inside


def index_select(x: Array, dim: int, index: Array, dtype: DType) -> Expected:
    """Slices along dim; elements of an index out of range are unspecified."""
    safe, inside = _held(index, x.shape[dim])
    if x.shape[dim] == 0 and index.size:
        shape = tuple(index.size if axis == dim else size for axis, size in enumerate(x.shape))
        return Expected(np.zeros(shape, x.dtype), care=np.zeros(shape, bool))
    care = inside.reshape([-1 if axis == dim else 1 for axis in range(x.ndim)])
    taken = np.take(x, safe, axis=dim)
    return copied(taken, dtype, np.broadcast_to(care, taken.shape))


def gather(x: Array, dim: int, index: Array, dtype: DType) -> Expected:
    """out[..., i, ...] = x[..., index[..., i, ...], ...]."""
    if index.size == 0:
        return copied(np.zeros(index.shape, x.dtype), dtype)
    safe, inside = _held(index, x.shape[dim])
    cut = x[tuple(slice(None) if a == dim else slice(0, s) for a, s in enumerate(index.shape))]
    return copied(np.take_along_axis(cut, safe.astype(np.int64), axis=dim), dtype, inside)


def embedding(weight: Array, indices: Array, dtype: DType) -> Expected:
    """Rows of weight."""
    safe, inside = _held(indices, weight.shape[0])
    return copied(weight[safe], dtype, np.broadcast_to(inside[..., None], (*indices.shape, weight.shape[1])))


def scatter_add(x: Array, dim: int, index: Array, source: Array, dtype: DType, precision: Precision) -> Expected:
    """A copy of x to which source is added at index along dim; n counts the summands of each element."""
    inside = (index >= 0) & (index < x.shape[dim])
    places: list[Array] = list(np.indices(index.shape))
    places[dim] = np.asarray(index)
    at = tuple(place[inside] for place in places)
    total = widen(x, dtype).copy()
    added = widen(source[tuple(slice(0, s) for s in index.shape)], dtype)[inside]
    np.add.at(total, at, added)
    # an index out of range leaves its whole row along dim unspecified
    lines = np.asarray(np.any(~inside, axis=dim, keepdims=True)) if index.size else np.zeros((1,) * x.ndim, bool)
    care = np.ones(x.shape, bool)
    region = tuple(slice(None) if a == dim else slice(0, s) for a, s in enumerate(index.shape))
    if index.size:
        care[region] &= ~lines
    if not dtype.is_float:
        return Expected(wrap(total, dtype), care=care)
    count = np.ones(x.shape)
    np.add.at(count, at, 1)
    absolute = np.abs(widen(x, dtype))
    np.add.at(absolute, at, np.abs(added))
    return Expected(total, {"n": count, "h": count - 1, "sum_abs": absolute}, care=care)
