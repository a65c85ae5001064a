"""The arithmetic that oracles share: a wider type per dtype, functions numpy lacks, integers that wrap."""

from __future__ import annotations

import math

import numpy as np

from torch_fl_conformance.dtypes import Array, DType


def wide_type(dtype: DType) -> type[np.floating]:
    """float64 for types up to f32; long double (80-bit on x86-64, quad on aarch64) for f64."""
    return np.longdouble if dtype.name == "f64" else np.float64


def widen(values: Array, dtype: DType) -> Array:
    """Logical values in the oracle's type: wide_type for floats, int64 for integers (bool as 0 and 1)."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(wide_type(dtype) if dtype.is_float else np.int64)


def wrap(values: Array, dtype: DType) -> Array:
    """int64 results (themselves wrapped mod 2^64) reduced to an integer dtype; bool: differs from zero."""
    return values != 0 if dtype.kind == "bool" else values.astype(dtype.logical)


_erf_double = np.frompyfunc(math.erf, 1, 1)
_TWO_OVER_ROOT_PI = np.longdouble(2) / np.sqrt(np.longdouble("3.14159265358979323846264338327950288"))


def erf(x: Array) -> Array:
    """Error function: libm's in float64, in long double the series 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1)/(2n+1)!!.

    All terms of that series have one sign, so it loses nothing to cancellation (Abramowitz-Stegun 7.1.6). Beyond
    |x| = 9 erf differs from +-1 by less than 2^-115.
    """
    if x.dtype != np.longdouble:
        return np.asarray(_erf_double(x), np.float64) if x.size else np.zeros(x.shape)
    with np.errstate(all="ignore"):
        inner = np.where(np.abs(x) <= 9, x, 0)
        square = inner * inner
        term = inner.copy()
        total = inner.copy()
        steps = int(np.max(square, initial=0)) * 3 + 60
        for n in range(steps):
            term = term * (2 * square) / np.longdouble(2 * n + 3)
            total = total + term
        value = _TWO_OVER_ROOT_PI * np.exp(-square) * total
        return np.where(np.isnan(x), x, np.where(np.abs(x) <= 9, value, np.sign(x)))


def integer_power(base: Array, exponent: Array) -> Array:
    """base ** exponent mod 2^64 over int64, by squaring; negative exponents give what 1/base truncates to.

    A zero base with a negative exponent gives 0 (its value is unspecified by the registry).
    """
    result = np.ones_like(base)
    square, rest = base.copy(), np.maximum(exponent, 0)
    with np.errstate(over="ignore"):
        while rest.any():
            result = np.where(rest & 1, result * square, result)
            square = square * square
            rest = rest >> 1
    inverse = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(exponent < 0, inverse, result)
