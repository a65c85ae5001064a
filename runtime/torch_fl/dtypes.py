"""The interface's dtypes by their short names ("f32"), and torch's."""

from __future__ import annotations

import torch
from torch_fl_spec.abi import DTYPES

_NAMES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c32": torch.complex32,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}

#: Short name -> torch's dtype, in the order of the interface's numbers.
TORCH_DTYPES: dict[str, torch.dtype] = {name: _NAMES[name] for name in DTYPES}
#: And back.
SHORT_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in TORCH_DTYPES.items()}
