"""Runs the suite on one library for several seeds, and says what killed it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .build import build
from .corpus import ROOT, Twin

WATCHDOG = 8.0
"""Seconds without an answer after which a driver counts as hung: less than a user's run allows, since defects hang."""
KILLS = ("fail", "crash", "hang")
LIKELIEST = 3
"""A row names every rule that its case may break, the likeliest first: so many of them have to hold the broken one."""
START_SECONDS = 60.0
"""For a judge to start, on a loaded machine."""


class JudgeFailed(Exception):
    """The suite itself did not get to an answer."""


@dataclass(frozen=True)
class Run:
    """What one run of the suite said: rows in the order in which they ran."""

    seed: int
    rows: list[dict[str, Any]]
    seconds: float


@dataclass(frozen=True)
class Kill:
    """How one seed ended. row: the row that noticed, None for a survivor."""

    seed: int
    row: str | None
    verdict: str
    violates: tuple[str, ...]
    seconds: float
    message: str = ""


@dataclass
class Outcome:
    """Everything about one twin in one personality."""

    twin: str
    personality: str
    title: str
    kills: list[Kill] = field(default_factory=list)
    spoiled: list[str] = field(default_factory=list)  # fixed rows that did not pass
    weak: list[str] = field(default_factory=list)  # why a kill is not what it should be

    @property
    def killed(self) -> list[Kill]:
        """The seeds that noticed."""
        return [kill for kill in self.kills if kill.row is not None]

    @property
    def survived(self) -> list[Kill]:
        """The seeds that did not."""
        return [kill for kill in self.kills if kill.row is None]

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def judge(
    library: Path,
    runs: Sequence[tuple[int, Sequence[str]]],
    *,
    watchdog: float = WATCHDOG,
    stop: bool = True,
    seconds: float = 90.0,
) -> list[Run]:
    """Run the suite with each (seed, rows); raises JudgeFailed.

    stop: a run ends at its first failing row. seconds: what a run may take.
    """
    request = {
        "library": str(library),
        "watchdog": watchdog,
        "stop": stop,
        "runs": [{"seed": seed, "rows": list(rows)} for seed, rows in runs],
    }
    command = [sys.executable, "-m", "tests.twins.judge_process"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    allowed = START_SECONDS + seconds * len(runs)
    try:
        said, complaints = process.communicate(json.dumps(request), timeout=allowed)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise JudgeFailed(f"no end after {allowed:.0f} s") from None
    answers = [json.loads(line) for line in said.splitlines()]
    if process.returncode or len(answers) != len(runs):
        raise JudgeFailed(f"exit code {process.returncode}, {len(answers)} of {len(runs)} runs\n{complaints[-4000:]}")
    for answer in answers:
        if not answer["rows"]:
            raise JudgeFailed(f"no row ran (exit {answer['exit']}): {answer['said']}")
    return [Run(answer["seed"], answer["rows"], answer["seconds"]) for answer in answers]


def try_twin(twin: Twin, personality: str, seeds: Sequence[int]) -> Outcome:
    """Judge a twin with each seed, and its fixed rows with the first one."""
    library = build(twin.edits, personality=personality, units=twin.units)
    outcome = Outcome(twin.id, personality, twin.title)
    runs: list[tuple[int, Sequence[str]]] = [(seed, twin.targets) for seed in seeds]
    if twin.fixed_rows:
        fixed, *answers = judge(library, [(seeds[0], twin.fixed_rows), *runs])
        outcome.spoiled = [f"{row['id']}: {row.get('message', row['verdict'])}" for row in fixed.rows if _is_bad(row)]
    else:
        answers = judge(library, runs)
    outcome.kills = [_kill(run) for run in answers]
    outcome.weak = sorted({reason for kill in outcome.killed for reason in weaknesses(twin, kill)})
    return outcome


def _is_bad(row: dict[str, Any]) -> bool:
    return row["verdict"] not in ("pass", "not-claimed")


def _kill(run: Run) -> Kill:
    for row in run.rows:
        if row["verdict"] in KILLS:
            violates = tuple(row.get("violates", ()))
            return Kill(run.seed, row["id"], row["verdict"], violates, run.seconds, row.get("message", ""))
    bad = [row for row in run.rows if _is_bad(row)]
    verdicts = sorted({row["verdict"] for row in bad})
    said = "; ".join(f"{row['id']}: {row.get('message', '')}" for row in bad)
    return Kill(run.seed, None, ",".join(verdicts) or "pass", (), run.seconds, said)


def weaknesses(twin: Twin, kill: Kill) -> list[str]:
    """Why a kill is weaker than the corpus asks: by noise instead of a verdict, or in the name of another rule."""
    reasons = []
    if kill.verdict not in twin.expected:
        reasons.append(f"{kill.verdict} instead of {' or '.join(twin.expected)}")
    named = kill.violates
    if not named and kill.row is not None and kill.row.startswith("FL-"):
        named = (kill.row,)
    if kill.verdict == "fail" and not set(named[:LIKELIEST]) & set(twin.rules):
        reasons.append(f"named {', '.join(named) or 'no rule'}")
    return reasons
