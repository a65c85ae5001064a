"""Is what the device wrote within what the oracle allows? Every element counts; no share, no mean, no cosine.

Order of judgement per element (rules R3, R4, R6): don't-care elements pass; NaN where and only where the oracle
has NaN; infinities with their sign; a finite oracle whose |ref| + T passes the largest finite number allows both
that number and infinity; exact elements (T = 0) equal RN_o(oracle); the rest lie within T. A row that declares
FTZ_OUT may write +-0 for a result that can be subnormal, and one that declares FTZ_IN may also answer as if its
subnormal inputs had been zero: `Expected.alternatives` holds those further right answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from torch_fl_conformance.dtypes import Array, DType, from_bits, to_bits
from torch_fl_conformance.rounding import round_to


@dataclass
class Expected:
    """The oracle's answer for one output.

    ref: exact values of the output type for integers and bool; float64 (long double for f64) for floats.
    elements: arrays that the row's budget formula may name, each broadcastable to ref.
    exact: T = 0 whatever the formula says (exact-integer data). signed_zero: the sign of zero counts.
    care: False where any value is right (rule FL-KERNEL-013). repeated: few distinct values (kappa = h).
    low, high: where given (discontinuous outputs near a jump), every value between them is right.
    class_only: elements of which only whether they are NaN is judged.
    alternatives: further arrays of right answers, judged like ref.
    accept: a witness check on what came back (argmax: the value at the index is the maximum).
    forbid: elements that are wrong however near they lie (a uniform number that reaches the end of its range).
    given: where an output is free or hangs on one that is: makers of ref and of alternatives from all outputs' words.
    """

    ref: Array
    elements: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    signed_zero: bool = False
    bitwise: bool = False
    care: Array | None = None
    repeated: bool = False
    low: Array | None = None
    high: Array | None = None
    class_only: Array | None = None
    alternatives: list[Array] = field(default_factory=list)
    accept: Callable[[Array], Array] | None = None
    forbid: Callable[[Array], Array] | None = None
    given: tuple[Callable[[Mapping[str, Array]], Array], ...] = ()

    def settled(self, words: Mapping[str, Array]) -> Expected:
        """The answer to a run that gave these storage words, by output name."""
        if not self.given:
            return self
        with np.errstate(all="ignore"):
            ref, *others = (make(words) for make in self.given)
        return replace(self, ref=ref, alternatives=[*self.alternatives, *others], given=())


@dataclass(frozen=True)
class Mismatch:
    """The worst wrong element of one output."""

    index: tuple[int, ...]
    expected: str
    got: str
    budget: str
    wrong: int  # elements that are wrong
    total: int


@dataclass(frozen=True)
class Judgement:
    """Result of one comparison: the worst err/T over elements with a budget, and the first mismatch if any."""

    worst: float
    worst_index: tuple[int, ...] | None
    mismatch: Mismatch | None


def _same_zero(got: Array, ref: Array) -> Array:
    return np.asarray((got != 0) | (ref != 0) | (np.signbit(got) == np.signbit(ref)))


def _equal(got: Array, ref: Array, dtype: DType, signed_zero: bool, flush_out: bool) -> Array:
    """Which float values equal the rounded answer: T = 0. NaN and infinities of the right sign are equal, too."""
    with np.errstate(all="ignore"):
        rounded = round_to(ref, dtype)
        right = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        if signed_zero:
            right = right & _same_zero(got, rounded)
        if flush_out:  # a flushed result is zero of either sign
            right = right | ((got == 0) & (ref != 0) & (np.abs(ref) < dtype.min_normal))
    return np.asarray(right)


def _within(
    got: Array, ref: Array, budget: Array, dtype: DType, signed_zero: bool, flush_out: bool
) -> tuple[Array, Array]:
    """(right, err/T) of float values against one array of answers."""
    # float64 holds the difference of two values of a narrower type to far less than T
    kind = np.result_type(ref, budget, np.float64)
    with np.errstate(all="ignore"):
        wide = got.astype(kind)
        target = ref.astype(kind, copy=False)
        size = np.abs(target)
        finite = np.isfinite(target)
        exact = budget == 0
        ratio = np.abs(wide - target) / budget
        if signed_zero or exact.any():
            rounded = round_to(ref, dtype)
            ratio = np.where(exact, np.where(wide == rounded, 0.0, np.inf), ratio)
        right = ratio <= 1
        both_finite = finite & np.isfinite(wide)
        if not both_finite.all():
            ratio = np.where(both_finite, ratio, 0.0)
            right = np.where(finite, right, (wide == target) | (np.isnan(wide) & np.isnan(target)))
        # R3: beyond the largest finite number either that number or the infinity of the right sign fits
        limit = kind.type(dtype.max_finite)
        near = size + budget > limit
        if near.any():
            near = near & finite & ~exact
            edge = (np.abs(wide) >= limit) & (np.signbit(wide) == np.signbit(target))
            right = right | (near & edge)
            ratio = np.where(near, 0.0, ratio)
        if signed_zero:
            right = right & _same_zero(got, rounded)
        if flush_out:  # a flushed result is zero of either sign
            flushed = finite & (target != 0) & (size - budget < dtype.min_normal) & (wide == 0)
            right = right | flushed
            ratio = np.where(flushed, 0.0, ratio)
    return right, ratio.astype(np.float64, copy=False)


def judge(words: Array, expected: Expected, dtype: DType, budget: Array, *, flush_out: bool = False) -> Judgement:
    """Judge one output. `words`: storage words in the output's shape; `budget`: T per element (0 = exact)."""
    ref = expected.ref
    got = from_bits(words, dtype)
    ratio: Array | None = None  # where anything has a budget
    has_budget = dtype.is_float and not (expected.exact or expected.bitwise) and bool(budget.any())
    if dtype.kind == "bool":
        right = words == ref.astype(np.uint8)  # a bool is the byte 0 or 1, nothing else
    elif not dtype.is_float:
        right = got == ref
    elif expected.bitwise:
        right = (words == to_bits(ref.astype(dtype.logical), dtype).reshape(ref.shape)) | (
            np.isnan(ref) & np.isnan(got)
        )
    elif has_budget:
        right, ratio = _within(got, ref, budget, dtype, expected.signed_zero, flush_out)
    else:
        right = _equal(got, ref, dtype, expected.signed_zero, flush_out)
    for other in expected.alternatives:
        if ratio is not None:
            also, other_ratio = _within(got, other, budget, dtype, expected.signed_zero, flush_out)
            ratio = np.where(also & ~right, other_ratio, ratio)
        elif dtype.is_float:
            also = _equal(got, other, dtype, expected.signed_zero, flush_out)
        else:
            also = got == other
        right = right | also
    forgiven: Array | None = None  # elements whose distance from the answer says nothing
    if expected.low is not None and expected.high is not None:
        with np.errstate(invalid="ignore"):
            forgiven = (got >= expected.low) & (got <= expected.high)
        right = right | forgiven
    if expected.class_only is not None:
        right = np.where(expected.class_only, np.isnan(got) == np.isnan(ref), right)
        forgiven = expected.class_only if forgiven is None else forgiven | expected.class_only
    if expected.accept is not None:
        accepted = expected.accept(got)
        right = right | accepted
        forgiven = accepted if forgiven is None else forgiven | accepted
    if expected.forbid is not None:
        right = right & ~expected.forbid(got)
    if expected.care is not None:
        right = right | ~expected.care
        forgiven = ~expected.care if forgiven is None else forgiven | ~expected.care
    if ratio is not None and forgiven is not None:
        ratio = np.where(forgiven, 0.0, ratio)
    return _summary(np.asarray(right), ratio, got, words, expected, budget, dtype)


def _summary(
    right: Array, ratio: Array | None, got: Array, words: Array, expected: Expected, budget: Array, dtype: DType
) -> Judgement:
    if right.size == 0:
        return Judgement(0.0, None, None)
    worst, place = 0.0, None
    if ratio is not None:
        place = _index(ratio)
        if not np.isfinite(ratio[place]):
            place = _index(np.where(np.isfinite(ratio), ratio, 0.0))
        worst = float(ratio[place]) if np.isfinite(ratio[place]) else 0.0
    if right.all():
        return Judgement(worst, place, None)
    wrong = ~right
    beyond = np.where(np.isfinite(ratio), ratio, 1e300) if ratio is not None else np.ones(right.shape)
    index = _index(np.where(wrong, beyond, -1.0))
    allowed = np.broadcast_to(budget, right.shape)[index] if ratio is not None else 0
    got_text = f"byte {int(words[index]):#04x}" if dtype.kind == "bool" else show(got[index])
    exact = "0 (equal to the rounded oracle)" if allowed == 0 else show(allowed)
    mismatch = Mismatch(index, show(expected.ref[index]), got_text, exact, int(wrong.sum()), int(right.size))
    return Judgement(worst, place, mismatch)


def _index(values: Array) -> tuple[int, ...]:
    """Where the largest element is."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def show(value: Any) -> str:
    """A number for a failure message: integers as they are, floats with enough digits to tell neighbours."""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(int(value))
    return np.format_float_scientific(np.longdouble(value), precision=20, trim="-", unique=True)
