"""Ways in which a tensor's elements can lie in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

#: name -> a view of the given buffer of at least ROOM elements. Those that write must not repeat elements.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t[:60].view(3, 4, 5),
    "offset": lambda t: t[7:67].view(3, 4, 5),
    "permuted": lambda t: t[:60].view(5, 3, 4).permute(1, 2, 0),
    "gaps": lambda t: t[:240].view(6, 4, 10)[::2, :, ::2],
    "permuted gaps": lambda t: t[3:243].view(10, 4, 6).permute(2, 1, 0)[1::2, :, ::2],
    "one long": lambda t: t[11:71].as_strided((3, 4, 5), (20, 5, 1)),
}

#: The same where elements may be repeated: only to be read.
REPEATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "expanded": lambda t: t[:20].view(1, 4, 5).expand(3, 4, 5),
    "expanded inside": lambda t: t[:15].view(3, 1, 5).expand(3, 4, 5),
    "one element": lambda t: t[9].expand(3, 4, 5),
    "windows": lambda t: t[:30].as_strided((3, 4, 5), (2, 3, 1)),
}

ROOM = 256

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.bool, *INTEGERS, *UNSIGNED, *FLOATS, *COMPLEX, *EIGHT_BITS)


def buffer(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """ROOM different-looking elements on the CPU that every numeric dtype can hold: integers from 0 to 15."""
    values = torch.randint(0, 16, (ROOM,), generator=torch.Generator().manual_seed(seed))
    if dtype is torch.bool:
        return values > 7
    if dtype in COMPLEX:
        return torch.complex(values.double(), values.flip(0).double()).to(dtype)
    return values.to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, on the CPU: equal where the tensors are equal bit by bit."""
    return tensor.cpu().contiguous().view(torch.uint8)
