"""Values, layouts and comparison for the tests of kernels that compute element by element or move elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .kernel_runner import DTYPES, spread_strides

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")
BITS = (*INTEGERS, "bool")
SHAPE = (3, 5, 7)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, -3.0, float("inf"), float("-inf"), float("nan"))

Function = Callable[..., torch.Tensor]


def values(dtype: str, seed: int, shape: Sequence[int] = SHAPE) -> torch.Tensor:
    """Both signs and the edges of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.Size(shape).numel())
    if dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    if dtype in FLOATS:
        flat = torch.randn(count, generator=generator, dtype=torch.float64) * 3
        order = torch.randperm(len(SPECIAL), generator=generator)[:count]
        flat[: len(order)] = torch.tensor(SPECIAL, dtype=torch.float64)[order]
        return flat.to(DTYPES[dtype]).reshape(tuple(shape))
    info = torch.iinfo(DTYPES[dtype])
    flat = torch.randint(info.min, info.max, (count,), generator=generator, dtype=torch.int64)
    small = torch.randint(max(info.min, -4), 5, (count,), generator=generator, dtype=torch.int64)
    flat = torch.where(torch.arange(count) % 2 == 0, flat, small)
    flat[:3] = torch.tensor([info.min, info.max, info.min])[:count]
    return flat.to(DTYPES[dtype]).reshape(tuple(shape))


def nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor == 0, torch.ones_like(tensor), tensor)


def layouts(dtype: str, seed: int) -> Iterator[tuple[torch.Tensor, tuple[int, ...] | None]]:
    """An input and the strides of the output: contiguous, permuted, with holes, broadcast, empty, of rank 0 and 8."""
    yield values(dtype, seed), None
    yield values(dtype, seed + 1, (7, 5, 3)).permute(2, 1, 0), spread_strides(SHAPE)
    yield values(dtype, seed + 2, (3, 1, 7)).expand(SHAPE), None
    yield values(dtype, seed + 3, (3, 5, 14))[..., ::2], None
    yield values(dtype, seed + 4, (3, 0, 7)), None
    yield values(dtype, seed + 5, (33,))[20], None
    yield values(dtype, seed + 6, (2, 1, 2, 1, 2, 1, 2, 3)), spread_strides((2, 1, 2, 1, 2, 1, 2, 3))


def number(dtype: str, value: float) -> dict[str, Any]:
    if dtype == "bool":
        return {"bool": bool(value)}
    return {"float": float(value)} if dtype in FLOATS else {"int": int(value)}


def agree(got: torch.Tensor, expected: torch.Tensor, ulps: float = 0) -> None:
    """Equal, NaN with NaN; otherwise within `ulps` units in the last place of the expected value."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if not got.dtype.is_floating_point or ulps == 0:
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        return
    info = torch.finfo(got.dtype)
    bound = ulps * info.eps * expected.double().abs() + ulps * info.smallest_normal * info.eps
    wrong = (got.double() - expected.double()).abs() > bound
    wrong &= got.double() != expected.double()
    wrong |= got.isnan() != expected.isnan()
    assert not wrong.any(), (got[wrong][:5], expected[wrong][:5])
