"""Elements of inputs: one seeded generator per regime, each regime with one job (`torch_fl_spec.vocabulary.REGIMES`).

A case's structure and one value seed are drawn; everything here derives from that seed, so that shrinking a structure
never edits elements by hand. Arrays hold logical values (see dtypes.py) that are exact in their dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from torch_fl_spec.vocabulary import REPEATED_REGIMES

from torch_fl_conformance.dtypes import DTYPES, Array, DType, from_bits
from torch_fl_conformance.rounding import round_to
from torch_fl_conformance.windows import Windows

Rng = np.random.Generator


@dataclass(frozen=True)
class Draw:
    """What a generator needs to know beside dtype and shape.

    terms: elements (or products) that are added into one output element; magnitude: largest |v| of exact-integer
    data; domain: a key of vocabulary.DOMAINS; bound: exclusive limit of index values; cast_to: the type that
    `castable` values must fit; infinities: whether special values may hold them; ordinal: the tensor's place among
    the inputs (cross products of special values vary slowest in the first); windows: index values are places in a
    plane, each in the window of its output.
    """

    regime: str
    terms: int = 1
    magnitude: int = 7
    domain: str = "any"
    bound: int = 1
    cast_to: DType | None = None
    infinities: bool = True
    ordinal: int = 0
    inputs: int = 1
    elementwise: bool = True
    windows: Windows | None = None


def exact_magnitude(terms: int, products: bool, bits: int) -> int | None:
    """Largest odd m <= 7 with terms * m^2 <= 2^bits (m for sums): every order of addition is then exact."""
    for m in (7, 5, 3, 1):
        if max(terms, 1) * (m * m if products else m) <= 2**bits:
            return m
    return None


@cache
def specials(name: str, infinities: bool = True) -> Array:
    """The special values of a dtype: zeros, subnormals, normals, extremes, half-way values, infinities, NaN."""
    dtype = DTYPES[name]
    if dtype.kind == "bool":
        return np.array([False, True])
    if not dtype.is_float:
        wanted = [0, 1, 2, 3, 7, 10, 100, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31, 2**53]
        signed = [s * (v + d) for v in wanted for d in (-1, 0, 1) for s in (1, -1)] + [dtype.low, dtype.high]
        kept = sorted({v for v in signed if dtype.low <= v <= dtype.high}, key=lambda v: (abs(v), v))
        return np.array(kept, dtype.logical)
    p = dtype.precision
    values = [0.0, dtype.min_subnormal, 3 * dtype.min_subnormal, dtype.min_normal - dtype.min_subnormal]
    values += [dtype.min_normal, 0.25, 0.5, 1 - 2.0**-p, 1.0, 1 + 2.0 ** (1 - p), 1.5, 2.0, 2.5, 3.0, 3.5, 4.5]
    values += [float(np.pi / 2), float(np.pi), 10.0, 88.5, 89.0, 127.0, 255.0, 1e3, 2.0 ** (p - 1) - 0.5]
    values += [2.0**p - 1, 2.0**p, 2.0 ** (p + 1), 2.0 ** (dtype.emax // 2), dtype.max_finite]
    # half-way between two neighbours of a narrower type, to the even and to the odd side
    values += [v for q in (8, 11, 24) if q < p for v in (1 + 2.0**-q, 1 + 3 * 2.0**-q, 2.0**q + 1, 2.0**q + 3)]
    values += [np.inf] if infinities else []
    both = np.array([s * v for v in values for s in (1.0, -1.0)] + [np.nan])
    rounded = round_to(both, dtype)
    keep = np.isfinite(rounded) | ~np.isfinite(both)
    return np.asarray(rounded[keep])


def special_count(name: str, infinities: bool = True) -> int:
    """How many special values a dtype has: a cross product of two inputs needs its square of elements."""
    return int(specials(name, infinities).size)


def generate(dtype: DType, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    """Logical values of one input tensor."""
    if draw.domain == "index":
        return _indices(dtype, shape, draw, rng)
    if dtype.kind == "bool":
        if draw.regime == "constant":
            return np.full(shape, bool(rng.integers(2)))
        return _thinned(np.asarray(rng.integers(0, 2, shape).astype(np.bool_)), draw, rng)
    values = _floats(dtype, shape, draw, rng) if dtype.is_float else _integers(dtype, shape, draw, rng)
    return _thinned(_into_domain(values.reshape(shape), dtype, draw, rng), draw, rng)


def _thinned(values: Array, draw: Draw, rng: Rng) -> Array:
    """Domain `sparse`: about 0.7 of `terms` elements stay, so that one that is overlooked shows."""
    if draw.domain != "sparse":
        return values
    return np.where(rng.uniform(0, 1, values.shape) < 0.7 / draw.terms, values, np.zeros((), values.dtype))


def _indices(dtype: DType, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    if draw.windows is not None:
        return draw.windows.random_places(shape, rng)
    if draw.regime == "constant":  # all equal: the hardest duplicates
        return np.full(shape, rng.integers(draw.bound), dtype.logical)
    return np.asarray(rng.integers(0, max(draw.bound, 1), shape).astype(dtype.logical))


def _chosen(options: ArrayLike, shape: tuple[int, ...], rng: Rng) -> Array:
    """What rng.choice gives, in half its time."""
    source = np.asarray(options)
    return np.asarray(source[rng.integers(0, source.size, shape)])


def _odd(shape: tuple[int, ...], magnitude: int, rng: Rng) -> Array:
    """Odd integers |v| <= magnitude: no zero, since a zero hides a dropped index."""
    count = (magnitude + 1) // 2
    return np.asarray((2 * rng.integers(0, count, shape) + 1) * _chosen([-1, 1], shape, rng))


def _cross(values: Array, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    """Input `ordinal` of the cross product of `values` with itself along row-major order.

    The last two inputs are its factors. An earlier one runs along their diagonals, from a place of chance's, so that
    every two inputs meet in all pairs within values.size^2 elements, and other triples in each draw.
    """
    index = np.arange(math.prod(shape))
    inner, outer = index % values.size, index // values.size
    place = {1: inner, 2: outer}.get(draw.inputs - draw.ordinal)
    if place is None:
        place = inner + outer + rng.integers(values.size)
    return np.asarray(values[place % values.size])


def _floats(dtype: DType, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    regime = draw.regime
    if regime == "exhaustive":
        words = np.arange(math.prod(shape), dtype=np.uint64).astype(dtype.storage)
        return from_bits(words, dtype)
    if regime == "special":
        if draw.elementwise:
            return _cross(specials(dtype.name, draw.infinities), shape, draw, rng)
        return _sprinkled(dtype, shape, draw, rng)
    if regime == "exact_integer":
        return round_to(_odd(shape, draw.magnitude, rng).astype(np.float64), dtype)
    if regime == "few":
        return round_to(_chosen([0.1, 0.3, -0.7], shape, rng), dtype)
    if regime == "constant":
        return round_to(np.full(shape, rng.standard_normal() + 0.1), dtype)
    if regime == "wide" and draw.elementwise and draw.domain in ("any", "positive"):
        return _all_magnitudes(dtype, shape, rng)
    return round_to(_reals(regime, dtype, shape, rng), dtype)


def _reals(regime: str, dtype: DType, shape: tuple[int, ...], rng: Rng) -> Array:
    """Unrounded values of the regimes with random mantissas."""
    z = rng.standard_normal(shape)
    if regime == "wide":
        return np.asarray(z * np.exp2(rng.uniform(-10, 10, shape)))
    if regime == "cancel":
        # pairs +big, -big in neighbouring places with small values between: a narrow accumulator loses the small
        flat = z.ravel().copy()
        big = 2.0 ** min(dtype.precision - 2, 12)
        pairs = flat.size // 4
        at = rng.permutation(flat.size // 2)[:pairs] * 2
        large = big * (1 + rng.uniform(0, 1, at.size))
        flat[at], flat[at + 1] = large, -large
        return np.asarray(flat.reshape(shape))
    if regime == "offset":
        # mean of 1000 standard deviations, where the type can tell such neighbours apart
        return np.asarray(z + (1000.0 if dtype.precision >= 24 else 30.0))
    if regime == "tiny":
        scale = rng.choice([1e-3, 2.0 ** (dtype.emin + 3)])
        return np.asarray(z * scale + (1.0 if scale == 1e-3 and dtype.precision >= 24 else 0.0))
    if regime == "big_logits":
        return np.asarray(_chosen([-1.0, 1.0], shape, rng) * (88 + 4 * np.abs(z)) + z)
    return np.asarray(z)


def _all_magnitudes(dtype: DType, shape: tuple[int, ...], rng: Rng) -> Array:
    """Half moderate values, half uniformly random finite bit patterns: every binade, subnormals included."""
    moderate = round_to(_reals("wide", dtype, shape, rng), dtype)
    words = rng.integers(0, 2 ** (8 * dtype.size), shape, dtype=np.uint64, endpoint=False)
    patterns = from_bits(words.astype(dtype.storage), dtype).reshape(shape)
    usable = np.isfinite(patterns) & rng.integers(0, 2, shape).astype(bool)
    return np.where(usable, patterns, moderate).astype(dtype.logical)


def _sprinkled(dtype: DType, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    """Normal values among which about one output in two meets a special one."""
    values = rng.standard_normal(shape)
    hit = rng.uniform(0, 1, shape) < 0.7 / max(draw.terms, 1)
    special = [0.0, np.nan, -0.0, dtype.min_subnormal, -dtype.min_normal]
    special += [np.inf, -np.inf] if draw.infinities else []
    values = np.where(hit, _chosen(special, shape, rng), values)
    flat = values.ravel()
    if flat.size >= 3:  # whatever the chance: zero and NaN occur, and all classes where there is room
        spots = rng.permutation(flat.size)[: min(len(special), max(flat.size // 2, 2))]
        flat[spots] = special[: spots.size]
    return round_to(flat.reshape(shape), dtype)


def _integers(dtype: DType, shape: tuple[int, ...], draw: Draw, rng: Rng) -> Array:
    regime = draw.regime
    if regime == "exhaustive":
        return np.arange(math.prod(shape), dtype=np.uint64).astype(dtype.storage).view(dtype.logical)
    if regime == "special" and draw.elementwise:
        return _cross(specials(dtype.name), shape, draw, rng)
    if regime == "exact_integer":
        values = _odd(shape, draw.magnitude, rng)
        return np.asarray((np.abs(values) if dtype.low == 0 else values).astype(dtype.logical))
    if regime == "few":
        return _chosen(np.array([0, 1, 3], dtype.logical), shape, rng)
    if regime == "constant":
        return np.full(shape, rng.integers(1, 100), dtype.logical)
    values = rng.integers(dtype.low, dtype.high, shape, dtype=dtype.logical, endpoint=True)
    edges = _chosen(specials(dtype.name), shape, rng)
    return np.where(rng.uniform(0, 1, shape) < 0.3, edges, values).astype(dtype.logical)


def _into_domain(values: Array, dtype: DType, draw: Draw, rng: Rng) -> Array:
    """Bring values into the slot's domain (vocabulary.DOMAINS)."""
    domain = draw.domain
    if domain == "any":
        return values
    with np.errstate(all="ignore"):
        if domain == "positive" and draw.regime not in ("special", "exhaustive"):
            return np.abs(values)
        if domain == "negative" and draw.regime not in ("special", "exhaustive"):
            return -np.abs(values)
        if domain == "unit" and dtype.is_float and draw.regime not in ("special", "exhaustive"):
            return np.where(np.abs(values) > 16, np.copysign(values % 16, values), values).astype(dtype.logical)
        # integer divisors of zero may fail the stream: recipes of their own have them (FL-KERNEL-013)
        if domain == "nonzero" and not dtype.is_float:
            return np.where(values == 0, np.asarray(3, dtype.logical), values)
        if domain == "nonnegative" and not dtype.is_float:
            return np.asarray((values % np.asarray(67, dtype.logical)).astype(dtype.logical))
        if domain == "in_range_product" and draw.regime not in ("exact_integer", "special") and dtype.is_float:
            # |log2 of any partial product| stays below 100 (f16 results may still leave their own range)
            spread = min(1.0, 60.0 / max(draw.terms, 1) ** 0.5 / 4)
            logs = np.clip(np.nan_to_num(values.astype(np.float64)), -2, 2) * spread
            return round_to(np.copysign(np.exp2(logs), values), dtype)
        if domain == "castable" and draw.cast_to is not None and dtype.is_float:
            return _castable(values, dtype, draw.cast_to, rng)
    return values


def _castable(values: Array, dtype: DType, target: DType, rng: Rng) -> Array:
    """Keep floats whose truncation lies in the integer target's range; replace the others by ones that do."""
    if target.is_float or target.kind == "bool":
        return values
    limit = min(float(target.high), dtype.max_finite) * 0.98  # far enough inside to stay there when rounded
    with np.errstate(all="ignore"):
        inside = np.isfinite(values) & (values > float(target.low) - 1) & (np.abs(values) < limit)
    sizes = np.exp2(rng.uniform(-1, np.log2(limit), values.shape))
    others = round_to(np.where(rng.integers(0, 2, values.shape) == 0, sizes, -sizes if target.low < 0 else 0), dtype)
    # moderate values alone would show nothing of a wide target
    keep = inside & (rng.uniform(0, 1, values.shape) < 0.7)
    return np.where(keep, values, others).astype(dtype.logical)


def is_repeated(regime: str) -> bool:
    """Whether the regime's data hold few distinct values (kappa(h) = h)."""
    return regime in REPEATED_REGIMES
