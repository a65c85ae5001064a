"""The scan: every combination, in rounds, each round in an order of its own."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from torch_fl import tuning
from torch_fl.plain_text import duration
from torch_fl.tuning import trial_process
from torch_fl.tuning.record import Combination, Trial, Tuning

_T = TypeVar("_T")


def tune(
    function: Callable[..., Callable[[], object]] | str,
    *,
    batch: Sequence[int] = (),
    streams: Sequence[int] = (),
    pool: Sequence[float] = (),
    device: str = "fl:0",
    warm_up: int = 3,
    repeats: int = 10,
    rounds: int = 3,
    seed: int = 0,
    report: Callable[[str], object] | None = None,
) -> Tuning:
    """Measure every combination of the values given, and say which one is the best.

    function: of a module or a script, itself or by name ("train.py:make"). It gets `batch` (samples a step) and
    `streams` (how many the step may use) where they are scanned, and `device` where it has such a parameter; it makes
    model and data and returns a function without parameters that does one step. pool: shares of the device's memory,
    above 0 and up to 1, that tensors may take; the function need not know.

    In each round every combination is measured once, in an order drawn from the seed: in a process of its own, which
    begins with an empty pool and the same random numbers, `warm_up` steps first, then `repeats` steps, each from its
    call until all devices are done. report: told of each in a line.

    A combination that runs out of memory is part of the answer. Whatever else goes wrong raises TuneError, which names
    the combination, and ends the scan; no process is left behind, whatever ends it. ValueError for values that cannot
    be, and for a function that another process cannot find. In a script, the call belongs below
    `if __name__ == "__main__":`, since each process imports the script.
    """
    if tuning.in_trial:
        raise RuntimeError(
            'torch_fl.tune() was called while its function is measured: put the call below if __name__ == "__main__":'
        )
    combinations = _combinations(batch, streams, pool)
    for name, value, least in (("warm_up", warm_up, 0), ("repeats", repeats, 1), ("rounds", rounds, 1)):
        if value < least:
            raise ValueError(f"{name}={value}: at least {least}")
    where = function if isinstance(function, str) else _name(function)
    task: dict[str, Any] = {
        "function": where,
        "path": None if isinstance(function, str) else sys.path,
        "parent": os.getpid(),
        "device": device,
        "warm_up": warm_up,
        "repeats": repeats,
        "seed": seed,
    }
    found: dict[Combination, list[dict[str, Any]]] = {each: [] for each in combinations}
    order = list(_order(combinations, rounds, seed))
    for number, combination in enumerate(order, 1):
        if any("out_of_memory" in earlier for earlier in found[combination]):
            continue
        told = trial_process.run({**task, "combination": combination.scanned()}, str(combination))
        found[combination].append(told)
        if report is not None:
            report(f"{number} of {len(order)}: {combination}: {_said(_trial(combination, [told]))}")
    trials = sorted((_trial(*each) for each in found.items()), key=_rank)
    return Tuning(where, device, warm_up, repeats, rounds, seed, tuple(trials))


def _combinations(batch: Sequence[int], streams: Sequence[int], pool: Sequence[float]) -> list[Combination]:
    """Each value once; a parameter without values is no part of any."""
    if not (batch or streams or pool):
        raise ValueError("nothing to scan: give values of batch, streams or pool")
    for name, counts in (("batch", batch), ("streams", streams)):
        for count in counts:
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}: {count} is not allowed; allowed: whole numbers of at least 1")
    for share in pool:
        if not 0 < share <= 1:
            raise ValueError(f"pool: {share:g} is not allowed; allowed: numbers above 0 and of at most 1")
    return [Combination(*each) for each in itertools.product(_once(batch), _once(streams), _once(pool))]


def _once(values: Sequence[_T]) -> tuple[_T | None, ...]:
    return tuple(dict.fromkeys(values)) or (None,)


def _order(combinations: Iterable[Combination], rounds: int, seed: int) -> Iterable[Combination]:
    """A machine that grows slower during a scan slows all combinations alike."""
    draw = random.Random(seed)
    for _ in range(rounds):
        shuffled = list(combinations)
        draw.shuffle(shuffled)
        yield from shuffled


def _trial(combination: Combination, told: list[dict[str, Any]]) -> Trial:
    for each in told:
        if "out_of_memory" in each:
            return Trial(combination, out_of_memory=each["out_of_memory"])
    seconds = tuple(itertools.chain.from_iterable(each["seconds"] for each in told))
    return Trial(combination, seconds, max(each["peak_bytes"] for each in told))


def _rank(trial: Trial) -> tuple[bool, float]:
    return (True, 0.0) if trial.out_of_memory else (False, trial.cost)


def _said(trial: Trial) -> str:
    return "out of memory" if trial.out_of_memory else f"{duration(trial.median)} a step"


def _name(function: Callable[..., Any]) -> str:
    """As another process finds it."""
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or getattr(module, name, None) is not function:
        raise ValueError(f"{function!r} cannot be found by another process: define it at the top level of a module")
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise ValueError(f"{name} was defined at a prompt, where no other process finds it: put it into a file")
    return f"{file}:{name}"
