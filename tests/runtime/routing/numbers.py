"""Numbers for calls that every dtype holds exactly, the same on every run."""

from __future__ import annotations

import math

import torch

Dtype = torch.dtype


def values(dtype: Dtype, *shape: int, seed: int = 0, positive: bool = False) -> torch.Tensor:
    """Small numbers of both signs, or from 1 up, that every dtype holds exactly; no zeros."""
    generator = torch.Generator().manual_seed(seed + 31 * len(shape) + math.prod(shape))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator) == 1
    numbers = torch.randint(1, 9, shape, generator=generator)
    if not positive and dtype is not torch.uint8:
        numbers *= 2 * torch.randint(0, 2, shape, generator=generator) - 1
    return (numbers / 4 if dtype.is_floating_point else numbers).to(dtype)


def indices(dtype: Dtype, limit: int, *shape: int) -> torch.Tensor:
    """Below the limit."""
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(limit)).to(dtype)


def number(dtype: Dtype, value: float) -> float | int | bool:
    """The number as one of the dtype's kind."""
    if dtype is torch.bool:
        return bool(value)
    return value if dtype.is_floating_point else int(value)
