"""What random rows owe beyond single cases: purity, seeds and offsets that matter, and the right distribution.

Rows with FL_ROW_PHILOX_EXACT have met exact values already; the statistics are for all, since they also see what one
small case cannot, such as tails cut off at four standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
from torch_fl_spec.registry import Operator

from torch_fl_conformance import random_mask
from torch_fl_conformance.case_judge import run_alone
from torch_fl_conformance.draw_random import drops, numbers_call
from torch_fl_conformance.dtypes import DTYPES, Array, from_bits
from torch_fl_conformance.kernel_case import CaseDriver
from torch_fl_conformance.kernel_row import KernelRow
from torch_fl_conformance.layout_blocks import Layout
from torch_fl_conformance.problem import Claim, Problem, Recipe

ALPHA = 1e-6  # false alarms per statistical cell
_RULE = ("FL-KERNEL-014",)


def judge_statistics(
    row: KernelRow, driver: CaseDriver, operator: Operator, claim: Claim, *, device: str, seed: int, count: int
) -> None:
    """Judge purity, independence and distribution of one row on `count` elements per sequence."""
    row.require("seed_pair", "offset_pair")
    generator = np.random.Generator(np.random.PCG64(seed))
    first_seed = int(generator.integers(1, 2**62))
    offset = int(generator.integers(0, 2**33))
    p = random_mask.probability(int(generator.integers(2**16))) if drops(operator) else None

    def sequence(seed: int, offset: int, values: int = 0) -> tuple[Array, int]:
        if p is None:
            problem = _sample(operator, claim, seed, offset, count)
        else:
            problem = random_mask.sample(operator, claim, seed, offset, count, p, values)
        row.case(device=device, **problem.describe())
        words, plan = run_alone(driver, problem, device)
        increment = int(plan["rng_increment"])
        if p is not None:
            return random_mask.mask_of(row, problem, words), increment
        return from_bits(words["out"], DTYPES[claim.dtypes[0]]).astype(np.float64), increment

    sample, increment = sequence(first_seed, offset)
    again, _ = sequence(first_seed, offset, values=1)
    if not np.array_equal(sample, again):
        row.fail(
            f"{operator.op}: equal seed and offset gave other bits", violates=_RULE, seed=first_seed, offset=offset
        )
    if increment < 1:
        row.fail(f"{operator.op}: rng_increment {increment} for {count} elements", violates=_RULE)
    for label, other in (("seed_pair", (first_seed + 1, offset)), ("offset_pair", (first_seed, offset + increment))):
        further, _ = sequence(*other)
        row.label(label)
        if p is None:
            _check_unrelated(row, operator, label, sample, further, DTYPES[claim.dtypes[0]].precision)
        else:
            random_mask.check_unrelated(row, operator, label, sample, further, p)
    if p is None:
        _check_distribution(row, operator, claim, sample)
    else:
        random_mask.check_share(row, operator, sample, p)
        _check_serial(row, operator, sample)


def _sample(operator: Operator, claim: Claim, seed: int, offset: int, count: int) -> Problem:
    """A standard sample of `count` elements in one dimension."""
    structure = numbers_call(operator, DTYPES[claim.dtypes[0]], (count,), (0.0, 1.0), seed, offset)
    return Problem(operator, claim, Recipe(placement="own"), structure, {"out": Layout((1,), 1)}, None, seed % 2**32)


def _check_unrelated(
    row: KernelRow, operator: Operator, label: str, sample: Array, other: Array, precision: int
) -> None:
    """Another seed, or the next offset, must give other numbers: neither equal in place nor shifted copies."""
    for shift in (0, 1, 2, 4):
        n = sample.size - shift
        equal = float(np.mean(sample[shift : shift + n] == other[:n]))
        # coarse types coincide by chance: at most a few per cent of 8-bit values
        limit = 0.1 if precision <= 11 else 0.001
        if equal > limit:
            row.fail(
                f"{operator.op}: {equal:.1%} of the elements of a {label} agree at a shift of {shift}",
                violates=_RULE,
            )


def _check_distribution(row: KernelRow, operator: Operator, claim: Claim, sample: Array) -> None:
    dtype = DTYPES[claim.dtypes[0]]
    if not np.isfinite(sample).all():
        row.fail(f"{operator.op}: a sample holds values that are not finite", violates=_RULE)
    is_normal = operator.short_name.startswith("normal")
    grid = 2.0**-8 if dtype.name == "bf16" else 2.0**-11 if dtype.name == "f16" else 0.0
    if not is_normal and (sample.min() < 0 or sample.max() >= 1):
        row.fail(f"{operator.op}: values in [{sample.min()}, {sample.max()}], the range is [0, 1)", violates=_RULE)
    cumulative = _normal_cdf(np.sort(sample)) if is_normal else np.sort(sample)
    n = sample.size
    ranks = np.arange(1, n + 1) / n
    distance = float(np.max(np.maximum(ranks - cumulative, cumulative - ranks + 1 / n)))
    # Kolmogorov's bound (Massart 1990), widened by the type's grid
    limit = math.sqrt(-math.log(ALPHA / 2) / (2 * n)) + grid
    if distance > limit:
        row.fail(
            f"{operator.op}: Kolmogorov-Smirnov distance {distance:.5f} over {n} elements, at most {limit:.5f} fits",
            violates=_RULE,
        )
    _check_serial(row, operator, sample)
    if is_normal:
        _check_moments(row, operator, sample)
        _check_tails(row, operator, sample)


def _check_serial(row: KernelRow, operator: Operator, sample: Array) -> None:
    """Neighbours are uncorrelated: |r| sqrt(n) stays below the normal quantile of ALPHA."""
    centred = sample - sample.mean()
    for lag in (1, 2, 3, 4):
        r = float(np.mean(centred[lag:] * centred[:-lag]) / np.mean(centred**2))
        if abs(r) * math.sqrt(sample.size) > 5.0:
            row.fail(f"{operator.op}: serial correlation {r:.4f} at lag {lag}", violates=_RULE)


def _check_moments(row: KernelRow, operator: Operator, sample: Array) -> None:
    """Mean and variance, each within 5 of its own standard deviations (1 and sqrt(2) over the root of the count)."""
    for what, got, due, spread in (
        ("mean", float(sample.mean()), 0.0, 1.0),
        ("variance", float(np.mean(sample**2)), 1.0, math.sqrt(2)),
    ):
        limit = 5.0 * spread / math.sqrt(sample.size)
        if abs(got - due) > limit:
            row.fail(f"{operator.op}: the {what} is {got:.5f}, expected {due} within {limit:.5f}", violates=_RULE)


def _check_tails(row: KernelRow, operator: Operator, sample: Array) -> None:
    """Counts beyond 3 and 4 standard deviations are Poisson: P(k | mean) must not fall below ALPHA."""
    for edge in (3.0, 4.0):
        for side in (-1, 0, 1):  # 0: both, where each alone holds too few
            values = np.abs(sample) if side == 0 else sample * side
            mean = sample.size * (0.5 if side else 1.0) * math.erfc(edge / math.sqrt(2))
            count = int(np.sum(values > edge))
            low = sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count + 1))
            above = mean + 6 * math.sqrt(mean) + 6
            where = f"{side * edge:+g}" if side else f"+-{edge:g}"
            if (mean > 14 and low < ALPHA) or count > above:
                row.fail(
                    f"{operator.op}: {count} of {sample.size} elements beyond {where}, expected {mean:.1f}",
                    violates=_RULE,
                )


def _normal_cdf(x: Array) -> Array:
    return np.asarray(0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2)))
