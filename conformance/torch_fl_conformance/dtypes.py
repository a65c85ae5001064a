"""Element types as the judge sees them: storage, precision and exponent range of each, and their bytes.

Logical values travel as numpy arrays in `DType.logical`: bool, the integer types and float16/32/64 are numpy's own;
bfloat16, which numpy lacks, travels as float32 whose low 16 bits are zero and is packed to uint16 on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DType:
    """One element type. `precision` counts significant bits, the implicit one included (0 for integers)."""

    name: str
    number: int  # FL_DTYPE_*
    size: int  # bytes
    kind: str  # "bool", "int" or "float"
    logical: Any  # numpy dtype of logical values
    storage: Any  # numpy dtype with the bits that travel
    precision: int = 0
    emin: int = 0  # exponent of the smallest normal number
    emax: int = 0  # exponent of the largest finite number

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def unit(self) -> float:
        """Unit roundoff u = 2^-precision; 0 for exact types."""
        return 2.0**-self.precision if self.is_float else 0.0

    @property
    def max_finite(self) -> float:
        return float((2 - 2.0 ** (1 - self.precision)) * 2.0**self.emax)

    @property
    def min_normal(self) -> float:
        return float(2.0**self.emin)

    @property
    def min_subnormal(self) -> float:
        return float(2.0 ** (self.emin - self.precision + 1))

    @property
    def low(self) -> int:
        """Smallest integer the type holds."""
        return 0 if self.kind == "bool" else int(np.iinfo(self.logical).min)

    @property
    def high(self) -> int:
        """Largest integer the type holds."""
        return 1 if self.kind == "bool" else int(np.iinfo(self.logical).max)


def _int(name: str, number: int) -> DType:
    numpy_type = np.dtype(f"{name[0]}{int(name[1:]) // 8}")
    return DType(name, number, numpy_type.itemsize, "int", numpy_type, numpy_type)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", 1, 1, "bool", np.dtype(np.bool_), np.dtype(np.uint8)),
        _int("u8", 2),
        _int("i8", 3),
        _int("i16", 4),
        _int("i32", 5),
        _int("i64", 6),
        DType("f16", 10, 2, "float", np.dtype(np.float16), np.dtype(np.uint16), 11, -14, 15),
        DType("bf16", 11, 2, "float", np.dtype(np.float32), np.dtype(np.uint16), 8, -126, 127),
        DType("f32", 12, 4, "float", np.dtype(np.float32), np.dtype(np.uint32), 24, -126, 127),
        DType("f64", 13, 8, "float", np.dtype(np.float64), np.dtype(np.uint64), 53, -1022, 1023),
    )
}


def to_bits(values: Array, dtype: DType) -> Array:
    """The storage words of logical values that are exactly representable in `dtype`."""
    if dtype.name == "bf16":
        words = np.asarray(values, np.float32, order="C").view(np.uint32) >> np.uint32(16)
        return np.asarray(words.astype(np.uint16))
    return np.asarray(values, dtype.logical, order="C").view(dtype.storage)


def from_bits(words: Array, dtype: DType) -> Array:
    """Logical values of storage words (any bool byte but 0 reads as true: compare bytes, not values)."""
    words = np.asarray(words, order="C")
    if dtype.name == "bf16":
        return np.asarray(words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.kind == "bool":
        return np.asarray(words != 0)
    return words.view(dtype.logical)


def compute_type(dtype: DType) -> DType:
    """The type in which an honest kernel computes: half types widen to f32, the others stay."""
    return DTYPES["f32"] if dtype.name in ("f16", "bf16") else dtype
