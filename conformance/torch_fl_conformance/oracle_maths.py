"""The arithmetic that oracles share: a wider type per dtype, functions numpy lacks, integers that wrap."""

from __future__ import annotations

import numpy as np
from torch_fl_spec import abi, helper

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


def erf(x: Array) -> Array:
    """Error function of float64 or long double values, by the C library."""
    source = np.ascontiguousarray(x)
    result = np.empty_like(source)
    function, ctype = (
        (helper.load().flh_erf, "double[]") if x.dtype == np.float64 else (helper.load().flh_erfl, "long double[]")
    )
    function(abi.ffi.from_buffer(ctype, source), abi.ffi.from_buffer(ctype, result), source.size)
    return result.reshape(x.shape)


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
