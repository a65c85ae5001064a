"""Correct rounding (half to even) of an oracle's value to each element type, in ONE step.

Sources are float64 or long double arrays. float16 and float32 go straight from float64 by numpy's own conversion.
bfloat16 has none: float64 is first rounded *to odd* at 24 bits (Boldo-Melquiond 2008: with at least two extra
bits a second rounding is then innocent) and the float32 is rounded to its upper half. A long double that is wider
than float64 goes through float64 rounded to odd in the same way.
"""

from __future__ import annotations

import numpy as np

from torch_fl_conformance.dtypes import Array, DType

_LOW_WORD = np.uint32(0xFFFF)


def _odd(exact: Array, nearest: Array, words: type[np.unsignedinteger]) -> Array:
    """Turn `nearest`, exact rounded to nearest in a narrower type, into exact rounded to odd."""
    wide = nearest.astype(exact.dtype)
    inexact = np.isfinite(exact) & (wide != exact) & np.isfinite(nearest)
    # truncate: step back towards zero where rounding went away from it, then set the last bit
    away = inexact & (np.abs(wide) > np.abs(exact))
    bits = nearest.view(words).copy()
    bits[away] -= words(1)
    bits[inexact] |= words(1)
    result: Array = bits.view(nearest.dtype)
    overflow = np.isfinite(exact) & np.isinf(nearest)
    if overflow.any():
        result = result.copy()
        result[overflow] = np.copysign(np.finfo(nearest.dtype).max, exact[overflow]).astype(nearest.dtype)
    return result


def to_float64_odd(values: Array) -> Array:
    """float64 of a wider array, rounded to odd; a float64 array comes back as it is."""
    if values.dtype != np.longdouble or np.finfo(np.longdouble).nmant <= 52:
        return np.ascontiguousarray(values, np.float64)
    values = np.ascontiguousarray(values)
    with np.errstate(all="ignore"):
        return _odd(values, values.astype(np.float64), np.uint64)


def _bfloat16(values: Array) -> Array:
    with np.errstate(all="ignore"):
        single = _odd(values, values.astype(np.float32), np.uint32)
    words = single.view(np.uint32)
    # half to even on the upper half; finite words only, so that NaN payloads cannot carry into infinity
    rounded = words + np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1))
    words = np.where(np.isfinite(single), rounded, words) & ~_LOW_WORD
    result = words.astype(np.uint32).view(np.float32)
    return np.asarray(np.where(np.isnan(single), np.float32(np.nan), result), np.float32)


def round_to(values: Array, dtype: DType) -> Array:
    """RN of float64 or long double values to a floating `dtype`, as logical values of that type."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype.name == "f64" or (dtype.name != "bf16" and values.dtype == np.float64):
            return np.asarray(values.astype(dtype.logical, order="C"))
    flat = to_float64_odd(np.atleast_1d(values).ravel())
    with np.errstate(all="ignore"):
        rounded = _bfloat16(flat) if dtype.name == "bf16" else flat.astype(dtype.logical)
    return rounded.reshape(values.shape)


def spacing(values: Array, precision: int, emin: int) -> Array:
    """ulp(r) = 2^(max(floor log2|r|, emin) - precision + 1), in the type of `values` (float64 or wider)."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)  # |r| = m * 2^exponent with m in [1/2, 1)
        exponent = np.where(np.isfinite(values) & (values != 0), exponent, emin + 1)
        power = np.maximum(exponent, emin + 1) - precision
        one = np.ones((), values.dtype if values.dtype == np.longdouble else np.float64)
        return np.asarray(np.ldexp(one, power))
