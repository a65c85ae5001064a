"""One reason why the gate refuses a report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """`code` for programs (stable), `text` for people."""

    code: str
    text: str


def some(names: list[str], most: int = 5) -> str:
    """A list for a sentence: the first few names and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
