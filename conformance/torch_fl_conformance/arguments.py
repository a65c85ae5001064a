"""Arguments of the driver's generic `call` command: short constructors for its JSON forms.

A plain int or None passes as it is, a str is the name of a saved handle ("d0"), a handle object of
`torch_fl_conformance.facade` is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Arg = Any  # int | None | str | handle object | one of the dicts made here


def encode(value: Arg) -> Any:
    """The JSON form of one argument, containers included."""
    if value is None or type(value) is int or type(value) is dict:
        return value
    if isinstance(value, str):
        return {"ref": value}
    if isinstance(value, (list, tuple)):
        return [encode(entry) for entry in value]
    name = getattr(value, "ref", None)
    return {"ref": name} if isinstance(name, str) else value


def out(ctype: str, *, save: str | None = None, **options: Any) -> dict[str, Any]:
    """An out parameter: a zero-filled `ctype` whose value comes back in CallResult.outs.

    save: keep a returned handle or number under this name. Options: fill (byte to fill it with), size
    (struct_size to state), guard (True: it ends at an inaccessible page).
    """
    return _with({"out": ctype}, save=save, **options)


def struct(ctype: str, fields: dict[str, Arg] | None = None, **options: Any) -> dict[str, Any]:
    """An args struct; struct_size and kind are filled in, other fields are zero.

    Options: size, kind (state these instead), tail (byte that fills the bytes beyond the known struct),
    guard, next (chain: [{"kind": n, "required": bool}, ...]).
    """
    encoded = {key: encode(value) for key, value in (fields or {}).items()}
    return _with({"struct": ctype, "fields": encoded}, **options)


def text(value: str) -> dict[str, Any]:
    """A NUL-terminated UTF-8 string."""
    return {"string": value}


def host(buffer: Any, offset: int = 0) -> dict[str, Any]:
    """Address of a host buffer (its name or handle object), plus offset in bytes."""
    return {"host": getattr(buffer, "ref", buffer), "offset": offset}


def array(values: Sequence[Arg], ctype: str) -> dict[str, Any]:
    """A C array of `ctype`."""
    return {"array": [encode(value) for value in values], "ctype": ctype}


def task(kind: str, name: str, **options: Any) -> dict[str, Any]:
    """A host task of the driver's C helper: "gate", "count" or "ticket" (value=n)."""
    return {"task": kind, "name": name, **options}


def _with(base: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {**base, **{key: value for key, value in options.items() if value is not None}}
