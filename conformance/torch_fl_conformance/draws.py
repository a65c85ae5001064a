"""Draws that can be made again: a drawn call is a list of choices, and a failing one is made smaller by its choices.

Every draw is a choice among a known number of options, the simplest first. Choosing the first everywhere therefore
gives the simplest call there is, and whoever lowers choices gets a simpler call of the same kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Call = TypeVar("Call")


@dataclass
class Draw:
    """Choices for one call: those of `told`, then chance's, or the first option each where there is no `chance`."""

    told: Sequence[int] = ()
    chance: random.Random | None = None
    made: list[int] = field(default_factory=list)  # what was chosen, in order: told to another Draw it gives the same

    def below(self, count: int) -> int:
        """A choice among `count` options, 0 to count - 1; a told one that is too large becomes the last."""
        place = len(self.made)
        if place < len(self.told):
            chosen = min(self.told[place], count - 1)
        else:
            chosen = self.chance.randrange(count) if self.chance is not None else 0
        self.made.append(chosen)
        return chosen


def shrink(
    choices: Sequence[int], drawn: Callable[[Draw], Call], fails: Callable[[Call], bool], spent: Callable[[], bool]
) -> None:
    """From choices that give a failing call to ever simpler ones (in lexical order) that still do.

    `fails` sees only calls that are simpler than the last one that failed, none twice. spent: whether to end.
    """
    best = list(choices)
    tried = {tuple(best)}
    candidates = _simpler(best)
    while not spent() and (told := next(candidates, None)) is not None:
        draw = Draw(told)
        call = drawn(draw)
        # a choice may decide which draws follow it: what counts is the list that was really made
        if draw.made < best and tuple(draw.made) not in tried:
            tried.add(tuple(draw.made))
            if fails(call):
                best = draw.made
                candidates = _simpler(best)


def _simpler(choices: Sequence[int]) -> Iterator[list[int]]:
    """Candidates, the boldest first: the first option from a place on or in one place, then one choice lowered.

    Last come lists without one choice and with an earlier one, which may have said how many follow, lowered by one.
    """
    for place, chosen in enumerate(choices):
        if any(choices[place:]):
            yield [*choices[:place]]
        if chosen:
            yield [*choices[:place], 0, *choices[place + 1 :]]
    for place, chosen in enumerate(choices):
        for lower in (chosen // 2, chosen - 1):
            if 0 < lower < chosen:
                yield [*choices[:place], lower, *choices[place + 1 :]]
    for place, chosen in enumerate(choices):
        for gone in range(place + 1, len(choices) if chosen else 0):
            yield [*choices[:place], chosen - 1, *choices[place + 1 : gone], *choices[gone + 1 :]]
