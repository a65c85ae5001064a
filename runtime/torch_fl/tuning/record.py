"""What a scan has measured, and which combination is the best."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass


class TuneError(RuntimeError):
    """A combination could not be measured: which one, and the last lines that its process wrote to stderr."""


@dataclass(frozen=True)
class Combination:
    """Values of the parameters; None: not scanned.

    batch: samples a step. streams: how many the step may use. pool: share of the device's memory that tensors may take.
    """

    batch: int | None = None
    streams: int | None = None
    pool: float | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.scanned().items())

    def scanned(self) -> dict[str, int | float]:
        """Name -> value of those that are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Trial:
    """One combination and its steps.

    seconds: of each measured step of all rounds, device's work included. peak_bytes: the most that the device's pool
    had from the vendor. out_of_memory: what was said where the combination takes more than there is, else None.
    """

    combination: Combination
    seconds: tuple[float, ...] = ()
    peak_bytes: int = 0
    out_of_memory: str | None = None

    @property
    def median(self) -> float:
        """Seconds a step."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """10th and 90th percentile of seconds."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]

    @property
    def cost(self) -> float:
        """Seconds a sample where batches are scanned, else a step."""
        return self.median / self._samples

    @property
    def highest_cost(self) -> float:
        """The same of the 90th percentile."""
        return self.spread[1] / self._samples

    @property
    def _samples(self) -> int:
        return self.combination.batch or 1


@dataclass(frozen=True)
class Tuning:
    """What `tune()` gives; prints as a table.

    trials: the cheapest first, those out of memory last. seed: what the order of measuring came from.
    """

    function: str
    device: str
    warm_up: int
    repeats: int
    rounds: int
    seed: int
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The one with the lowest cost; None where all are out of memory."""
        return next((trial for trial in self.trials if trial.out_of_memory is None), None)

    @property
    def as_good(self) -> tuple[Trial, ...]:
        """Others whose median is within the best one's spread: this scan does not tell them apart."""
        best = self.best
        if best is None:
            return ()
        measured = (trial for trial in self.trials if trial.out_of_memory is None and trial is not best)
        return tuple(trial for trial in measured if trial.cost <= best.highest_cost)

    def to_json(self) -> str:
        """`format`, the fields of this record and of its trials by their names, and what is derived of them."""
        told = asdict(self)
        for trial, found in zip(told["trials"], self.trials, strict=True):
            trial["combination"] = found.combination.scanned()
            if found.out_of_memory is None:
                trial["median"], trial["spread"] = found.median, found.spread
        best = self.best
        return json.dumps(
            {
                "format": "torch_fl.tuning/1",
                **told,
                "best": best.combination.scanned() if best else None,
                "as_good": [trial.combination.scanned() for trial in self.as_good],
            },
            indent=2,
        )

    def __str__(self) -> str:
        from torch_fl.tuning import table

        return table.text(self)
