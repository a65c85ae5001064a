"""Paired timings: a subject and its baseline by turns in one process, so that a machine's drift cancels out.

A ratio is taken within each pair of neighbouring blocks; what is reported is the median of these ratios with the
10th and 90th percentile, and the median times themselves.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

Action = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """One comparison. Times in nanoseconds a call; ratio = subject / baseline, below 1: the subject is faster."""

    name: str
    subject_ns: float
    baseline_ns: float
    ratio: float
    ratio_low: float
    ratio_high: float
    pairs: int


def compare(
    name: str,
    subject: Action,
    baseline: Action,
    *,
    pairs: int = 31,
    block_seconds: float = 0.01,
    settle: Action | None = None,
) -> Result:
    """Time both by turns. block_seconds: what one block of calls takes; settle: called after each block, untimed."""
    calls = [_calls_in(action, block_seconds, settle) for action in (subject, baseline)]
    times: list[tuple[float, float]] = []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        taken = [0.0, 0.0]
        for which in order:
            taken[which] = _block((subject, baseline)[which], calls[which])
            if settle is not None:
                settle()
        times.append((taken[0], taken[1]))
    ratios = sorted(subject_time / baseline_time for subject_time, baseline_time in times)
    return Result(
        name=name,
        subject_ns=statistics.median(time for time, _ in times) * 1e9,
        baseline_ns=statistics.median(time for _, time in times) * 1e9,
        ratio=statistics.median(ratios),
        ratio_low=ratios[len(ratios) // 10],
        ratio_high=ratios[-1 - len(ratios) // 10],
        pairs=pairs,
    )


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean that treats twice and half alike."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def publish(title: str, results: list[Result], out: Path | None, *, notes: dict[str, object] | None = None) -> None:
    """Print a table; with `out` write OUT.json and, beside it, OUT.png: ratios with their spread."""
    print(f"{title}\n{'':38} {'subject':>12} {'baseline':>12} {'ratio':>7}   10 % .. 90 %")
    for result in results:
        spread = f"{result.ratio_low:.2f} .. {result.ratio_high:.2f}"
        print(f"{result.name:38} {_shown(result.subject_ns):>12} {_shown(result.baseline_ns):>12} "
              f"{result.ratio:7.2f}   {spread}")  # fmt: skip
    mean = geometric_mean(result.ratio for result in results)
    print(f"{'geometric mean of ratios':38} {'':25} {mean:7.2f}")
    if out is None:
        return
    record = {
        "title": title,
        "command": " ".join([Path(sys.executable).name, *sys.argv]),
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "system": platform.release()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "geometric_mean": mean,
        "results": [asdict(result) for result in results],
        **(notes or {}),
    }
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _plot(title, results, out.with_suffix(".png"))


def _calls_in(action: Action, seconds: float, settle: Action | None) -> int:
    """How many calls fill a block; warms up on the way. A stall must not pass for slow calls: the quickest of three."""
    calls = 1
    while True:
        taken = math.inf
        for _ in range(3):
            taken = min(taken, _block(action, calls) * calls)
            if settle is not None:
                settle()
        if taken >= seconds or calls >= 1 << 20:
            return max(1, min(calls, int(calls * seconds / max(taken, 1e-9)) or 1))
        calls *= 2


def _block(action: Action, calls: int) -> float:
    """Seconds a call."""
    clock = time.perf_counter
    repeat = range(calls)
    began = clock()
    for _ in repeat:
        action()
    return (clock() - began) / calls


def _shown(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _plot(title: str, results: list[Result], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.3 * len(results)), layout="constrained")
    places = list(range(len(results)))
    middles = [result.ratio for result in results]
    spread = [
        [max(0.0, result.ratio - result.ratio_low) for result in results],
        [max(0.0, result.ratio_high - result.ratio) for result in results],
    ]
    axes.errorbar(middles, places, xerr=spread, fmt="o", capsize=3)
    axes.axvline(1.0, color="grey", linewidth=1)
    axes.set_yticks(places, [result.name for result in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("subject / baseline, median with 10 % and 90 %")
    axes.set_title(title)
    figure.savefig(path, dpi=120)
