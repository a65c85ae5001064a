"""A scan as a table."""

from __future__ import annotations

from rich.filesize import decimal
from rich.table import Table

from torch_fl.plain_text import duration, plain_text
from torch_fl.tuning.record import Trial, Tuning


def text(tuning: Tuning) -> str:
    """How it was measured, one row per combination, and the best of them."""
    steps = f"{tuning.rounds} x {tuning.repeats} steps each after {tuning.warm_up} to warm up"
    first = f"{tuning.function} on {tuning.device}, combinations: {len(tuning.trials)}, {steps}, seed {tuning.seed}"
    return "\n".join([first, plain_text(_rows(tuning)), *_verdict(tuning)])


def _rows(tuning: Tuning) -> Table:
    out = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    scanned = list(tuning.trials[0].combination.scanned())
    rates = ("samples/s",) if "batch" in scanned else ()
    for heading in (*scanned, "step", "10 % .. 90 %", *rates, "memory"):
        out.add_column(heading, justify="right", no_wrap=True)
    for trial in tuning.trials:
        values = [f"{value:g}" for value in trial.combination.scanned().values()]
        blank = ("-",) * len(rates)
        cells = ("out of memory", "-", *blank, "-") if trial.out_of_memory else _measured(trial, bool(rates))
        out.add_row(*values, *cells)
    return out


def _measured(trial: Trial, rate: bool) -> tuple[str, ...]:
    low, high = trial.spread
    rates = (f"{1 / trial.cost:.4g}",) if rate else ()
    return duration(trial.median), f"{duration(low)} .. {duration(high)}", *rates, decimal(trial.peak_bytes)


def _verdict(tuning: Tuning) -> list[str]:
    best = tuning.best
    if best is None:
        return ["no combination fits into the device's memory: scan smaller batches, or a larger share of the pool"]
    lines = [f"best: {best.combination}"]
    if tuning.as_good:
        others = "; ".join(str(trial.combination) for trial in tuning.as_good)
        lines.append(f"not told apart from it, their medians being within its spread: {others}")
    return lines
