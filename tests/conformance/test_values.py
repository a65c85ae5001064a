"""Regimes: each does its one job, and every value is exact in its dtype."""

from __future__ import annotations

import numpy as np
import pytest
from torch_fl_conformance.dtypes import DTYPES, from_bits, to_bits
from torch_fl_conformance.rounding import round_to
from torch_fl_conformance.values import Draw, exact_magnitude, generate, special_count, specials
from torch_fl_spec.vocabulary import ALL, FLOATS, INTS, REGIMES


def rng(seed: int = 0) -> np.random.Generator:
    """A generator of its own for each test."""
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("elementwise", [True, False])
def test_values_are_exact_in_their_dtype(name: str, regime: str, elementwise: bool) -> None:
    """Packing and unpacking changes nothing."""
    dtype = DTYPES[name]
    values = generate(dtype, (9, 31), Draw(regime, terms=31, elementwise=elementwise), rng())
    assert values.shape == (9, 31)
    assert values.dtype == dtype.logical
    again = from_bits(to_bits(values, dtype), dtype)
    assert np.array_equal(again, values, equal_nan=dtype.is_float)
    if dtype.is_float:
        finite = values[np.isfinite(values)].astype(np.float64)
        assert np.array_equal(round_to(finite, dtype).astype(np.float64), finite)


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides(name: str) -> None:
    """Equal seeds give equal elements, others differ."""
    dtype = DTYPES[name]
    regime = "boolean" if name == "bool" else "full_range" if name in INTS else "normal"
    first, again, other = (generate(dtype, (64,), Draw(regime), rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", [*FLOATS, *INTS])
def test_exact_integers_are_odd(name: str) -> None:
    """No zero among them: a zero hides a dropped index."""
    values = generate(DTYPES[name], (500,), Draw("exact_integer"), rng()).astype(np.int64)
    assert (values % 2 != 0).all()
    assert np.abs(values).max() == 7


@pytest.mark.parametrize(
    ("terms", "products", "bits", "m"),
    [(342_392, True, 24, 7), (342_393, True, 24, 5), (2048, True, 11, 1), (2049, True, 11, None), (256, False, 8, 1)],
)
def test_exact_magnitude_is_the_largest_that_fits(terms: int, products: bool, bits: int, m: int | None) -> None:
    """terms * m^2 <= 2^bits."""
    assert exact_magnitude(terms, products, bits) == m


@pytest.mark.parametrize("name", FLOATS)
def test_specials_hold_every_class(name: str) -> None:
    """Both zeros, subnormals, extremes, infinities, NaN, ties; without infinities where asked."""
    values = specials(name)
    dtype = DTYPES[name]
    assert {0.0} == {abs(v) for v in values[values == 0].tolist()}
    assert np.signbit(values[values == 0]).any()
    assert np.isnan(values).any()
    assert np.isinf(values).sum() == 2
    assert (np.abs(values[values != 0]) < dtype.min_normal).any()
    assert np.nanmax(values[np.isfinite(values)]) == dtype.max_finite
    assert not np.isinf(specials(name, False)).any()


@pytest.mark.parametrize("name", ["f32", "i32"])
def test_cross_product_is_complete(name: str) -> None:
    """Two inputs meet in every pair."""
    count = special_count(name)
    x, y = (
        generate(DTYPES[name], (count * count,), Draw("special", ordinal=place, inputs=2), rng()) for place in (0, 1)
    )
    pairs = {(a, b) for a, b in zip(to_bits(x, DTYPES[name]).tolist(), to_bits(y, DTYPES[name]).tolist(), strict=True)}
    assert len(pairs) == len(set(to_bits(specials(name), DTYPES[name]).tolist())) ** 2


@pytest.mark.parametrize("name", ["f32", "i8"])
def test_of_three_inputs_every_two_meet_in_all_pairs(name: str) -> None:
    """Within as many elements as two inputs need."""
    count, dtype = special_count(name), DTYPES[name]
    columns = [
        to_bits(generate(dtype, (count * count,), Draw("special", ordinal=place, inputs=3), rng()), dtype).tolist()
        for place in range(3)
    ]
    wanted = len(set(to_bits(specials(name), dtype).tolist())) ** 2
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(set(zip(columns[one], columns[other], strict=True))) == wanted


@pytest.mark.parametrize("name", ["f16", "bf16", "i8", "u8"])
def test_exhaustive_is_every_bit_pattern(name: str) -> None:
    """All 256 or 65,536 words."""
    dtype = DTYPES[name]
    count = 2 ** (8 * dtype.size)
    values = generate(dtype, (count,), Draw("exhaustive"), rng())
    assert np.array_equal(np.sort(to_bits(values, dtype).view(f"u{dtype.size}").ravel()), np.arange(count))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("regime", ["normal", "wide", "special"])
def test_castable_values_lie_in_range(source: str, target: str, regime: str) -> None:
    """Truncation of every value fits the integer type, for there C leaves the rest undefined."""
    kind = DTYPES[target]
    values = generate(DTYPES[source], (4000,), Draw(regime, domain="castable", cast_to=kind), rng())
    whole = [int(v) for v in values.astype(np.float64).tolist()]
    assert all(kind.low <= v <= kind.high for v in whole)
    assert len(set(whole)) > 10


def test_domains() -> None:
    """Divisors without zero, exponents without sign, indices inside, arguments of moderate size."""
    i32, f32 = DTYPES["i32"], DTYPES["f32"]
    assert (generate(i32, (4000,), Draw("few", domain="nonzero"), rng()) != 0).all()
    assert (generate(i32, (4000,), Draw("special", domain="nonzero"), rng()) != 0).all()
    assert (generate(i32, (4000,), Draw("full_range", domain="nonnegative"), rng()) >= 0).all()
    index = generate(DTYPES["i64"], (4000,), Draw("normal", domain="index", bound=7), rng())
    assert (index.min(), index.max()) == (0, 6)
    assert np.abs(generate(f32, (4000,), Draw("wide", domain="unit"), rng())).max() <= 16
    assert (generate(f32, (4000,), Draw("wide", domain="positive"), rng()) >= 0).all()


def test_cancelling_pairs_cancel() -> None:
    """The large values sum to nothing; what remains is small."""
    x = generate(DTYPES["f32"], (4096,), Draw("cancel", elementwise=False), rng()).astype(np.float64)
    assert np.abs(x).max() > 1000
    assert abs(x.sum()) < 400
