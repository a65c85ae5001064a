"""How long the suite looks, and the seeds of what it draws."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeVar

Amount = TypeVar("Amount")


@dataclass(frozen=True)
class Effort:
    """`quick` or `full`; a check asks `effort.pick(quick=50, full=2000)`."""

    name: str

    @property
    def is_full(self) -> bool:
        """Whether time matters less than power."""
        return self.name == "full"

    @property
    def watchdog(self) -> float:
        """Seconds without an answer after which a driver counts as hung."""
        return 60.0 if self.is_full else 30.0

    def pick(self, quick: Amount, full: Amount) -> Amount:
        """The amount for this effort."""
        return full if self.is_full else quick


def row_seed(seed: int, row_id: str) -> int:
    """The 64-bit seed of a row's draws: the same on every machine, worker and order of rows."""
    digest = hashlib.sha256(f"{seed}\n{row_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
