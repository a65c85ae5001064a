"""The user's settings file, in a home made for a test."""

from __future__ import annotations

from pathlib import Path


def write(home: Path, text: str) -> Path:
    """Make it the file of that home; returns its path."""
    path = home / ".torch_fl" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
