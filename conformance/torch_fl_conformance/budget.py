"""Error budgets: the registry's formulas, evaluated per element.

T = T_a + n_ops * 2^(emin_a - p_a) + r_o(ref)      (rule R7 of the suite)

T_a is the registry's formula with u_a the unit roundoff of the row's accumulator; the middle term is underflow
inside the computation (n_ops = roundings on the longest path); r_o is half a spacing of the *output* type. Exact
budgets, and elements whose T_a is 0, compare with RN_o(oracle) and take none of this.

The vocabulary (names, functions and what they mean) is `torch_fl_spec.vocabulary`; here is what computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from torch_fl_spec import vocabulary
from torch_fl_spec.registry import Operator

from torch_fl_conformance.dtypes import DTYPES, Array, DType
from torch_fl_conformance.rounding import spacing

LAMBDA = 6.0  # Higham-Mary 2019: sqrt(n) bounds hold with probability 1 - 2n exp(-lambda^2 / 2)
_FAST_INPUT_BITS = {"f32": 11, "f64": 24}  # what tf32-like units keep of an input
_IMPLEMENTED = {"abs", "sqrt", "square", "round", "min", "max", "where", "kappa", "ulp_a", "ulp_o"}


class FormulaError(ValueError):
    """A formula asks for something that the operator's oracle does not offer, or that nobody implements."""


@dataclass(frozen=True)
class Precision:
    """What a kernel row computes with: its accumulator, how it adds up, how much of an input it reads."""

    accumulator: DType
    bits: int  # significant bits of the accumulator: those of its type unless the row declares fewer
    path_length: int = 0  # as fl_kernel_row declares: 0 n-1, 1 ceil(log2 n), b > 1 n/b + b
    fast: bool = False

    @property
    def unit(self) -> float:
        return 2.0**-self.bits

    def additions(self, n: Any) -> Array:
        """h: additions on the longest path over n terms, by the row's own declaration."""
        n = np.maximum(np.asarray(n, np.float64), 1)
        if self.path_length == 0:
            return np.asarray(n - 1)
        if self.path_length == 1:
            return np.asarray(np.ceil(np.log2(n)))
        return np.asarray(np.minimum(n - 1, np.ceil(n / self.path_length) + self.path_length))

    def underflow(self) -> Any:
        """2^(emin - p) of the accumulator: the most that one rounding to a subnormal loses."""
        return np.ldexp(_widest(self.accumulator)(1), self.accumulator.emin - self.bits)


def _widest(dtype: DType) -> type[np.floating[Any]]:
    """A type that holds half a spacing of `dtype`, at its smallest numbers too."""
    return np.longdouble if dtype.name == "f64" else np.float64


@cache
def names_used_by(*formulas: str) -> frozenset[str]:
    """Every name that one of the formulas uses."""
    return frozenset(name for formula in formulas for name in parse(formula).co_names)


@cache
def parse(formula: str) -> Any:
    """The formula as code; ValueError where its grammar leaves the registry's vocabulary."""
    import ast

    names = {node.id for node in ast.walk(ast.parse(formula, mode="eval")) if isinstance(node, ast.Name)}
    vocabulary.names_in(formula, names)  # checks node kinds, functions and their arity
    return compile(formula, "<budget>", "eval")


def evaluate(
    formula: str,
    precision: Precision,
    output: DType,
    elements: Mapping[str, Any],
    *,
    repeated: bool = False,
) -> Any:
    """The value of a formula. `elements`: what the oracle and the call offer by name, arrays or scalars.

    repeated: the data hold few distinct values, so that rounding errors are not independent and kappa(h) = h.
    """
    read = _FAST_INPUT_BITS.get(output.name) if precision.fast else None
    scope: dict[str, Any] = {
        **vocabulary.CONSTANTS,
        "u_a": precision.unit,
        "u_o": output.unit,
        "u_in": 2.0**-read if read else 0.0,
        "min_normal_a": precision.accumulator.min_normal,
        "tiny_a": precision.underflow(),
        "abs": np.abs,
        "sqrt": np.sqrt,
        "square": np.square,
        "round": np.rint,
        "min": np.minimum,
        "max": np.maximum,
        "where": np.where,
        "kappa": lambda h: _kappa(np.maximum(h, 0), repeated),
        "ulp_a": lambda r: spacing(_wide(r), precision.bits, precision.accumulator.emin),
        "ulp_o": lambda r: spacing(_wide(r), output.precision, output.emin),
        **elements,
    }
    try:
        with np.errstate(all="ignore"):
            return eval(parse(formula), {"__builtins__": {}}, scope)
    except NameError as error:
        raise FormulaError(f"{formula!r}: {error}") from None


def _kappa(h: Array, repeated: bool) -> Array:
    return h if repeated else np.minimum(h, LAMBDA * np.sqrt(h))


def _wide(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.dtype == np.longdouble else array.astype(np.float64)


def half_spacing(ref: Array, output: DType) -> Array:
    """r_o(ref) = 2^(max(floor log2|ref|, emin_o) - p_o): the final rounding to the output type."""
    wide = np.result_type(ref, _widest(output))
    return np.asarray(spacing(ref.astype(wide, copy=False), output.precision, output.emin) / 2)


@dataclass(frozen=True)
class Bound:
    """The budget that applies to one output of one case: T per element, 0 where RN_o(oracle) is due."""

    values: Array  # float64, or long double for f64; the output's shape
    formula: str
    also_through_f32: bool = False

    @classmethod
    def zero(cls, shape: tuple[int, ...], also_through_f32: bool = False) -> Bound:
        """RN_o(oracle) is due in every element."""
        return cls(np.broadcast_to(np.float64(0), shape), "0", also_through_f32)


def bound(
    operator: Operator,
    out: str,
    dtypes: tuple[str, ...],
    tier: str,
    precision: Precision,
    ref: Array,
    elements: Mapping[str, Any],
    *,
    repeated: bool = False,
) -> Bound:
    """T of output `out` for one case of a kernel row; LookupError where the registry has no budget for it."""
    output = DTYPES[operator.dtype_of(next(o.type for o in operator.outs if o.name == out), dtypes)]
    elements = {**elements, "ref": ref}
    for candidate in operator.candidates(out, dtypes, tier):
        if candidate.when and not evaluate(candidate.when, precision, output, elements):
            continue
        also = candidate.also == "through_f32"
        if candidate.exact or candidate.T is None:
            return Bound.zero(ref.shape, also)
        with np.errstate(all="ignore"):
            inner = evaluate(candidate.T, precision, output, elements, repeated=repeated)
            steps = evaluate(operator.n_ops, precision, output, elements, repeated=repeated)
            total = inner + steps * precision.underflow() + half_spacing(ref, output)
            values = np.where(np.asarray(inner) == 0, 0, total)
            values = values if values.shape == ref.shape else np.broadcast_to(values, ref.shape)
        return Bound(values, candidate.T, also)
    raise LookupError(f"{operator.op}: no budget for output {out} of {','.join(dtypes)} at tier {tier}")
