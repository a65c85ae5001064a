"""The comparator itself: every element counts, classes come first, and nothing grows while it looks.

Several tests are dead checks of respected suites turned into twins of ours: an allowance that grows per wrong
element, a share of mismatches that is forgiven, the lowest number taken for minus infinity.
"""

from __future__ import annotations

import numpy as np
import pytest
from torch_fl_conformance.compare import Expected, Judgement, judge
from torch_fl_conformance.dtypes import DTYPES, Array, to_bits
from torch_fl_conformance.rounding import round_to

F32 = DTYPES["f32"]
FLOATS = ("f16", "bf16", "f32", "f64")


def judged(got: Array, ref: Array, budget: float = 0.0, name: str = "f32", **options: object) -> Judgement:
    """Judge `got` (float64, rounded to the dtype) against `ref` with one budget for all."""
    dtype = DTYPES[name]
    ref = np.asarray(ref, np.longdouble if name == "f64" else np.float64)
    flush = bool(options.pop("flush_out", False))
    words = to_bits(round_to(np.asarray(got, ref.dtype), dtype), dtype).reshape(ref.shape)
    bound = np.full(ref.shape, budget, np.longdouble)
    return judge(words, Expected(ref, **options), dtype, bound, flush_out=flush)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("position", range(37))
def test_nine_tenths_pass_and_eleven_tenths_fail_everywhere(name: str, position: int) -> None:
    """0.9 T passes and 1.1 T fails at every position, the last included."""
    dtype = DTYPES[name]
    ref = np.linspace(1.0, 2.0, 37)
    ref = round_to(ref, dtype).astype(np.float64)
    step = 64 * 2.0 ** (1 - dtype.precision)  # T is large against the type's spacing, so that 0.9 T is representable
    for factor, right in ((0.9, True), (1.1, False), (-0.9, True), (-1.1, False)):
        got = ref.copy()
        got[position] += factor * step
        outcome = judged(got, ref, step, name)
        assert (outcome.mismatch is None) == right, (name, position, factor)
        if outcome.mismatch is not None:
            assert outcome.mismatch.index == (position,)
            assert outcome.mismatch.wrong == 1


@pytest.mark.parametrize("name", FLOATS)
def test_exact_elements_equal_the_rounded_oracle(name: str) -> None:
    """T = 0: the neighbour of RN(oracle) is wrong, however near the oracle lies to the middle."""
    dtype = DTYPES[name]
    spacing = 2.0 ** (1 - dtype.precision)
    ref = np.array([1 + 0.49 * spacing, 1 + 0.51 * spacing], np.longdouble)
    assert judged(np.array([1.0, 1 + spacing]), ref, 0.0, name).mismatch is None
    assert judged(np.array([1 + spacing, 1 + spacing]), ref, 0.0, name).mismatch is not None
    assert judged(np.array([1.0, 1.0]), ref, 0.0, name).mismatch is not None


@pytest.mark.parametrize(
    ("got", "ref"),
    [
        (np.nan, 1.0), (1.0, np.nan), (np.inf, np.nan), (np.nan, np.inf), (np.inf, -np.inf), (-np.inf, np.inf),
        (np.inf, 1.0), (1.0, np.inf), (-3.4028234663852886e38, -np.inf), (-np.inf, -1e38), (0.0, np.nan),
    ],
)  # fmt: skip
def test_classes_are_never_swapped(got: float, ref: float) -> None:
    """NaN where and only where due, infinities with their sign; no finite number stands for an infinity."""
    assert judged(np.array([1.0, got]), np.array([1.0, ref]), 1e30).mismatch is not None


def test_nan_has_any_payload() -> None:
    """Only the class of a NaN counts, also in bitwise copies."""
    words = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32)
    nan = np.full(3, np.nan)
    assert judge(words, Expected(nan), F32, np.zeros(3, np.longdouble)).mismatch is None
    assert judge(words, Expected(nan, bitwise=True), F32, np.zeros(3, np.longdouble)).mismatch is None


def test_overflow_may_be_the_largest_number_or_infinity() -> None:
    """|ref| + T beyond the largest finite number: either fits, with the right sign; a smaller number does not."""
    top = F32.max_finite
    ref = np.array([top * (1 - 2.0**-26)])
    budget = top * 2.0**-22
    for got, right in ((np.inf, True), (top, True), (-np.inf, False), (np.nan, False), (top * 0.99, False)):
        assert (judged(np.array([got]), ref, budget).mismatch is None) == right, got


def test_sign_of_zero_counts_only_where_listed() -> None:
    """Strict for the operators that the registry lists."""
    got, ref = np.array([-0.0]), np.array([0.0])
    assert judged(got, ref).mismatch is None
    assert judged(got, ref, signed_zero=True).mismatch is not None
    assert judged(got, ref, bitwise=True).mismatch is not None


def test_flushing_is_right_only_when_declared() -> None:
    """FTZ_OUT lets a subnormal result be zero; undeclared flushing fails, and a normal one never may."""
    small = np.array([1e-40])
    assert judged(np.array([0.0]), small).mismatch is not None
    assert judged(np.array([0.0]), small, flush_out=True).mismatch is None
    assert judged(np.array([0.0]), np.array([1e-37]), flush_out=True).mismatch is not None
    assert judged(np.array([0.0]), -small, flush_out=True, signed_zero=True).mismatch is None
    assert judged(np.array([0.0]), np.array([-0.0]), flush_out=True, signed_zero=True).mismatch is not None


def test_one_wrong_element_of_many_fails() -> None:
    """No share of mismatches is forgiven."""
    ref = np.ones(100_000)
    got = ref.copy()
    got[77_777] = 1 + 2.0**-23
    outcome = judged(got, ref)
    assert outcome.mismatch is not None
    assert outcome.mismatch.index == (77_777,)


def test_budget_does_not_grow_with_wrong_elements() -> None:
    """A thousand elements off by 0.99 T earn the next one nothing."""
    ref = np.ones(1001)
    got = ref + 0.99 * 2.0**-10
    got[-1] = 1 + 1.01 * 2.0**-10
    outcome = judged(got, ref, 2.0**-10)
    assert outcome.mismatch is not None
    assert outcome.mismatch.wrong == 1


def test_bool_is_the_byte_zero_or_one() -> None:
    """Any other byte is wrong, though C would take it for true."""
    expected = Expected(np.array([True, False]))
    zero = np.zeros(2, np.longdouble)
    assert judge(np.array([1, 0], np.uint8), expected, DTYPES["bool"], zero).mismatch is None
    assert judge(np.array([0xFF, 0], np.uint8), expected, DTYPES["bool"], zero).mismatch is not None


def test_integers_never_go_through_floats() -> None:
    """2^53 and 2^53 + 1 differ."""
    expected = Expected(np.array([2**53 + 1]))
    words = np.array([2**53], np.int64).view(np.uint64)
    assert judge(words, expected, DTYPES["i64"], np.zeros(1, np.longdouble)).mismatch is not None


def test_unspecified_elements_are_left_alone() -> None:
    """`care` masks elements; their neighbours still count."""
    expected = Expected(np.array([1.0, 2.0]), care=np.array([False, True]))
    zero = np.zeros(2, np.longdouble)
    assert judge(to_bits(np.array([9, 2], np.float32), F32), expected, F32, zero).mismatch is None
    assert judge(to_bits(np.array([1, 9], np.float32), F32), expected, F32, zero).mismatch is not None


def test_what_a_witness_accepts_is_no_distance() -> None:
    """A random number that no bits were promised for is right or wrong, never so many budgets away."""

    def accept(got: Array) -> Array:
        return np.asarray((got >= 0) & (got < 1))

    outcome = judged(np.array([0.25, 0.75]), np.array([0.5, 0.5]), 2.0**-23, accept=accept)
    assert (outcome.mismatch, outcome.worst) == (None, 0.0)
    wrong = judged(np.array([0.25, 1.5]), np.array([0.5, 0.5]), 2.0**-23, accept=accept)
    assert wrong.mismatch is not None
    assert wrong.mismatch.index == (1,)


def test_worst_ratio_is_reported() -> None:
    """The largest err/T and where it was."""
    outcome = judged(np.array([1.0, 1.25, 1.125]), np.ones(3), 0.5)
    assert outcome.worst == pytest.approx(0.5)
    assert outcome.worst_index == (1,)
