"""Expected values of pointwise operators, from the rounded inputs the device got.

float16, bfloat16 and float32 are computed in float64, float64 in long double. Where an operator is exactly rounded
(+ - * / sqrt) float64 rows use the CPU's own double operation, since rounding an 80-bit result again is not one
rounding. Integers stay integers and wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_fl_conformance import oracle_training
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array, compute_type
from torch_fl_conformance.oracle_maths import erf, integer_power, wide_type, widen, wrap
from torch_fl_conformance.oracle_operands import Operands, Oracle
from torch_fl_conformance.rounding import round_to

ORACLES: dict[str, Oracle] = dict(oracle_training.ORACLES)


def oracle(*names: str) -> Callable[[Oracle], Oracle]:
    """Register under registry names of oracles."""

    def register(function: Oracle) -> Oracle:
        ORACLES.update(dict.fromkeys(names, function))
        return function

    return register


def _combine(o: Operands, sign: int) -> Expected | Array:
    alpha = o.values["alpha"]
    if not o.dtype.is_float:
        return np.asarray(o["self"] + sign * (o["alpha"] * o["other"]))
    if abs(alpha) == 1:
        product = o.double("other") * (alpha * sign)
        return np.asarray(o.double("self") + product, wide_type(o.dtype))
    product = o["alpha"] * o["other"]
    # where the product alone leaves the range, fused and separate arithmetic may differ in class
    held = ~np.isfinite(product) | (np.abs(product) <= compute_type(o.dtype).max_finite)
    return Expected(o["self"] + sign * product, care=held)


@oracle("add")
def _add(o: Operands) -> Expected | Array:
    return _combine(o, 1)


@oracle("sub")
def _sub(o: Operands) -> Expected | Array:
    return _combine(o, -1)


def _rounded(o: Operands, function: Callable[..., Array], *slots: str) -> Array:
    """A correctly rounded operation: in double for f64 rows, else in float64 ahead of one innocuous rounding."""
    return np.asarray(function(*(o.double(slot) for slot in slots))).astype(wide_type(o.dtype))


@oracle("mul")
def _mul(o: Operands) -> Array:
    return _rounded(o, np.multiply, "self", "other") if o.dtype.is_float else o["self"] * o["other"]


@oracle("div")
def _div(o: Operands) -> Array:
    return _rounded(o, np.divide, "self", "other")


@oracle("reciprocal")
def _reciprocal(o: Operands) -> Array:
    return _rounded(o, lambda x: 1.0 / x, "self")


@oracle("sqrt")
def _sqrt(o: Operands) -> Array:
    return _rounded(o, np.sqrt, "self")


@oracle("div_mode")
def _div_mode(o: Operands) -> Expected:
    floor = o.values["rounding_mode"] == "floor"
    x, y = o["self"], o["other"]
    if not o.dtype.is_float:
        safe = np.where(y == 0, 1, y)
        quotient = np.floor_divide(x, safe)
        if not floor:
            remainder = x - quotient * safe
            quotient = quotient + ((remainder != 0) & ((x < 0) != (safe < 0)))
        overflow = (safe == -1) & (x == np.iinfo(np.int64).min)
        quotient = np.where(overflow, x, quotient)
        return Expected(wrap(quotient, o.output), care=y != 0)
    whole = np.floor if floor else np.trunc
    quotient = x / y
    # the device's own quotient is off by a rounding or two, and so may the oracle's be beyond 2^53
    slack = 4 * o.dtype.unit * np.abs(quotient) + o.dtype.min_subnormal
    low, high = whole(quotient - slack), whole(quotient + slack)
    edge = np.isinf(x) | np.isinf(y)
    big = np.abs(quotient) > o.dtype.max_finite / 2
    # an infinite operand has as many answers as formulas; a quotient that overflows is infinite or NaN
    care = ~edge & ~(big & (y != 0))
    return Expected(whole(quotient), {"quotient": quotient}, care=care, low=low, high=high)


@oracle("remainder")
def _remainder(o: Operands) -> Expected | Array:
    x, y = o["self"], o["other"]
    if not o.dtype.is_float:
        safe = np.where((y == 0) | (y == -1), 1, y)
        return Expected(wrap(np.mod(x, safe), o.output), care=y != 0)
    x, y = o.double("self"), o.double("other")
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest).astype(wide_type(o.dtype))


@oracle("pow")
def _pow(o: Operands) -> Expected | Array:
    if o.dtype.is_float:
        return np.power(o["self"], o["exponent"])
    base, exponent = o["self"], o["exponent"]
    return Expected(wrap(integer_power(base, exponent), o.output), care=exponent >= 0)


def _elementary(name: str, function: Callable[[Array], Array]) -> None:
    ORACLES[name] = lambda o: function(o["self"])


_elementary("exp", np.exp)
_elementary("log", np.log)
_elementary("rsqrt", lambda x: 1 / np.sqrt(x))
_elementary("sin", np.sin)
_elementary("cos", np.cos)
_elementary("tanh", np.tanh)
_elementary("erf", erf)
_elementary("sigmoid", lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-np.abs(x)))))
_elementary("neg", lambda x: -x)
_elementary("abs", np.abs)
_elementary("sign", lambda x: np.where(np.isnan(x), 0, np.sign(x)))
_elementary("relu", lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)))


_WHOLE = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}
for _name, _function in _WHOLE.items():
    # integers are whole already, and numpy would take some of them through float64
    ORACLES[_name] = lambda o, f=_function: f(o["self"]) if o.dtype.is_float else o["self"]  # type: ignore[misc]


@oracle("bitwise_not")
def _bitwise_not(o: Operands) -> Array:
    return 1 - o["self"] if o.dtype.kind == "bool" else ~o["self"]


@oracle("silu")
def _silu(o: Operands) -> Expected:
    x = o["self"]
    value = x * ORACLES["sigmoid"](o)
    return Expected(value, care=~np.isneginf(x))


@oracle("gelu")
def _gelu(o: Operands) -> Expected:
    x = o["self"]
    if o.values["approximate"] == "tanh":
        beta = np.sqrt(2 / np.asarray(np.arccos(x.dtype.type(-1))))
        inner = beta * (x + x.dtype.type("0.044715") * x * x * x)
        factor = 1 + np.tanh(inner)
    else:
        factor = 1 + erf(x / np.sqrt(x.dtype.type(2)))
    # x (1 + erf) may overflow before it is halved; an infinite x gives NaN or its limit
    held = np.abs(x) <= compute_type(o.dtype).max_finite / 2
    return Expected(0.5 * x * factor, care=held | np.isnan(x))


@oracle("maximum")
def _maximum(o: Operands) -> Array:
    return np.maximum(o["self"], o["other"])


@oracle("minimum")
def _minimum(o: Operands) -> Array:
    return np.minimum(o["self"], o["other"])


@oracle("clamp")
def _clamp(o: Operands) -> Array:
    value = o["self"]
    if o.values["min"] is not None:
        value = np.maximum(value, o["min"])
    if o.values["max"] is not None:
        value = np.minimum(value, o["max"])
    return value


@oracle("where")
def _where(o: Operands) -> Expected:
    chosen = np.where(o.values["condition"], o.values["self"], o.values["other"])
    return Expected(widen(chosen, o.output) if o.output.is_float else chosen, bitwise=o.output.is_float)


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
for _name, _comparison in _COMPARISONS.items():
    ORACLES[_name] = lambda o, f=_comparison: f(o["self"], o["other"])  # type: ignore[misc]

ORACLES["isnan"] = lambda o: np.isnan(o["self"])
ORACLES["logical_and"] = lambda o: (o["self"] != 0) & (o["other"] != 0)
ORACLES["logical_or"] = lambda o: (o["self"] != 0) | (o["other"] != 0)
ORACLES["logical_not"] = lambda o: o["self"] == 0
ORACLES["bitwise_and"] = lambda o: o["self"] & o["other"]
ORACLES["bitwise_or"] = lambda o: o["self"] | o["other"]
ORACLES["bitwise_xor"] = lambda o: o["self"] ^ o["other"]


@oracle("to_copy")
def _to_copy(o: Operands) -> Expected | Array:
    value = np.asarray(o.values["self"])
    if o.output.kind == "bool":
        return np.asarray(value != 0)
    if o.dtype.name == o.output.name:
        return Expected(widen(value, o.output) if o.output.is_float else value, bitwise=o.output.is_float)
    if o.output.is_float:
        exact = value.astype(np.longdouble) if o.dtype.name in ("i64", "f64") else value.astype(np.float64)
        twice = round_to(round_to(exact, DTYPES["f32"]).astype(np.float64), o.output).astype(np.float64)
        return Expected(exact, {"through_f32": twice})
    if o.dtype.is_float:
        limit_low, limit_high = float(o.output.low) - 1, float(o.output.high)
        held = np.isfinite(value) & (value > limit_low) & ((value < limit_high + 1) & (value < 2.0**63))
        safe = np.trunc(np.where(held, value, 0)).astype(np.int64)
        return Expected(wrap(safe, o.output), care=held)
    return wrap(value.astype(np.int64), o.output)


@oracle("fill")
def _fill(o: Operands) -> Array:
    return o["value"]


def expected(name: str, operands: Operands) -> Expected:
    """The oracle's answer; `name` is the registry's `oracle`. LookupError for a name nobody has written."""
    if name not in ORACLES:
        raise LookupError(f"no oracle {name!r}")
    with np.errstate(all="ignore"):
        answer = ORACLES[name](operands)
    if isinstance(answer, Expected):
        return answer
    if operands.output.is_float:
        return Expected(np.asarray(answer, wide_type(operands.output)))
    return Expected(wrap(np.asarray(answer), operands.output))
