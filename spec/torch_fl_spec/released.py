"""Which headers a plugin may have been built with: `released_headers.json` [FL-VERSION-006, 007]."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("released_headers.json")


@cache
def released_headers() -> dict[str, list[str]]:
    """{"released": ids, "candidate": ids}; a candidate serves until the release it leads to."""
    found: dict[str, list[str]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def header_state(header_id: str) -> str | None:
    """ "released", "candidate", or None for a header that nobody published."""
    for state, ids in released_headers().items():
        if header_id in ids:
            return state
    return None
