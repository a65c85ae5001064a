"""C structs by the names of their fields: where each field lies, and the fast way to store and to read numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct, error
from typing import Any

from . import abi

ffi = abi.ffi


class Layout:
    """The fields of one C struct or union.

    fields: name -> (offset, ctype, end). numbers: fields that cffi stores and reads as Python's int, range checked.
    addresses: pointer fields -> ctype. kind: FL_KIND_* of a growable struct.
    """

    def __init__(self, struct: str) -> None:
        ctype = ffi.typeof(struct)
        self.size = ffi.sizeof(ctype)
        self.pointer = pointer_to(ctype)
        self.kind = abi.kind_of(struct)
        self.fields: dict[str, tuple[int, Any, int]] = {
            name: (field.offset, field.type, field.offset + ffi.sizeof(field.type)) for name, field in ctype.fields
        }
        self.addresses = {name: field.type for name, field in ctype.fields if field.type.kind == "pointer"}
        primitive = [(name, field.type.cname) for name, field in ctype.fields if field.type.kind == "primitive"]
        self.numbers = frozenset(name for name, cname in primitive if type(ffi.new(f"{cname} *")[0]) is int)
        self._zeros = dict.fromkeys(self.fields, 0)
        self._packer = self._numeric() if ctype.kind == "struct" else None

    def _numeric(self) -> Struct | None:
        """What packs all fields in their order; None where some are neither integers nor addresses."""
        form, at = "=", 0
        for name, (offset, ctype, end) in self.fields.items():
            if name not in self.numbers and name not in self.addresses:
                return None
            code = _CODES[end - offset]
            signed = name in self.numbers and int(ffi.cast(ctype, -1)) < 0
            form += "x" * (offset - at) + (code.lower() if signed else code)
            at = end
        return Struct(form + "x" * (self.size - at))

    def packed(self, values: Mapping[str, Any]) -> bytes | None:
        """The whole struct, fields that are not named 0; None where a value is none that one step can pack."""
        if self._packer is None:
            return None
        try:
            return self._packer.pack(*{**self._zeros, **values}.values())
        except error:  # unknown fields make it too many
            return None


_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@cache
def layout_of(struct: str) -> Layout:
    """The layout of a struct or union by its C name."""
    return Layout(struct)


@cache
def pointer_to(ctype: Any) -> Any:
    """The ctype of a pointer to `ctype`."""
    return ffi.typeof(ffi.getctype(ctype, "*"))


def read(address: Any, ctype: Any, size: int, strings: bool) -> Any:
    """The value at `address`: numbers and pointers as int, structs as dict (fields within size).

    strings: follow char* and return text.
    """
    if ctype.kind == "struct":
        layout = layout_of(ctype.cname)
        struct = ffi.cast(layout.pointer, address)
        return {
            name: getattr(struct, name)
            if name in layout.numbers
            else read(address + offset, field_type, field_end - offset, strings)
            for name, (offset, field_type, field_end) in layout.fields.items()
            if field_end <= size
        }
    if ctype.kind == "array":
        return list(ffi.cast(pointer_to(ctype), address)[0])
    value = ffi.cast(pointer_to(ctype), address)[0]
    if ctype.kind != "pointer" and ctype.kind != "function":
        return value
    if strings and ctype.cname == "char *" and value != ffi.NULL:
        return ffi.string(value).decode("utf-8", "backslashreplace")
    return int(ffi.cast("uintptr_t", value))
