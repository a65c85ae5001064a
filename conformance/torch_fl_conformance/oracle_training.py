"""Expected values of the pointwise operators that training adds: backward operators, optimiser steps, interpolation.

They are products and sums of several steps, and kernels may take the steps in more than one order. Where a step on one
way leaves the range of the compute type, or vanishes and then meets an infinity or a zero, right kernels differ in
class: such elements are don't-care.
"""

from __future__ import annotations

import numpy as np

from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, compute_type
from torch_fl_conformance.oracle_operands import Operands, Oracle


def _in_range(o: Operands, *steps: Array) -> Array:
    """Where no step overflows in the compute type; infinities and NaN that stem from the operands are no overflow."""
    limit = compute_type(o.dtype).max_finite
    care = np.ones(o.shape, bool)
    for step in steps:
        care &= ~np.isfinite(step) | (np.abs(step) <= limit)
    return care


def _vanishes(o: Operands, step: Array) -> Array:
    """Where a step that is not zero may become it, by rounding or by flushing."""
    return np.asarray((step != 0) & (np.abs(step) < compute_type(o.dtype).min_normal))


def _threshold_backward(o: Operands) -> Array:
    return np.asarray(np.where(o["self"] <= o["threshold"], 0, o["grad_output"]))


def _sigmoid_backward(o: Operands) -> Expected:
    grad, y = o["grad_output"], o["output"]
    slope = (1 - y) * y
    care = _in_range(o, grad * (1 - y), grad * y, slope) & ~(_vanishes(o, slope) & np.isinf(grad))
    return Expected(grad * slope, care=care)


def _tanh_backward(o: Operands) -> Expected:
    grad, y = o["grad_output"], o["output"]
    # 1 - y^2 as a product: the difference would lose digits of the oracle's own type near 1
    slope = (1 - y) * (1 + y)
    return Expected(grad * slope, care=_in_range(o, grad * (1 - y), grad * (1 + y), y * y, slope))


def _addcmul(o: Operands) -> Expected | Array:
    base, a, b, value = o["self"], o["tensor1"], o["tensor2"], o["value"]
    product = value * a * b
    if not o.dtype.is_float:
        return np.asarray(base + product)
    care = _in_range(o, value * a, value * b, a * b, product)
    care &= ~(_vanishes(o, value * a) & np.isinf(b)) & ~(_vanishes(o, value * b) & np.isinf(a))
    return Expected(base + product, care=care)


def _addcdiv(o: Operands) -> Expected:
    base, a, b, value = o["self"], o["tensor1"], o["tensor2"], o["value"]
    quotient = value * a / b
    care = _in_range(o, value * a, a / b, quotient) & ~(_vanishes(o, value * a) & (b == 0))
    return Expected(base + quotient, care=care)


def _lerp(o: Operands) -> Expected:
    start, end, weight = o["self"], o["end"], o["weight"]
    way = end - start
    care = _in_range(o, way, weight * way, 1 - weight, (1 - weight) * way)
    return Expected(start + weight * way, care=care)


def _native_dropout_backward(o: Operands) -> Expected:
    grad, mask, scale = o["grad_output"], o["mask"], o["scale"]
    return Expected(grad * mask * scale, care=_in_range(o, grad * scale))


ORACLES: dict[str, Oracle] = {
    "threshold_backward": _threshold_backward,
    "sigmoid_backward": _sigmoid_backward,
    "tanh_backward": _tanh_backward,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "native_dropout_backward": _native_dropout_backward,
}
