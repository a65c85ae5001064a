"""Structs packed in one step are the structs that cffi fills field by field."""

from __future__ import annotations

import random
from typing import Any

import pytest
from torch_fl_spec import abi
from torch_fl_spec.session_args import CommandError, Frame
from torch_fl_spec.session_structs import layout_of, read

ffi = abi.ffi

PACKED = ("fl_tensor", "fl_call", "fl_plan", "fl_copy_args", "fl_mem_alloc_args", "fl_error", "fl_ext", "fl_rng")
NOT_PACKED = ("fl_arg", "fl_complex", "fl_value")


def random_fields(struct: str, rng: random.Random) -> dict[str, int]:
    """A value for about two thirds of the fields, extremes among them."""
    layout = layout_of(struct)
    values = {}
    for name, (offset, ctype, end) in layout.fields.items():
        bits = 8 * (end - offset)
        signed = name in layout.numbers and int(ffi.cast(ctype, -1)) < 0
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        values[name] = rng.choice((low, high, rng.randint(low, high)))
    return {name: value for name, value in values.items() if rng.random() < 0.7}


@pytest.mark.parametrize("struct", PACKED)
def test_a_packed_struct_is_the_one_that_cffi_fills(struct: str) -> None:
    rng = random.Random(struct)
    for _ in range(50):
        fields = random_fields(struct, rng)
        target = ffi.new(f"{struct} *")
        for name, value in fields.items():
            setattr(target, name, ffi.cast(layout_of(struct).fields[name][1], value))
        assert layout_of(struct).packed(fields) == bytes(ffi.buffer(target))
        back = read(ffi.cast("char*", target), ffi.typeof(struct), ffi.sizeof(struct), False)
        assert {name: back[name] for name in fields} == fields


@pytest.mark.parametrize("struct", NOT_PACKED)
def test_structs_with_other_fields_are_filled_one_by_one(struct: str) -> None:
    assert layout_of(struct).packed({}) is None


def test_what_does_not_fit_is_no_struct() -> None:
    layout = layout_of("fl_copy_args")
    wrong: list[dict[str, Any]] = [
        {"bytes": -1},
        {"bytes": 2**64},
        {"bytes": 1.5},
        {"bites": 1},
        {"next": {"ref": "x"}},
    ]
    assert [layout.packed(values) for values in wrong] == [None] * len(wrong)
    names: Any = None
    for values in wrong[:4]:
        with pytest.raises(CommandError, match=r"does not fit|no field 'bites'"):
            Frame(names, None).struct("fl_copy_args", values)


def test_a_struct_that_claims_less_has_only_the_fields_that_fit() -> None:
    """The bytes behind are the loan's own: a plugin that reads them meets its sentinels."""
    names: Any = None
    frame = Frame(names, None)
    whole = bytes(ffi.buffer(frame.struct("fl_copy_args", {"dst_space": 7, "bytes": 9}), 96))
    part = bytes(ffi.buffer(frame.struct("fl_copy_args", {"dst_space": 7, "bytes": 9}, size=24), 40))
    assert part[4:24] == whole[4:24]
    assert part[:4] == (24).to_bytes(4, "little")
    assert part[24:40] == b"\x5c" * 16
