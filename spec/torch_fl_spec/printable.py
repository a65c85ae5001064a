"""Text that a plugin, a compiler or a file has given, made safe to show on a terminal and to put into source."""

from __future__ import annotations

import re

# C0 controls but tab and newline, DEL, C1 controls, and the marks that turn the direction of writing.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with its control characters written as escapes (\\x1b), tabs and newlines kept."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def is_printable(text: str) -> bool:
    """Whether `text` is one line that holds nothing to be escaped."""
    return "\n" not in text and "\t" not in text and printable(text) == text
