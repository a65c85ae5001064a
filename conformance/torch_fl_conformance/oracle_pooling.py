"""Expected values of pooling: float64 for types up to f32, long double for f64, one window after the other.

A sum of n elements, added in sequence at worst, errs by at most (n - 1) * 2^-53 (2^-64) of sum |x|. n is as many as a
window has, or as windows share an element: far below T / 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import widen
from torch_fl_conformance.problem import Structure
from torch_fl_conformance.windows import Windows, adaptive, strided


def expected(
    oracle: str, values: Mapping[str, Array], structure: Structure, precision: Precision
) -> dict[str, Expected]:
    """The answers to a call by output name. oracle: the registry's name of what it computes."""
    out, params = structure.outs[0], structure.params
    x, gradient = values["self"], values.get("grad_output")
    if oracle == "max_pool_backward":
        assert gradient is not None
        return {out.name: max_pool_backward(gradient, values["indices"], x.shape, out.dtype, precision)}
    narrow = out.shape if gradient is None else gradient.shape
    windows = windows_of(params, x.shape[-2:], narrow[-2:])
    if oracle == "max_pool":
        return max_pool(x, windows, narrow, out.dtype)
    divisor = params.get("divisor_override")
    divisors = windows.divisors if divisor is None else np.full(narrow[-2:], divisor)
    if gradient is None:
        return {out.name: average(x, windows, divisors, narrow, out.dtype, precision)}
    return {out.name: average_backward(gradient, windows, divisors, x.shape, out.dtype, precision)}


def windows_of(params: Mapping[str, Any], plane: tuple[int, ...], outputs: tuple[int, ...]) -> Windows:
    """The windows of a call with these parameters over a plane, given how many outputs it has."""
    if "kernel_size" not in params:
        return Windows(*(adaptive(size, count) for size, count in zip(plane, outputs, strict=True)))
    dilation = params.get("dilation", (1, 1))
    counts = params.get("count_include_pad", True)
    lines = (
        strided(*sizes, count_padding=counts)
        for sizes in zip(
            plane, outputs, params["kernel_size"], params["stride"], params["padding"], dilation, strict=True
        )
    )
    return Windows(*lines)


def _flat(planes: Array) -> Array:
    """Each plane as one dimension."""
    return planes.reshape(*planes.shape[:-2], planes.shape[-2] * planes.shape[-1])


def max_pool(x: Array, windows: Windows, out_shape: tuple[int, ...], dtype: DType) -> dict[str, Expected]:
    """The largest element of each window, where NaN wins, and its place; any place of an equal element is right."""
    wide = widen(x, dtype)
    largest = np.full(out_shape, -np.inf, wide.dtype)
    first = np.zeros(out_shape, np.int64)
    holds = np.zeros(out_shape, bool)  # whether a window holds an element
    lines = _flat(wide)
    for output, _ in windows:
        places = windows.places(output)
        if places.size:
            holds[output] = True
            seen = lines[..., places]
            at = np.argmax(seen, axis=-1)  # that of the first NaN, where there is one
            largest[output] = np.take_along_axis(seen, at[..., None], -1)[..., 0]
            first[output] = places[at]

    def witness(got: Array) -> Array:
        right = np.zeros(got.shape, bool)
        for output, _ in windows:
            index, best = got[output], largest[output]
            inside = np.isin(index, windows.places(output))
            value = np.take_along_axis(lines, np.where(inside, index, 0)[..., None], -1)[..., 0]
            right[output] = inside & ((value == best) | (np.isnan(value) & np.isnan(best)))
        return right

    return {
        "out": Expected(largest, care=holds),
        "indices": Expected(first, accept=witness if wide.size else None, care=holds),
    }


def max_pool_backward(
    gradient: Array, indices: Array, in_shape: tuple[int, ...], dtype: DType, precision: Precision
) -> Expected:
    """Zeros to which each gradient is added at its index; n counts the summands of each element."""
    wide = widen(gradient, dtype)
    planes = (*in_shape[:-2], in_shape[-2] * in_shape[-1])
    places, values = _flat(indices), _flat(wide)
    inside = (places >= 0) & (places < planes[-1])
    at = (*(plane[inside] for plane in np.indices(places.shape)[:-1]), places[inside])
    total, absolute, count = np.zeros(planes, wide.dtype), np.zeros(planes, wide.dtype), np.zeros(planes)
    np.add.at(total, at, values[inside])
    np.add.at(absolute, at, np.abs(values[inside]))
    np.add.at(count, at, 1)
    # an index out of range leaves its whole plane unspecified
    care = np.broadcast_to(np.all(inside, axis=-1, keepdims=True), planes).reshape(in_shape)
    n = count.reshape(in_shape)
    elements = {"n": n, "h": precision.additions(n), "sum_abs": absolute.reshape(in_shape)}
    return Expected(total.reshape(in_shape), elements, care=care)


def average(
    x: Array, windows: Windows, divisors: Array, out_shape: tuple[int, ...], dtype: DType, precision: Precision
) -> Expected:
    """The sum of each window over its divisor. divisors: [outputs high, outputs wide]."""
    wide = widen(x, dtype)
    total, absolute, count = np.zeros(out_shape, wide.dtype), np.zeros(out_shape, wide.dtype), np.zeros(out_shape)
    for output, window in windows:
        seen = wide[window]
        total[output] = _flat(seen).sum(axis=-1)
        absolute[output] = np.abs(_flat(seen)).sum(axis=-1)
        count[output] = windows.places(output).size
    over = divisors.astype(wide.dtype)
    elements = {"n": count, "h": precision.additions(count), "sum_abs": absolute / np.abs(over)}
    return Expected(total / over, elements)


def average_backward(
    gradient: Array, windows: Windows, divisors: Array, in_shape: tuple[int, ...], dtype: DType, precision: Precision
) -> Expected:
    """To each element of a window its share of the output's gradient."""
    share = widen(gradient, dtype)
    share = share / divisors.astype(share.dtype)
    total, absolute, count = np.zeros(in_shape, share.dtype), np.zeros(in_shape, share.dtype), np.zeros(in_shape)
    for output, window in windows:
        total[window] += share[output][..., None, None]
        absolute[window] += np.abs(share[output])[..., None, None]
        count[window] += 1
    return Expected(total, {"n": count, "h": precision.additions(count), "sum_abs": absolute})
