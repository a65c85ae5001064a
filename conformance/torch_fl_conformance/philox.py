"""Philox4x32-10 and the numbers made from it, as SPEC.md's registry annex lays down (FL-KERNEL-014).

Key = (low, high 32 bits of the seed), counter = (low, high 32 bits of c, 0, 0) with c = offset + group.
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import numpy as np

from torch_fl_conformance.dtypes import DTYPES, Array, DType

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_UNIFORM_BITS = {"f32": 24, "f16": 11, "bf16": 8}


def words(seed: int, first: int, count: int) -> Array:
    """The four 32-bit words of `count` counters from `first` on: uint64 [count, 4]."""
    counter = np.uint64(first % 2**64) + np.arange(count, dtype=np.uint64)
    c = [counter & _LOW, counter >> _SHIFT, np.zeros_like(counter), np.zeros_like(counter)]
    key = [np.uint64(seed % 2**64) & _LOW, np.uint64(seed % 2**64) >> _SHIFT]
    for _ in range(10):
        left, right = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = [
            (right >> _SHIFT) ^ c[1] ^ key[0],
            right & _LOW,
            (left >> _SHIFT) ^ c[3] ^ key[1],
            left & _LOW,
        ]
        key = [(key[0] + _WEYL[0]) & _LOW, (key[1] + _WEYL[1]) & _LOW]
    return np.stack(c, axis=1)


def values_per_counter(dtype: DType, normal: bool) -> int:
    """How many output elements one counter serves."""
    return 2 if normal or dtype.name == "f64" else 4


def counters(numel: int, dtype: DType, normal: bool) -> int:
    """plan's rng_increment: counters consumed by `numel` elements."""
    return -(-numel // values_per_counter(dtype, normal))


def _doubles(seed: int, offset: int, count: int) -> Array:
    """53-bit integers, two per counter: [count, 2]."""
    w = words(seed, offset, count)
    pairs = np.stack([w[:, 1] << _SHIFT | w[:, 0], w[:, 3] << _SHIFT | w[:, 2]], axis=1)
    return np.asarray(pairs >> np.uint64(11))


def uniform(seed: int, offset: int, numel: int, dtype: DType) -> Array:
    """u = k * 2^-bits in [0, 1) by row-major index, float64 (exact)."""
    count = counters(numel, dtype, normal=False)
    if dtype.name == "f64":
        return np.asarray(_doubles(seed, offset, count).reshape(-1)[:numel] * 2.0**-53)
    bits = _UNIFORM_BITS[dtype.name]
    k = words(seed, offset, count).reshape(-1)[:numel] >> np.uint64(32 - bits)
    return np.asarray(k * 2.0**-bits)


def normal(seed: int, offset: int, numel: int) -> Array:
    """Standard normals by Box-Muller, in long double: z0 = r cos(2 pi u2), z1 = r sin(2 pi u2), r = sqrt(-2 ln u1)."""
    k = _doubles(seed, offset, counters(numel, DTYPES["f32"], normal=True)).astype(np.longdouble)
    scale = np.ldexp(np.longdouble(1), -53)
    radius = np.sqrt(-2 * np.log((k[:, 0] + 1) * scale))
    angle = 2 * np.arccos(np.longdouble(-1)) * (k[:, 1] * scale)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:numel]
