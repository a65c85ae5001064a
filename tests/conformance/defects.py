# mypy: disable-error-code="no-any-return"
"""Wrong values on top of the ideal device: each defect is one function, as its docstring says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch_fl_conformance.dtypes import Array, DType, from_bits, to_bits
from torch_fl_conformance.problem import Problem
from torch_fl_conformance.rounding import round_to

from .fake_device import FakeDevice, IdealDevice

Values = Mapping[str, Array]
Change = Callable[[Problem, Values, Array], Array]


class ValueDefect(IdealDevice):
    """The ideal values of the first output, changed by a function of (problem, operands, ideal values)."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        results = super().compute(command, operands)
        assert self.problem is not None
        out = self.problem.structure.outs[0]
        ideal = from_bits(results[out.name], out.dtype)
        with np.errstate(all="ignore"):
            changed = np.asarray(self.change(self.problem, operands, ideal))
        results[out.name] = pack(changed, out.dtype)
        return results


def pack(values: Array, dtype: DType) -> Array:
    """Storage words of values that need rounding or wrapping first; words pass as they are."""
    if values.dtype == dtype.storage and dtype.kind != "int":
        return values
    if dtype.is_float:
        return to_bits(round_to(values.astype(np.float64), dtype), dtype)
    return to_bits(values.astype(dtype.logical), dtype)


def with_defect(change: Change) -> Callable[[], FakeDevice]:
    """A factory of devices with a wrong value."""
    return lambda: ValueDefect(change)


# -- pointwise ---------------------------------------------------------------------------------------------


def truncated_sum(problem: Problem, x: Values, ideal: Array) -> Array:
    """Addition rounds towards zero."""
    if problem.structure.params["alpha"] != 1:
        return ideal
    other = x["other"] if "other" in x else problem.structure.params["other"]
    exact = x["self"].astype(np.float64) + np.asarray(other, np.float64)
    nearest = ideal.astype(np.float64)
    away = np.isfinite(exact) & (np.abs(nearest) > np.abs(exact))
    return np.where(away, np.nextafter(ideal, np.float32(0)), ideal)


def alpha_through_double(problem: Problem, x: Values, ideal: Array) -> Array:
    """int64 alpha loses its last bits."""
    if "other" not in x:
        return ideal
    return x["self"] + np.int64(int(float(problem.structure.params["alpha"]))) * x["other"]


def scalar_swapped(problem: Problem, x: Values, ideal: Array) -> Array:
    """number - tensor in place of tensor - number."""
    return -ideal if "other" in problem.structure.params else ideal


def mode_ignored(problem: Problem, x: Values, ideal: Array) -> Array:
    """Always floor."""
    other = x["other"] if "other" in x else problem.structure.params["other"]
    return np.floor(x["self"].astype(np.float64) / np.asarray(other, np.float64))


def truncating_division(problem: Problem, x: Values, ideal: Array) -> Array:
    """C's division for floor."""
    other = np.asarray(x["other"] if "other" in x else problem.structure.params["other"], np.int64)
    safe = np.where(other == 0, 1, other)
    return np.trunc(x["self"].astype(np.float64) / safe).astype(np.int64)


def tanh_form(problem: Problem, x: Values, ideal: Array) -> Array:
    """gelu's tanh approximation, whatever was asked."""
    w = x["self"].astype(np.float64)
    return 0.5 * w * (1 + np.tanh(np.sqrt(2 / np.pi) * (w + 0.044715 * w**3)))


def narrow_reduction(problem: Problem, x: Values, ideal: Array) -> Array:
    """Argument reduction with a short pi."""
    w = x["self"].astype(np.float64)
    big = np.abs(w) > 2.0**16
    return np.where(big, np.sin(np.fmod(w, 2 * 3.14159265)), ideal)


def upper_half(problem: Problem, x: Values, ideal: Array) -> Array:
    """float32 -> bfloat16 by dropping bits."""
    return (np.asarray(x["self"], np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def flushed(problem: Problem, x: Values, ideal: Array) -> Array:
    """Undeclared flush to zero."""
    return np.where(np.abs(ideal) < 2.0**-126, np.copysign(0, ideal), ideal)


def rounds_away(problem: Problem, x: Values, ideal: Array) -> Array:
    """Half-way values away from zero."""
    w = x["self"].astype(np.float64)
    return np.where(np.abs(w) < 2**22, np.copysign(np.floor(np.abs(w) + 0.5), w), w)


def threshold_passes(problem: Problem, x: Values, ideal: Array) -> Array:
    """The gradient passes at the threshold itself."""
    return np.where(x["self"] == problem.structure.params["threshold"], x["grad_output"], ideal)


def weight_swapped(problem: Problem, x: Values, ideal: Array) -> Array:
    """From end to self."""
    start, end, weight = (x[name].astype(np.float64) for name in ("self", "end", "weight"))
    return np.asarray(end + weight * (start - end))


def value_on_both(problem: Problem, x: Values, ideal: Array) -> Array:
    """The number multiplies both factors."""
    value = np.int64(problem.structure.params["value"])
    return x["self"] + value * x["tensor1"] * (value * x["tensor2"])


# -- reductions ----------------------------------------------------------------------------------------------


def _axes(problem: Problem) -> tuple[int, ...]:
    params = problem.structure.params
    return tuple(params["dims"]) if "dims" in params else (params["dim"],)


def dropped_tail(block: int) -> Change:
    """The last n mod block elements of a row are left out."""

    def change(problem: Problem, x: Values, ideal: Array) -> Array:
        axes, w = _axes(problem), x["self"].astype(np.float64)
        last = axes[-1]
        keep = w.shape[last] // block * block
        cut = np.take(w, np.arange(keep), axis=last)
        return np.sum(cut, axis=axes, keepdims=True) if keep else ideal

    return change


def garbage_past(size: int) -> Change:
    """Rows longer than `size` are wrong, rows up to it right."""

    def change(problem: Problem, x: Values, ideal: Array) -> Array:
        n = np.prod([x["self"].shape[axis] for axis in _axes(problem)])
        return ideal * 1.5 + 1 if n > size else ideal

    return change


def sum_in_half(problem: Problem, x: Values, ideal: Array) -> Array:
    """Accumulates in float16."""
    rows = _rows(problem, x["self"])
    return np.add.accumulate(rows, axis=-1, dtype=np.float16)[..., -1].reshape(ideal.shape) if rows.size else ideal


def _rows(problem: Problem, w: Array) -> Array:
    axes = _axes(problem)
    kept = [axis for axis in range(w.ndim) if axis not in axes]
    moved = np.transpose(w, (*kept, *axes))
    length = int(np.prod([w.shape[axis] for axis in axes]))
    return moved.reshape(*[w.shape[axis] for axis in kept], length)


def one_pass(problem: Problem, x: Values, ideal: Array) -> Array:
    """E[x^2] - mean^2 in float32."""
    w = x["self"].astype(np.float32)
    axes = _axes(problem)
    n = np.prod([w.shape[axis] for axis in axes])
    mean = np.sum(w, axis=axes, keepdims=True) / n
    square = np.sum(w * w, axis=axes, keepdims=True) / n - mean**2
    return square * (n / max(n - problem.structure.params["correction"], 1e-30))


def _softmax(w: Array, dim: int, shift: bool, e: float = float(np.e)) -> Array:
    w = w.astype(np.float32)
    powers = np.power(np.float32(e), w - np.max(w, axis=dim, keepdims=True) if shift else w)
    return np.asarray(powers / np.sum(powers, axis=dim, keepdims=True))


def unshifted(problem: Problem, x: Values, ideal: Array) -> Array:
    """softmax without subtracting the maximum."""
    return _softmax(x["self"], problem.structure.params["dim"], shift=False)


def wrong_dim(problem: Problem, x: Values, ideal: Array) -> Array:
    """softmax over the other dimension where the tensor is square."""
    shape = x["self"].shape
    square = len(shape) == 2 and shape[0] == shape[1]
    return _softmax(x["self"], 1 - problem.structure.params["dim"], shift=True) if square else ideal


def short_e(problem: Problem, x: Values, ideal: Array) -> Array:
    """log2(e) to five digits."""
    return _softmax(x["self"], problem.structure.params["dim"], shift=True, e=2**1.44270) if ideal.size else ideal


def reordered(problem: Problem, x: Values, ideal: Array) -> Array:
    """float32 sums in an order that differs from run to run."""
    rows = _rows(problem, x["self"])
    if not rows.size:
        return ideal
    order = np.random.default_rng().permutation(rows.shape[-1])
    return np.add.accumulate(rows[..., order], axis=-1, dtype=np.float32)[..., -1:].reshape(ideal.shape)


# -- contraction ------------------------------------------------------------------------------------------------


def _matrices(x: Values) -> tuple[Array, Array]:
    return (x["mat1"] if "mat1" in x else x["self"]), x["mat2"]


def tf32(problem: Problem, x: Values, ideal: Array) -> Array:
    """Inputs rounded to eleven bits."""
    a, b = (np.asarray(m, np.float32).view(np.uint32) & np.uint32(0xFFFFE000) for m in _matrices(x))
    return np.matmul(a.view(np.float32).astype(np.float64), b.view(np.float32).astype(np.float64))


def half_accumulator(problem: Problem, x: Values, ideal: Array) -> Array:
    """Products summed in float16."""
    a, b = _matrices(x)
    total = np.zeros(ideal.shape, np.float16)
    for k in range(a.shape[-1]):
        total = (total + (a[..., :, k : k + 1] * b[..., k : k + 1, :]).astype(np.float16)).astype(np.float16)
    return total


def dropped_k(problem: Problem, x: Values, ideal: Array) -> Array:
    """The last k mod 8 products are left out."""
    a, b = (m.astype(np.float64) for m in _matrices(x))
    keep = a.shape[-1] // 8 * 8
    return np.matmul(a[..., :keep], b[..., :keep, :])


def transposed_when_square(problem: Problem, x: Values, ideal: Array) -> Array:
    """The second operand is taken transposed where nobody notices by its shape."""
    a, b = (m.astype(np.float64) for m in _matrices(x))
    return np.matmul(a, np.swapaxes(b, -1, -2)) if b.shape[-1] == b.shape[-2] else ideal


def garbage_without_k(problem: Problem, x: Values, ideal: Array) -> Array:
    """An empty sum is not zero."""
    return ideal + 1 if _matrices(x)[0].shape[-1] == 0 else ideal


def bias_twice(problem: Problem, x: Values, ideal: Array) -> Array:
    """Bias added twice."""
    return ideal + x["bias"].reshape(1, -1, *[1] * (ideal.ndim - 2)) if "bias" in x else ideal
