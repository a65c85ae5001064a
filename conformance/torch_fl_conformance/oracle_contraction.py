"""Expected values of sums of products: float64 for types up to f32, long double for f64, wrapping int64.

`abs_dot` is the same contraction of |A| and |B|, the condition of every bound (Higham, ASNA 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import widen, wrap


def matmul_wide(a: Array, b: Array) -> Array:
    """The product of the last two dimensions, in the type of the operands; over no depth it is zero."""
    if a.shape[-1] == 0:
        return np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a, b))


def matmul(a: Array, b: Array, dtype: DType, precision: Precision) -> Expected:
    """mm and bmm."""
    wide_a, wide_b = widen(a, dtype), widen(b, dtype)
    value = matmul_wide(wide_a, wide_b)
    if not dtype.is_float:
        return Expected(wrap(value, dtype))
    n = a.shape[-1]
    absolute = matmul_wide(np.abs(wide_a), np.abs(wide_b))
    care = ~_may_lose_infinity(wide_a, wide_b, dtype) if precision.fast else None
    return Expected(value, {"n": n, "h": precision.additions(n), "abs_dot": absolute}, care=care)


def _may_lose_infinity(a: Array, b: Array, dtype: DType) -> Array:
    """Where an infinite factor meets a subnormal one: a kernel that shortens its inputs may make zero of that, and NaN
    of the product."""
    infinite = [np.isinf(x).astype(np.float64) for x in (a, b)]
    subnormal = [((x != 0) & (np.abs(x) < dtype.min_normal)).astype(np.float64) for x in (a, b)]
    return np.asarray(matmul_wide(infinite[0], subnormal[1]) + matmul_wide(subnormal[0], infinite[1]) > 0)


def addmm(bias: Array, a: Array, b: Array, beta: Any, alpha: Any, dtype: DType, precision: Precision) -> Expected:
    """beta * self + alpha * (a @ b); beta 0 ignores self, NaN included."""
    inner = matmul(a, b, dtype, precision)
    if not dtype.is_float:
        value = matmul_wide(widen(a, dtype), widen(b, dtype)) * np.int64(alpha)
        if beta != 0:
            value = value + np.int64(beta) * widen(bias, dtype)
        return Expected(wrap(np.asarray(value), dtype))
    w = widen(bias, dtype)
    with np.errstate(all="ignore"):
        value = inner.ref * w.dtype.type(alpha)
        if beta != 0:
            value = value + w.dtype.type(beta) * w
    # BLAS does not read its operands for alpha 0: whether their NaN stays is left open
    care = np.isfinite(inner.ref) if alpha == 0 else inner.care
    return Expected(np.asarray(value), {**inner.elements, "beta": beta, "alpha": alpha, "self": w}, care=care)


def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    out_shape: tuple[int, ...],
    dtype: DType,
    precision: Precision,
) -> Expected:
    """Cross-correlation (or its transpose) over one or two spatial dimensions, one kernel position at a time."""
    wide_x, wide_w = widen(x, dtype), widen(weight, dtype)
    kernel = weight.shape[2:]
    arguments = (kernel, stride, padding, dilation, groups, out_shape)
    run = correlate_back if transposed else correlate
    value = run(wide_x, wide_w, *arguments)
    absolute = run(np.abs(wide_x), np.abs(wide_w), *arguments)
    n = (x.shape[1] // groups) * int(np.prod(kernel))
    shift = wide_x.dtype.type(0)
    if bias is not None:
        shift = widen(bias, dtype).reshape(1, -1, *([1] * len(kernel)))
        value = value + shift
    return Expected(value, {"n": n, "h": precision.additions(n), "abs_dot": absolute, "bias": shift})


def correlate(
    x: Array,
    w: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_shape: tuple[int, ...],
) -> Array:
    """out[b, o, position] = sum over c and taps of w [o, c, tap] times what the tap sees of x, padded with zeros."""
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    batch, channels = x.shape[:2]
    spatial = out_shape[2:]
    out = np.zeros((batch, groups, out_shape[1] // groups, *spatial), x.dtype)
    grouped_w = w.reshape(groups, w.shape[0] // groups, w.shape[1], *kernel)
    for place in product(*(range(k) for k in kernel)):
        window = tuple(
            slice(i * d, i * d + (size - 1) * s + 1, s)
            for i, d, s, size in zip(place, dilation, stride, spatial, strict=True)
        )
        part = padded[inner_index(2, window)]
        part = part.reshape(batch, groups, channels // groups, *spatial)
        factor = grouped_w[inner_index(3, place)]
        out += np.einsum("bgc...,goc->bgo...", part, factor)
    return out.reshape(out_shape)


def inner_index(leading: int, index: Sequence[int | slice]) -> tuple[int | slice, ...]:
    """An index into what lies behind the first `leading` dimensions."""
    return (*(slice(None),) * leading, *index)


def correlate_back(
    x: Array,
    w: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_shape: tuple[int, ...],
) -> Array:
    """The transpose of correlate: x goes to where the kernel w [c, o, ...] had read it from."""
    batch, channels = x.shape[:2]
    spatial = x.shape[2:]
    # scatter into a canvas that also holds what the padding cuts off, then cut
    reach = [
        max((size - 1) * s + (k - 1) * d + 1, o + 2 * p)
        for size, s, k, d, o, p in zip(spatial, stride, kernel, dilation, out_shape[2:], padding, strict=True)
    ]
    canvas = np.zeros((batch, groups, out_shape[1] // groups, *reach), x.dtype)
    grouped_x = x.reshape(batch, groups, channels // groups, *spatial)
    grouped_w = w.reshape(groups, channels // groups, w.shape[1], *kernel)
    for place in product(*(range(k) for k in kernel)):
        window = tuple(
            slice(i * d, i * d + (size - 1) * s + 1, s)
            for i, d, s, size in zip(place, dilation, stride, spatial, strict=True)
        )
        factor = grouped_w[inner_index(3, place)]
        canvas[inner_index(3, window)] += np.einsum("bgc...,gco->bgo...", grouped_x, factor)
    cut = tuple(slice(p, p + size) for p, size in zip(padding, out_shape[2:], strict=True))
    return canvas[inner_index(3, cut)].reshape(out_shape)


def convolution_sizes(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """Spatial sizes of the output, as ATen defines them."""
    if transposed:
        return tuple(
            (size - 1) * s - 2 * p + d * (k - 1) + o + 1
            for size, k, s, p, d, o in zip(spatial, kernel, stride, padding, dilation, output_padding, strict=True)
        )
    return tuple(
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)
    )
