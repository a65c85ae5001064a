"""`@rule("FL-MEM-003")`: makes a test function the check of one vendor rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Check = TypeVar("Check", bound=Callable[..., None])

ATTRIBUTE = "torch_fl_rule"


@dataclass(frozen=True)
class RuleMark:
    """What the decorator leaves on the function."""

    rule: str
    exclusive: bool


def rule(rule_id: str, *, exclusive: bool = False) -> Callable[[Check], Check]:
    """Mark a test function as the one check of the vendor rule `rule_id`.

    The function is one pytest item and one report row; its name must start with `test_` and it should ask for
    the fixture `row`. exclusive: the row exhausts memory, measures a slope or times something, so no other
    row of any process runs on the device meanwhile.

        @rule("FL-MEM-003")
        def test_every_base_is_aligned(row, abi): ...
    """

    def mark(function: Check) -> Check:
        setattr(function, ATTRIBUTE, RuleMark(rule_id, exclusive))
        return function

    return mark


def mark_of(function: object) -> RuleMark | None:
    """The decorator's mark, or None where the function is no rule's check."""
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, RuleMark) else None
