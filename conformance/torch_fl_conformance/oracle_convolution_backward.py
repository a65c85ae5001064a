"""Expected gradients of a convolution, with n and abs_dot of each output's own sum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_contraction import correlate, correlate_back, inner_index, matmul_wide
from torch_fl_conformance.oracle_maths import widen


def gradients(
    grad_output: Array,
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    dtype: DType,
    precision: Precision,
) -> dict[str, Expected]:
    """grad_input, grad_weight and grad_bias. grad_output [b, Cout, out spatial...], the others as forward."""
    wide_g, wide_x, wide_w = widen(grad_output, dtype), widen(x, dtype), widen(weight, dtype)
    kernel = weight.shape[2:]
    back = (kernel, stride, padding, dilation, groups, x.shape)
    by_input = correlate if transposed else correlate_back
    # the kernel moves over the wide side, its positions are those of the narrow one
    narrow, wide = (wide_x, wide_g) if transposed else (wide_g, wide_x)
    across = (kernel, stride, padding, dilation, groups)
    batch, positions = x.shape[0], int(np.prod(narrow.shape[2:]))
    summed = (0, *range(2, grad_output.ndim))

    def answer(value: Array, absolute: Array, n: int) -> Expected:
        return Expected(value, {"n": n, "h": precision.additions(n), "abs_dot": absolute})

    return {
        "grad_input": answer(
            by_input(wide_g, wide_w, *back),
            by_input(np.abs(wide_g), np.abs(wide_w), *back),
            grad_output.shape[1] // groups * int(np.prod(kernel)),
        ),
        "grad_weight": answer(
            _by_weight(narrow, wide, *across), _by_weight(np.abs(narrow), np.abs(wide), *across), batch * positions
        ),
        "grad_bias": answer(
            np.sum(wide_g, axis=summed), np.sum(np.abs(wide_g), axis=summed), grad_output.size // grad_output.shape[1]
        ),
    }


def _by_weight(
    narrow: Array,
    wide: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """[narrow channels, wide channels / groups, kernel...]: sum over images and positions of narrow times wide."""
    padded = np.pad(wide, [(0, 0), (0, 0), *((p, p) for p in padding)])
    spatial = narrow.shape[2:]
    rows = _by_group(narrow, groups)
    out = np.zeros((groups, rows.shape[1], wide.shape[1] // groups, *kernel), narrow.dtype)
    for place in product(*(range(k) for k in kernel)):
        window = tuple(
            slice(i * d, i * d + (size - 1) * s + 1, s)
            for i, d, s, size in zip(place, dilation, stride, spatial, strict=True)
        )
        seen = _by_group(padded[inner_index(2, window)], groups)
        out[inner_index(3, place)] = matmul_wide(rows, np.swapaxes(seen, 1, 2))
    return out.reshape(narrow.shape[1], wide.shape[1] // groups, *kernel)


def _by_group(x: Array, groups: int) -> Array:
    """[groups, channels of a group, images and positions]."""
    moved = np.moveaxis(x, 0, 1)
    return moved.reshape(groups, x.shape[1] // groups, x.size // x.shape[1])
