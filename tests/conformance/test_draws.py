"""Choices: told again they give the same call, and a failing call shrinks to the simplest that still fails."""

from __future__ import annotations

import random

from torch_fl_conformance.draws import Draw, shrink
from torch_fl_conformance.shapes import between, one_of, permutation


def a_call(draw: Draw) -> tuple[int, ...]:
    """As many numbers as the first draw says, a choice and an order: later draws depend on earlier ones."""
    numbers = tuple(between(draw, 3, 90) for _ in range(between(draw, 0, 5)))
    return (*numbers, one_of(draw, (7, 8, 9)), *permutation(draw, 3))


def smallest(choices: list[int], fails: object, runs: int = 10_000) -> tuple[tuple[int, ...], int]:
    """(the call that shrinking ends with, runs it took)."""
    seen: list[tuple[int, ...]] = [a_call(Draw(choices))]
    count = 0

    def judged(call: tuple[int, ...]) -> bool:
        nonlocal count
        count += 1
        failed = bool(fails(call))  # type: ignore[operator]
        if failed:
            seen.append(call)
        return failed

    shrink(choices, a_call, judged, lambda: count >= runs)
    return seen[-1], count


def test_the_first_options_make_the_simplest_call() -> None:
    draw = Draw()
    assert a_call(draw) == (7, 0, 1, 2)
    assert draw.made == [0] * 5


def test_told_choices_make_the_same_call() -> None:
    for seed in range(50):
        draw = Draw(chance=random.Random(seed))
        call = a_call(draw)
        again = Draw(draw.made)
        assert a_call(again) == call
        assert again.made == draw.made


def test_chance_reaches_every_option() -> None:
    draws = [Draw(chance=random.Random(seed)) for seed in range(200)]
    assert {one_of(draw, "abc") for draw in draws} == {"a", "b", "c"}
    assert {permutation(draw, 3) for draw in draws} == {
        (0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0),
    }  # fmt: skip


def test_a_choice_beyond_the_options_is_the_last() -> None:
    draw = Draw((99, 1))
    assert (one_of(draw, "ab"), one_of(draw, "ab"), one_of(draw, "ab")) == ("b", "b", "a")
    assert draw.made == [1, 1, 0]


def test_a_failing_call_shrinks_to_the_simplest_that_fails() -> None:
    for seed in range(20):
        draw = Draw(chance=random.Random(seed))
        if max(a_call(draw)) >= 20:
            assert smallest(draw.made, lambda call: max(call) >= 20)[0] == (20, 7, 0, 1, 2)


def test_shrinking_keeps_what_the_failure_needs() -> None:
    choices = [2, 40, 50, 2, 2, 1, 0]
    assert a_call(Draw(choices)) == (43, 53, 9, 2, 1, 0)
    assert smallest(choices, lambda call: 53 in call and call[-1] == 0)[0] == (53, 7, 1, 2, 0)


def test_shrinking_ends_when_its_runs_are_spent_and_runs_no_call_twice() -> None:
    choices = [5, 80, 80, 80, 80, 80, 2, 2, 1, 0]
    assert smallest(choices, lambda call: sum(call) > 200, runs=3)[1] == 3
    calls: list[tuple[int, ...]] = []

    def too_much(call: tuple[int, ...]) -> bool:
        calls.append(call)
        return sum(call) > 200

    smallest(choices, too_much)
    assert len(set(calls[1:])) == len(calls[1:]) > 10
