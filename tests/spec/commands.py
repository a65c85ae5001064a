"""Short forms of the session's commands for tests."""

from __future__ import annotations

import struct
from typing import Any

from torch_fl_spec.session import Session

STREAM = {"struct": "fl_stream_create_args"}

_REQUIRED = object()


def ALLOC(size: int) -> dict[str, Any]:
    """fl_mem_alloc_args for `size` bytes."""
    return {"struct": "fl_mem_alloc_args", "fields": {"bytes": size}}


def call(session: Session, fn: str, *args: Any, err: Any = _REQUIRED, **keys: Any) -> dict[str, Any]:
    """Execute a call; strings are references."""
    command = {"do": "call", "fn": fn, "args": [{"ref": a} if isinstance(a, str) else a for a in args], **keys}
    if err is not _REQUIRED:
        command["err"] = err
    return session.execute(command)


def neg_case(memory: bytearray, values: list[int]) -> dict[str, Any]:
    """A kernel case: o = -a on four int64 in a 2x2 shape, each in a block with 8 bytes before and behind.

    Uses memory[0:48] (image of a), [64:112] (image of o, all -1) and [512:560] (result).
    """
    memory[0:48] = struct.pack("6q", 0, *values, 0)
    memory[64:112] = struct.pack("6q", *[-1] * 6)
    place = {"byte_offset": 8, "sizes": [2, 2], "strides": [2, 1], "dtype": "i64"}
    return {
        "do": "kernel_case",
        "device": 0,
        "op": "aten::neg",
        "revision": 1,
        "variant": "generic",
        "blocks": [
            {"name": "a", "bytes": 48, "image": [0, 48]},
            {"name": "o", "bytes": 48, "image": [64, 48]},
        ],
        "tensors": {"x": {"block": "a", "flags": 1, **place}, "y": {"block": "o", **place}},
        "args": [{"tensor": "x"}],
        "outs": ["y"],
        "workspace": {"fill": 255, "guard": 64},
        "results": {"o": [512, 48]},
    }
