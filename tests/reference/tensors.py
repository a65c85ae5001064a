"""Inputs in all layouts, and comparison within an error bound, for the tests of the reference kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .kernel_runner import DTYPES

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
LAYOUTS = ("contiguous", "reversed", "gaps", "stride_zero")

_PRECISION = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}  # bits, least exponent


def unit_roundoff(dtype: str) -> float:
    """Half the distance from 1 to its upper neighbour."""
    return math.ldexp(1.0, -_PRECISION[dtype][0])


def accumulator(dtype: str) -> float:
    """Unit roundoff of what a float row accumulates in: f32, or f64 for f64."""
    return unit_roundoff("f64" if dtype == "f64" else "f32")


def kappa(additions: int) -> float:
    """Growth of rounding errors over a path of additions, for values without pattern: min(h, 6 sqrt h)."""
    return min(float(additions), 6.0 * math.sqrt(additions))


def half_spacing(reference: torch.Tensor, dtype: str) -> torch.Tensor:
    """Half the distance between neighbours of the dtype around each f64 value."""
    bits, least = _PRECISION[dtype]
    exponent = torch.frexp(reference.abs()).exponent - 1
    exponent = torch.where(reference == 0, torch.full_like(exponent, least), exponent).clamp(min=least)
    return torch.ldexp(torch.ones_like(reference), exponent - bits)


def draw(dtype: str, shape: Sequence[int], layout: str, seed: int, scale: float = 1.0) -> torch.Tensor:
    """Random values: normal ones times scale, integers of the full range, fair booleans, in the given layout."""
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(shape)
    stored = {
        "contiguous": shape,
        "reversed": tuple(reversed(shape)),
        "gaps": tuple(2 * size + 1 for size in shape),
        "stride_zero": (1, *shape[1:]),
    }[layout]
    if dtype in FLOATS:
        dense = (torch.randn(stored, generator=generator, dtype=torch.float64) * scale).to(DTYPES[dtype])
    elif dtype == "bool":
        dense = torch.randint(0, 2, stored, generator=generator).to(torch.bool)
    else:
        info = torch.iinfo(DTYPES[dtype])
        high = min(info.max, 2**62)
        dense = torch.randint(max(info.min, -high), high, stored, generator=generator).to(DTYPES[dtype])
    if layout == "reversed":
        return dense.permute(tuple(reversed(range(len(shape)))))
    if layout == "gaps":
        return dense[tuple(slice(1, None, 2) for _ in shape)] if shape else dense
    if layout == "stride_zero":
        return dense.expand(shape) if shape else dense.reshape(())
    return dense


def assert_within(actual: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor | float, dtype: str) -> None:
    """Every element: NaN exactly where the reference has it, else at most bound + half a spacing away from it."""
    assert actual.shape == reference.shape
    got = actual.double()
    nan = torch.isnan(reference)
    assert torch.equal(torch.isnan(got), nan), "NaN in the wrong places"
    allowed = torch.as_tensor(bound, dtype=torch.float64) + half_spacing(reference, dtype)
    close = (got - reference).abs() <= allowed
    largest = torch.finfo(DTYPES[dtype]).max
    overflow = (reference.abs() + allowed > largest) & torch.isinf(got) & (got.sign() == reference.sign())
    wrong = ~(close | (got == reference) | nan | overflow)
    assert not wrong.any(), f"{int(wrong.sum())} elements off, e.g. {got[wrong][0]} for {reference[wrong][0]}"
