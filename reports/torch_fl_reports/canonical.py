"""JSON that has one meaning and one spelling: strict reading, canonical writing, digests.

The standard reader keeps the last of two equal keys and accepts NaN; both let a report say one thing to a
person and another to a program, so both are refused here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any

MAX_BYTES = 64 * 1024 * 1024
"""Largest document that is read at all; the biggest real report is about 2 MiB."""


class MalformedJson(ValueError):
    """A document that is not strict JSON. `code` names the reason for a gate's answer."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def read_json(data: bytes) -> Any:
    """Parse strict JSON: UTF-8, no doubled keys, finite numbers. Raises MalformedJson."""
    if len(data) > MAX_BYTES:
        raise MalformedJson("too-large", f"the document has {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        if "\\u" in text:  # an escape can hide half a surrogate pair, which no UTF-8 text can hold
            canonical(value)
        return value
    except MalformedJson:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedJson("not-json", f"the document is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = sorted({name for name in names if names.count(name) > 1})
        raise MalformedJson("duplicate-key", f"an object has the key {doubled[0]!r} twice")
    return result


def _no_constant(word: str) -> Any:
    raise MalformedJson("not-a-number", f"{word} stands where a JSON number belongs")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedJson("not-a-number", f"{text} is too large for a finite number")
    return value


def plain(value: Any) -> Any:
    """The JSON form of what a run hands over: tuples, sets, paths and numpy scalars become plain data.

    NaN and infinities become the strings "nan", "inf", "-inf"; bytes become hex; unpaired surrogates of a
    vendor's text are escaped, so that every report can be written whatever a plugin says.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return plain(str(value))
    if hasattr(value, "item"):  # a numpy scalar
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


def canonical(value: Any) -> bytes:
    """One spelling per value: sorted keys, no spaces, UTF-8. Raises ValueError for NaN or infinity."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical spelling."""
    return hashlib.sha256(canonical(value)).hexdigest()


def report_digest(report: Mapping[str, Any]) -> str:
    """The id of a report: the digest of everything in it but the id itself."""
    return digest({key: value for key, value in report.items() if key != "report_id"})
