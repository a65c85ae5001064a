"""Builds the arguments of one plugin call from JSON and checks afterwards what the plugin left of them.

A `Frame` lives for one call: every struct, list, string and out parameter is a `Loan` of its own between sentinels,
so that none can be taken for the next element of an array. In GREASE mode argument structs are larger than this header
knows, with a poisoned tail, and carry unknown optional extension nodes; a plugin that follows FL-LAYOUT-005 to 007 does
not notice. SPEC.md's annex and `session.py` give the vocabulary of ARG.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol

from . import abi
from .session_loans import POISON, Lender, Loan
from .session_structs import layout_of, pointer_to, read

ffi = abi.ffi

OUT_FILL = 0xA5  # what out parameters hold before the call unless the command says otherwise
ERROR_CAPACITY = 1024

_ERROR = layout_of("fl_error")
_WRITTEN = [(_ERROR.fields[name][0], _ERROR.fields[name][2]) for name in ("code", "vendor_code", "length")]
_UNWRITTEN = {
    "code": int.from_bytes(bytes((OUT_FILL,)) * 4, "little", signed=True),
    "vendor_code": int.from_bytes(bytes((OUT_FILL,)) * 8, "little", signed=True),
    "length": int.from_bytes(bytes((OUT_FILL,)) * 8, "little"),
}  # what a call may write into an fl_error, as it was before


class CommandError(Exception):
    """The command is malformed or names what does not exist: the judge's mistake, not the plugin's."""


class Names(Protocol):
    """What a frame asks of its session."""

    def resolve(self, reference: str) -> int:
        """A saved handle or number."""

    def address_of(self, buffer: str, offset: int) -> int:
        """A host buffer's address."""

    def shared_address(self, offset: int, size: int) -> int:
        """An address in the attached memory."""


def as_float(value: float | str) -> float:
    """JSON numbers, "nan", "inf", "-inf" and C99 hex ("0x1.8p+1")."""
    return float.fromhex(value) if isinstance(value, str) else float(value)


class Frame:
    """The memory of one call. rng is None where GREASE is off."""

    def __init__(self, names: Names, rng: random.Random | None) -> None:
        self._names = names
        self._rng = rng
        self._lender = Lender()
        self.loans: list[Loan] = []
        self.outs: list[tuple[Loan, Any, int, str | None]] = []  # loan, ctype, size, save as
        self._error: tuple[Loan, Loan] | None = None

    # -- building ------------------------------------------------------------------------------------

    def _below(self, count: int) -> int:
        """GREASE's choice among `count` values; 0 where it is off."""
        return int(self._rng.random() * count) if self._rng is not None else 0

    def loan(self, size: int, fill: int = 0, guard: bool = False) -> Loan:
        """Memory for this call."""
        added = self._lender.lend(size, fill, guard)
        self.loans.append(added)
        return added

    def convert(self, arg: Any, ctype: Any) -> Any:
        """A C value of `ctype` for one ARG; pointers point into this frame's loans."""
        if not isinstance(arg, dict):
            if ctype.kind in ("pointer", "function"):
                return ffi.cast(ctype, arg or 0)
            if arg is None:
                return 0
            if ctype.cname == "double":
                return as_float(arg)
            if int(ffi.cast(ctype, arg)) != arg:
                raise CommandError(f"{arg!r} does not fit {ctype.cname}")
            return arg
        if "ref" in arg:
            value: Any = self._names.resolve(arg["ref"])
        elif "host" in arg:
            value = self._names.address_of(arg["host"], arg.get("offset", 0))
        elif "memory" in arg:
            value = self._names.shared_address(*arg["memory"])
        elif "string" in arg:
            value = self.string(arg["string"])
        elif "struct" in arg:
            value = self.struct(
                arg["struct"],
                arg.get("fields", {}),
                size=arg.get("size"),
                kind=arg.get("kind"),
                tail=arg.get("tail", POISON),
                guard=arg.get("guard", False),
                chain=arg.get("next"),
            )
        elif "out" in arg:
            value = self.out(arg)
        elif "array" in arg:
            value = self.array(arg["array"], arg.get("ctype", "int64_t"))
        else:
            raise CommandError(f"not an argument: {dict(arg)!r}")
        return ffi.cast(ctype, value)

    def string(self, text: str) -> Any:
        """A NUL-terminated UTF-8 copy."""
        raw = text.encode("utf-8", "surrogateescape") + b"\0"
        loan = self.loan(len(raw))
        ffi.memmove(loan.pointer, raw, len(raw))
        return loan.pointer

    def array(self, items: list[Any], ctype_name: str) -> Any:
        """A C array of the items; of structs by value where ctype is one (fl_arg)."""
        ctype = ffi.typeof(ctype_name)
        width = ffi.sizeof(ctype)
        loan = self.loan(max(len(items), 1) * width)
        if ctype.kind == "primitive" and all(type(item) is int for item in items):
            try:
                ffi.cast(pointer_to(ctype), loan.pointer)[0 : len(items)] = items
            except OverflowError as error:
                raise CommandError(f"{items!r} does not fit {ctype_name}: {error}") from None
            return loan.pointer
        for position, item in enumerate(items):
            if ctype.kind in ("struct", "union") and isinstance(item, Mapping) and "struct" in item:
                item = item.get("fields", {})
            self.write(loan.pointer + position * width, ctype, item)
        return loan.pointer

    def write(self, address: Any, ctype: Any, arg: Any) -> None:
        """Store one value of any kind at `address` (char*)."""
        if ctype.kind in ("struct", "union"):
            self._fill(ctype.cname, address, arg, ffi.sizeof(ctype))
        elif ctype.kind == "array":
            for position, value in enumerate(arg):
                self.write(address + position * ffi.sizeof(ctype.item), ctype.item, value)
        else:
            try:
                ffi.cast(pointer_to(ctype), address)[0] = self.convert(arg, ctype)
            except (OverflowError, TypeError) as error:
                raise CommandError(f"{arg!r} does not fit {ctype.cname}: {error}") from None

    def _fill(self, name: str, address: Any, values: Mapping[str, Any], size: int) -> None:
        """Store the fields of a struct, or the member of a union, that end within `size` bytes; the rest is 0."""
        layout = layout_of(name)
        packed = layout.packed(values) if size >= layout.size else None
        if packed is not None:
            ffi.memmove(address, packed, layout.size)
            return
        target = ffi.cast(layout.pointer, address)
        for field, value in values.items():
            if field not in layout.fields:
                raise CommandError(f"{name} has no field {field!r}")
            offset, ctype, end = layout.fields[field]
            if end > size:
                continue
            if type(value) is not int:
                self.write(address + offset, ctype, value)
            elif field in layout.numbers:
                try:
                    setattr(target, field, value)
                except OverflowError as error:
                    raise CommandError(f"{value!r} does not fit {ctype.cname}: {error}") from None
            elif field in layout.addresses:
                setattr(target, field, ffi.cast(ctype, value))
            else:
                self.write(address + offset, ctype, value)

    def struct(
        self,
        name: str,
        fields: Mapping[str, Any],
        *,
        size: int | None = None,
        kind: int | None = None,
        tail: int = POISON,
        guard: bool = False,
        chain: list[dict[str, Any]] | None = None,
    ) -> Any:
        """A struct that this call passes in, as char*; unnamed fields are 0.

        size: the struct_size to claim, which is also the number of bytes that exist before the sentinels
        (or the guard page). chain: extension nodes; None leaves them to GREASE.
        """
        layout = layout_of(name)
        known, grows = layout.size, "struct_size" in layout.fields
        if size is None:
            size = known
            # Tensors keep their size: what lies behind them is poison of the loan's own margin.
            if "next" in layout.fields:
                size += 8 * self._below(9)
        loan = self.loan(max(size, 8) if grows else known, tail, guard)
        if tail:
            ffi.memmove(loan.pointer, bytes(min(known, loan.size)), min(known, loan.size))
        values: dict[str, Any] = {}
        if grows:
            values = {"struct_size": size, "kind": layout.kind if kind is None else kind}
        if "next" in layout.fields and "next" not in fields:
            values["next"] = self._chain(chain)
        self._fill(name, loan.pointer, {**values, **fields}, loan.size)
        return loan.pointer

    def _chain(self, nodes: list[dict[str, Any]] | None) -> int:
        """Address of the first extension node, 0 for none."""
        if nodes is None:
            count = (0, 0, 1, 2)[self._below(4)]
            nodes = [{"grease": True}] * count
        first = 0
        for node in reversed(nodes):
            kind = node.get("kind")
            if kind is None:
                kind = abi.FL_KIND_EXT_NODE_FIRST + 512 + self._below(1 << 16)
            size = node.get("size", 24 + 8 * self._below(4))
            loan = self.loan(max(size, 24), POISON)
            flags = node.get("flags", 0) | (abi.FL_EXT_REQUIRED if node.get("required") else 0)
            head = {"struct_size": size, "kind": kind, "flags": flags, "pad": node.get("pad", 0), "next": first}
            self._fill("fl_ext", loan.pointer, head, loan.size)
            first = int(ffi.cast("uintptr_t", loan.pointer))
        return first

    def out(self, arg: Mapping[str, Any]) -> Any:
        """An out parameter, as char*: prefilled, and for structs with struct_size and kind set."""
        ctype = ffi.typeof(arg["out"])
        size = ffi.sizeof(ctype)
        struct = ctype.kind == "struct"
        if struct:
            size = arg.get("size", size + 8 * self._below(5))
        loan = self.loan(max(size, 8) if struct else size, arg.get("fill", OUT_FILL), arg.get("guard", False))
        if struct:
            head = ffi.cast("uint32_t*", loan.pointer)
            head[0] = size
            head[1] = arg["kind"] if "kind" in arg else layout_of(ctype.cname).kind or 0
        loan.writable = [(8 if struct else 0, size)]
        self.outs.append((loan, ctype, size, arg.get("save")))
        return loan.pointer

    def error(self, spec: Mapping[str, Any] | None) -> Any:
        """The err argument; None makes it NULL."""
        if spec is None:
            return ffi.NULL
        capacity = spec.get("capacity", ERROR_CAPACITY)
        message = self._lender.lend(capacity, OUT_FILL, spec.get("guard", False))
        message.writable = [(0, capacity)]
        size = spec.get("size", _ERROR.size + 8 * self._below(5))
        error = self._lender.lend(max(size, 8), OUT_FILL, spec.get("guard", False))
        values = {
            "struct_size": size,
            "kind": spec.get("kind", abi.FL_KIND_ERROR),
            "pad": 0,
            "message": int(ffi.cast("uintptr_t", message.pointer)) if capacity else 0,
            "capacity": capacity,
            **_UNWRITTEN,
        }
        self._fill("fl_error", error.pointer, values, error.size)
        error.writable = [(offset, end) for offset, end in _WRITTEN if end <= size]
        self._error = (error, message)
        return ffi.cast("fl_error*", error.pointer)

    def seal(self) -> None:
        """Everything is in place; the call follows."""
        self._lender.seal()

    # -- looking at what came back ------------------------------------------------------------------

    def intact(self) -> bool:
        """No byte has changed that the call, or one before it, had no right to change.

        The error struct tells of itself.
        """
        return not self._lender.found_late_writes and all(loan.intact() for loan in self.loans)

    def results(self, status: int) -> list[Any]:
        """Out values in order. After a failure, pointers stay numbers: a string may not be there."""
        return [read(loan.pointer, ctype, size, status == abi.FL_OK) for loan, ctype, size, _ in self.outs]

    def saved(self) -> dict[str, int]:
        """name -> handle or number, for the outs that the command wants kept."""
        kept = {}
        for loan, ctype, size, name in self.outs:
            if name is not None:
                kept[name] = read(loan.pointer, ctype, size, False)
        return kept

    def untouched(self) -> list[bool]:
        """Per out: no byte has changed."""
        return [loan.untouched() for loan, *_ in self.outs]

    def error_result(self, status: int) -> dict[str, Any] | None:
        """The error struct as the plugin left it; None where it was NULL, or untouched on success.

        intact: nothing outside the writable fields and the message's capacity changed. terminated: a NUL
        stands within capacity and `length` is its place. tail_untouched: bytes behind the NUL are as before.
        """
        if self._error is None:
            return None
        error, message = self._error
        untouched = error.untouched() and message.untouched()
        if untouched and status == abi.FL_OK:
            return None
        raw: bytes = ffi.buffer(message.pointer, message.size)[:]
        text, found, tail = raw.partition(b"\0")
        if error.size < ffi.sizeof("fl_error") or untouched:
            code = vendor_code = length = None
        else:
            fields = ffi.cast("fl_error*", error.pointer)
            code, vendor_code, length = int(fields.code), int(fields.vendor_code), int(fields.length)
        return {
            "code": code,
            "vendor_code": vendor_code,
            "message": "" if message.untouched() else text.decode("utf-8", "backslashreplace"),
            "length": length,
            "intact": error.intact() and message.intact(),
            "untouched": untouched,
            "terminated": message.size == 0 or (bool(found) and length == len(text)),
            "tail_untouched": tail.strip(bytes((OUT_FILL,))) == b"",
            "utf8": _is_utf8(text),
        }

    def release(self) -> None:
        """Poison and give back all of it: from here on a kept pointer reads nonsense or faults."""
        self._lender.release()


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
