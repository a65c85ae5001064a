"""What an oracle of a pointwise operator is given, and the form of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array, DType
from torch_fl_conformance.oracle_maths import wide_type


@dataclass(frozen=True)
class Operands:
    """Operands of one pointwise call by slot name, tensors and numbers alike, and the two types involved."""

    values: Mapping[str, Any]  # logical arrays, Python numbers, strings, None
    dtype: DType  # of the tensors
    output: DType
    shape: tuple[int, ...]

    def __getitem__(self, slot: str) -> Array:
        """The operand in the oracle's wide type, in the output's shape."""
        value = self.values[slot]
        return self._in_shape(value, wide_type(self.dtype) if self.dtype.is_float else np.int64)

    def double(self, slot: str) -> Array:
        """The operand in float64: for operations that IEEE arithmetic rounds exactly."""
        return self._in_shape(self.values[slot], np.float64)

    def _in_shape(self, value: Any, kind: type[np.generic]) -> Array:
        array = np.asarray(value).astype(kind)
        return array if array.shape == self.shape else np.broadcast_to(array, self.shape)


Oracle = Callable[[Operands], "Expected | Array"]
