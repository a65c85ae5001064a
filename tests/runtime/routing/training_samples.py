"""Calls of the operators that training needs; like samples.py, for which it is the second half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .numbers import indices, number, values

Dtype = torch.dtype
_POOL = ([3, 2], [2, 1], [1, 0])  # window, stride, padding


def distinct(dtype: Dtype, *shape: int) -> torch.Tensor:
    """No two alike, so that the largest of any is one; every dtype holds them exactly up to 256."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    return (order - count // 2).reshape(shape).to(dtype)


def _max_pool_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    image = distinct(t["T"], 1, 2, 7, 8)
    out, places = torch.ops.aten.max_pool2d_with_indices(image, *_POOL, [1, 2])
    return values(t["T"], *out.shape, seed=2), image, *_POOL, [1, 2], False, places


def _average_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    image = values(t["T"], 2, 3, 7, 8)
    out = torch.ops.aten.avg_pool2d(image.float(), *_POOL)
    return values(t["T"], *out.shape, seed=2), image, *_POOL, False, False, None


def _convolution_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    image, weight = values(t["T"], 2, 4, 6, 7), values(t["T"], 6, 2, 3, 2)
    shape = ([2, 1], [1, 0], [1, 2], False, [0, 0], 2)
    out = torch.ops.aten.convolution(image.float(), weight.float(), None, *shape)
    return values(t["T"], *out.shape, seed=2), image, weight, [6], *shape, [True, True, True]


def _batch_norm(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    return values(t["T"], 4, 3, 5), values(t["S"], 3), values(t["S"], 3, seed=1), None, None, True, 0.25, 1e-5


def _batch_norm_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    x = values(t["T"], 4, 3, 5)
    mean = x.to(t["S"]).mean([0, 2])
    spread = (x.to(t["S"]).var([0, 2], correction=0) + 1e-5).rsqrt()
    statistics = (None, None, mean, spread)
    return values(t["T"], 4, 3, 5, seed=1), x, values(t["S"], 3), *statistics, True, 1e-5, [True, True, True]


def _nll_loss(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    return values(t["T"], 6, 5), indices(torch.int64, 5, 6), values(t["T"], 5, positive=True), 1, 2


def _nll_loss_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    scores, target, weight, reduction, ignored = _nll_loss(t)
    total = torch.ops.aten.nll_loss_forward(scores, target, weight, reduction, ignored)[1]
    return values(t["T"], seed=2), scores, target, weight, reduction, ignored, total


def _softmax_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    return values(t["T"], 3, 4, 5), torch.softmax(values(t["T"], 3, 4, 5, seed=1), -2), -2, t["T"]


def _log_softmax_backward(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    return values(t["T"], 3, 4, 5), torch.log_softmax(values(t["T"], 3, 4, 5, seed=1), -2), -2, t["T"]


def _three(t: Mapping[str, Dtype]) -> tuple[Any, ...]:
    return values(t["T"], 4, 5), values(t["T"], 4, 5, seed=1), values(t["T"], 4, 5, seed=2, positive=True)


MAKE: dict[str, Callable[[Mapping[str, Dtype]], tuple[Any, ...]]] = {
    "aten::threshold_backward": lambda t: (values(t["T"], 4, 5), values(t["T"], 4, 5, seed=1), 0.5),
    "aten::addcmul": _three,
    "aten::addcdiv": _three,
    "aten::lerp.Scalar": lambda t: (values(t["T"], 4, 5), values(t["T"], 4, 5, seed=1), 0.25),
    "aten::lerp.Tensor": _three,
    "aten::native_dropout_backward": lambda t: (values(t["T"], 4, 5), values(torch.bool, 4, 5), 2.0),
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _log_softmax_backward,
    "aten::native_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::nll_loss_forward": _nll_loss,
    "aten::nll_loss_backward": _nll_loss_backward,
    "aten::max_pool2d_with_indices": lambda t: (distinct(t["T"], 1, 2, 7, 8), *_POOL, [1, 2], True),
    "aten::max_pool2d_with_indices_backward": _max_pool_backward,
    "aten::avg_pool2d": lambda t: (values(t["T"], 2, 3, 7, 8), *_POOL, True, False, None),
    "aten::avg_pool2d_backward": _average_backward,
    "aten::_adaptive_avg_pool2d": lambda t: (values(t["T"], 2, 3, 7, 8), [3, 5]),
    "aten::_adaptive_avg_pool2d_backward": lambda t: (values(t["T"], 2, 3, 3, 5), values(t["T"], 2, 3, 7, 8)),
    "aten::convolution_backward": _convolution_backward,
}

KEYWORDS: dict[str, Callable[[Mapping[str, Dtype]], dict[str, Any]]] = {
    "aten::addcmul": lambda t: {"value": number(t["T"], 2.5)},
    "aten::addcdiv": lambda t: {"value": 2.5},
}
