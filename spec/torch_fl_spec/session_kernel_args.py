"""fl_call, fl_arg and fl_tensor from a case's JSON, each struct and list in memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import abi
from .session_args import CommandError, Frame, as_float

ffi = abi.ffi

_FL_ARG = ffi.typeof("fl_arg")
_ARG_SIZE = ffi.sizeof("fl_arg")


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def dtype_number(dtype: int | str) -> int:
    """FL_DTYPE_* from its number or short name."""
    if isinstance(dtype, int):
        return dtype
    try:
        return abi.DTYPES[dtype]
    except KeyError:
        raise CommandError(f"unknown dtype {dtype!r}") from None


def tensor_reader(
    frame: Frame,
    tensors: Mapping[str, Mapping[str, Any]],
    device: int,
    bases: Mapping[str, int] | None,
    block_bytes: Mapping[str, int],
) -> Callable[[str], int]:
    """A function from a tensor's name to the address of a fresh fl_tensor; bases None: no addresses."""

    def build(name: str) -> int:
        try:
            tensor = tensors[name]
        except KeyError:
            raise CommandError(f"no tensor {name!r}") from None
        sizes, strides = tensor["sizes"], tensor["strides"]
        if len(sizes) != len(strides):
            raise CommandError(f"tensor {name!r} has {len(sizes)} sizes and {len(strides)} strides")
        numel = 1
        for size in sizes:
            numel *= size
        place = {"base": 0, "byte_offset": 0, "base_bytes": 0}
        block = tensor.get("block")
        if bases is not None and block is not None:
            place = {
                "base": bases[block],
                "byte_offset": tensor.get("byte_offset", 0),
                "base_bytes": block_bytes[block],
            }
        fields = {
            **place,
            "sizes": _address(frame.array(sizes, "int64_t")) if sizes else 0,
            "strides": _address(frame.array(strides, "int64_t")) if sizes else 0,
            "numel": numel,
            "dtype": dtype_number(tensor["dtype"]),
            "ndim": len(sizes),
            "device": device,
            "flags": tensor.get("flags", 0),
        }
        return _address(frame.struct("fl_tensor", fields))

    return build


def _slot(frame: Frame, slot: Mapping[str, Any], tensor: Callable[[str], int]) -> dict[str, Any]:
    """Fields of one fl_arg."""
    ((kind, value),) = slot.items()
    tag, count, member = abi.FL_TAG_NONE, 0, None
    stored: Any = None
    if kind == "none":
        pass
    elif kind == "tensor":
        tag, member, stored = abi.FL_TAG_TENSOR, "tensor", tensor(value)
    elif kind == "tensors":
        tag, count, member = abi.FL_TAG_TENSOR_LIST, len(value), "tensors"
        stored = _address(frame.array([0 if t is None else tensor(t) for t in value], "const fl_tensor*"))
    elif kind == "bool":
        tag, member, stored = abi.FL_TAG_BOOL, "i", int(value)
    elif kind == "int":
        tag, member, stored = abi.FL_TAG_INT, "i", value
    elif kind == "uint":
        tag, member, stored = abi.FL_TAG_UINT, "u", value
    elif kind == "float":
        tag, member, stored = abi.FL_TAG_FLOAT, "f", as_float(value)
    elif kind == "complex":
        parts = {"re": as_float(value[0]), "im": as_float(value[1])}
        tag, member, stored = abi.FL_TAG_COMPLEX, "c", parts
    elif kind == "dtype":
        tag, member, stored = abi.FL_TAG_DTYPE, "i", dtype_number(value)
    elif kind == "ints":
        tag, count, member = abi.FL_TAG_INT_LIST, len(value), "ints"
        stored = _address(frame.array(value, "int64_t"))
    elif kind == "floats":
        tag, count, member = abi.FL_TAG_FLOAT_LIST, len(value), "floats"
        stored = _address(frame.array([as_float(x) for x in value], "double"))
    elif kind == "bools":
        tag, count, member = abi.FL_TAG_BOOL_LIST, len(value), "bools"
        stored = _address(frame.array([int(x) for x in value], "uint8_t"))
    elif kind == "string":
        tag, count, member = abi.FL_TAG_STRING, len(value.encode()), "string"
        stored = _address(frame.string(value))
    elif kind == "rng":
        tag, member, stored = abi.FL_TAG_RNG, "rng", {"seed": value[0], "offset": value[1]}
    else:
        raise CommandError(f"unknown argument kind {kind!r}")
    fields: dict[str, Any] = {"tag": tag, "flags": 0, "count": count}
    return fields if member is None else {**fields, "value": {member: stored}}


def fill_call(frame: Frame, case: Mapping[str, Any], tensor: Callable[[str], int], fields: Mapping[str, int]) -> Any:
    """The fl_call of a case. fields: workspace and token; absent ones are 0."""
    slots = case["args"]
    args = frame.loan(max(len(slots), 1) * _ARG_SIZE)
    for position, slot in enumerate(slots):
        frame.write(args.pointer + position * _ARG_SIZE, _FL_ARG, _slot(frame, slot, tensor))
    outs = frame.array([tensor(name) for name in case["outs"]], "const fl_tensor*")
    values = {
        "args": _address(args.pointer),
        "outs": _address(outs),
        "n_args": len(slots),
        "n_outs": len(case["outs"]),
        **fields,
    }
    return ffi.cast("const fl_call*", frame.struct("fl_call", values))
