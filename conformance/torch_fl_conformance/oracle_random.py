"""Expected values of random operators: Philox's numbers; where a row promises no bits, what any of them may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torch_fl_conformance import philox
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array, DType, compute_type, from_bits, to_bits
from torch_fl_conformance.oracle_maths import widen
from torch_fl_conformance.rounding import round_to

_WIDE = np.longdouble


def uniform(params: Mapping[str, Any], shape: tuple[int, ...], dtype: DType, exact: bool) -> Expected:
    """from + u * (to - from), never `to`."""
    low, high = params["from"], params["to"]
    unit = philox.uniform(params["seed"], params["offset"], int(np.prod(shape)), dtype).astype(_WIDE)
    value = (_WIDE(low) + unit * (_WIDE(high) - _WIDE(low))).reshape(shape)

    def fits(got: Array) -> Array:
        return np.asarray((got >= low) & (got < high))

    if not exact:
        return Expected(value, accept=fits)
    # the upper end itself is never given: where rounding would reach it, its lower neighbour is due
    end = to_bits(round_to(np.asarray(high, np.float64), dtype), dtype)
    below = from_bits(end - 1 if high > 0 else end + 1, dtype).astype(_WIDE)
    return Expected(value, alternatives=[np.minimum(value, below)], forbid=lambda got: ~fits(got))


def normal(params: Mapping[str, Any], shape: tuple[int, ...], exact: bool) -> Expected:
    """mean + std * z."""
    mean, std = params["mean"], params["std"]
    unit = philox.normal(params["seed"], params["offset"], int(np.prod(shape)))
    value = (_WIDE(mean) + unit * _WIDE(std)).reshape(shape)
    return Expected(value, accept=None if exact else lambda got: np.asarray(np.abs(got - mean) <= 10 * std))


def dropout(data: Array, params: Mapping[str, Any], dtype: DType, exact: bool) -> dict[str, Expected]:
    """out = data * mask / (1 - p) and the mask; where it is free, both are made from the one that came back."""
    u = philox.uniform(params["seed"], params["offset"], data.size, DTYPES["f32"])  # of f32, whatever the dtype is
    mask = (u >= params["p"]).reshape(data.shape)
    x = widen(data, dtype)
    rest = 1 - x.dtype.type(params["p"])
    # what is scaled before it is dropped may overflow first, and infinity times 0 is NaN
    care = ~np.isfinite(x) | (np.abs(x / rest) <= compute_type(dtype).max_finite)
    if exact:
        return {"out": Expected(x * mask / rest, care=care), "mask": Expected(mask)}

    def came_back(words: Mapping[str, Array]) -> Array:
        return np.asarray(words["mask"] != 0)

    return {
        "out": Expected(x * mask / rest, care=care, given=(lambda words: x * came_back(words) / rest,)),
        "mask": Expected(mask, given=(came_back,)),
    }
