"""Decompositions that torch's table lacks, in terms of operators that vendors' kernels serve.

Each takes the arguments of its operator, gives what the operator gives, and raises NotImplementedError, before anything
has changed, for arguments that it is not meant for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._refs
from torch import Tensor

aten = torch.ops.aten
OWN: dict[Any, Callable[..., Any]] = {}


def _serves(*ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OWN.update(dict.fromkeys(ops, function))
        return function

    return register


# ---- Extremes ------------------------------------------------------------------------------------------------------


@_serves(aten.max.default)
def largest(self: Tensor) -> Tensor:
    """Of all elements."""
    return torch.amax(_with_elements(self, "max"))


@_serves(aten.min.default)
def smallest(self: Tensor) -> Tensor:
    """Of all elements."""
    return torch.amin(_with_elements(self, "min"))


@_serves(aten.max.dim)
def largest_along(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The first of them, and where it is."""
    numbers = self.to(torch.uint8) if self.dtype is torch.bool else self
    return torch.amax(self, dim, keepdim), torch.argmax(numbers, dim, keepdim)


@_serves(aten.min.dim)
def smallest_along(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The first of them, and where it is."""
    return torch.amin(self, dim, keepdim), smallest_index(self, dim, keepdim)


@_serves(aten.argmin.default)
def smallest_index(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the first of the smallest elements is. Integers have no negation that keeps their order throughout."""
    if not self.is_floating_point():
        raise NotImplementedError("argmin of integers")
    return torch.argmax(-self, dim, keepdim)


def _with_elements(tensor: Tensor, name: str) -> Tensor:
    if tensor.numel() == 0:
        raise NotImplementedError(f"{name} of no element")  # torch's own words come from the CPU tier
    return tensor


# ---- Powers --------------------------------------------------------------------------------------------------------


@_serves(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(self: Tensor | float, exponent: Tensor | float) -> Tensor:
    """self to the exponent, where torch's own composes it: of bools that makes integers, which pow does not."""
    kinds = {getattr(each, "dtype", type(each)) for each in (self, exponent)}
    if kinds <= {torch.bool, bool}:
        raise NotImplementedError("a power of bools")
    result: Tensor = torch._refs.pow(self, exponent)
    return result


# ---- Normalisation -------------------------------------------------------------------------------------------------


@_serves(aten._batch_norm_with_update.default)
def batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch norm in training, with nothing in the reserve of another library: torch's own takes no absent weight."""
    results = torch.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *results, input.new_empty(0, dtype=torch.uint8)


# ---- Random numbers ------------------------------------------------------------------------------------------------


@_serves(aten.bernoulli.default)
def bernoulli(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """1 with the probability that each element says, else 0."""
    return _draw(self, generator).lt(self).to(self.dtype)


@_serves(aten.bernoulli.p)
def bernoulli_like(self: Tensor, p: float = 0.5, generator: torch.Generator | None = None) -> Tensor:
    """1 with probability p, else 0."""
    if not 0 <= p <= 1:
        raise NotImplementedError("bernoulli with what is no probability")
    return _draw(self, generator).lt(p).to(self.dtype)


@_serves(aten.bernoulli.Tensor)
def bernoulli_by(self: Tensor, p: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """1 with the probabilities of p, broadcast, else 0."""
    return _draw(self, generator).lt(p).to(self.dtype)


def _draw(like: Tensor, generator: torch.Generator | None) -> Tensor:
    # Single precision has probabilities that a half cannot tell apart.
    dtype = torch.float64 if like.dtype is torch.float64 else torch.float32
    return torch.empty_like(like, dtype=dtype).uniform_(generator=generator)


# ---- Products ------------------------------------------------------------------------------------------------------


@_serves(aten.addbmm.default)
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta self + alpha times the sum of the products of a batch."""
    if batch1.dim() != 3 or batch2.dim() != 3 or batch1.shape[::2] != batch2.shape[:2]:
        raise NotImplementedError("addbmm of no batches of matrices")
    count, rows, inner = batch1.shape
    left = batch1.transpose(0, 1).reshape(rows, count * inner)  # one product, which rounds its sums once
    return torch.addmm(self, left, batch2.reshape(count * inner, batch2.shape[2]), beta=beta, alpha=alpha)


@_serves(aten.addmv.default)
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta self + alpha times the product of a matrix and a vector: torch's own comes back to the operator."""
    if mat.dim() != 2 or vec.dim() != 1 or mat.shape[1] != vec.shape[0] or self.dim() > 1:
        raise NotImplementedError("addmv of no matrix and vector")
    return torch.addmm(self.expand(mat.shape[0]).unsqueeze(1), mat, vec.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1)


# ---- Comparison ----------------------------------------------------------------------------------------------------


@_serves(aten.equal.default)
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether sizes and all elements are equal: one element, not both tensors, goes to the host."""
    if self.dtype != other.dtype or self.device != other.device:
        raise NotImplementedError("equal of two dtypes or devices")
    return self.shape == other.shape and bool(torch.eq(self, other).all())


# ---- Indexing ------------------------------------------------------------------------------------------------------


class _Indexed:
    """tensor[indices] for indices that are integers, as rows of a matrix.

    matrix: the indexed dimensions as one, all others as the second. numbers: the rows that are meant, int64.
    """

    def __init__(self, tensor: Tensor, indices: Sequence[Tensor | None]) -> None:
        given = {dim: index for dim, index in enumerate(indices) if index is not None}
        if not given or any(index.dtype not in (torch.int64, torch.int32) for index in given.values()):
            raise NotImplementedError("masks, whose number of elements the host must know")
        dims = list(given)
        self._order = dims + [dim for dim in range(tensor.dim()) if dim not in given]
        self._moved = tensor.permute(self._order)
        self._rest = self._moved.shape[len(dims) :]
        self.matrix = self._moved.reshape(math.prod(self._moved.shape[: len(dims)]), math.prod(self._rest))
        self.numbers = _row_numbers(tensor, given)
        # Indexed dimensions keep their place if they stand together, and come first if not.
        ahead = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
        count = self.numbers.dim()
        self._arrangement = [
            *range(count, count + ahead),
            *range(count),
            *range(count + ahead, count + len(self._rest)),
        ]

    def arrange(self, rows: Tensor) -> Tensor:
        """Rows for the numbers, in the result's order of dimensions."""
        return rows.view(*self.numbers.shape, *self._rest).permute(self._arrangement)

    def rows(self, values: Tensor) -> Tensor:
        """Values that can be broadcast to the result, as rows for the numbers."""
        shape = [*self.numbers.shape, *self._rest]
        arranged = values.expand([shape[dim] for dim in self._arrangement])
        return arranged.permute(_inverse(self._arrangement)).reshape(self.numbers.numel(), self.matrix.shape[1])

    def back(self, matrix: Tensor) -> Tensor:
        """Another matrix, as a tensor of the first one's shape."""
        return matrix.view(self._moved.shape).permute(_inverse(self._order))


def _row_numbers(tensor: Tensor, given: dict[int, Tensor]) -> Tensor:
    numbers = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for dim, index in given.items():
        size, index = tensor.shape[dim], index.to(tensor.device, torch.int64)
        if bool(((index < -size) | (index >= size)).any()):
            raise NotImplementedError("an index out of range, for which the CPU tier has torch's own words")
        numbers = numbers * size + torch.where(index < 0, index + size, index)
    return numbers


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]


@_serves(aten.index.Tensor)
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """self[indices]."""
    indexed = _Indexed(self, indices)
    return indexed.arrange(indexed.matrix.index_select(0, indexed.numbers.flatten()))


@_serves(aten._index_put_impl.default)
def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """self with values added at indices; without accumulation only kernels know which of several values stays."""
    if not accumulate or values.dtype != self.dtype:
        raise NotImplementedError("index_put without accumulation")
    indexed = _Indexed(self, indices)
    rows = indexed.rows(values)
    return indexed.back(indexed.matrix.scatter_add(0, indexed.numbers.reshape(-1, 1).expand_as(rows), rows))
