"""Text from elsewhere, before it is shown."""

from __future__ import annotations

import pytest
from torch_fl_spec.printable import is_printable, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢字 \\ 'quoted'", "plain ü 漢字 \\ 'quoted'"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31mred\x00\r", "\\x1b[31mred\\x00\\r"),
        ("\x9b31m \x7f", "\\x9b31m \\x7f"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_control_characters_are_escaped_and_nothing_else(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    assert is_printable(text) == (text == shown and "\t" not in text)
