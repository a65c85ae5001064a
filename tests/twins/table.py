"""The table of a run over the corpus: who was killed, by which rule, how fast, and which check is alone in noticing."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from .runner import Outcome


def killers(outcome: Outcome) -> list[str]:
    """Rows that killed it, the most frequent first."""
    rows = [kill.row for kill in outcome.killed if kill.row is not None]
    return sorted(set(rows), key=lambda row: (-rows.count(row), row))


def unique_killers(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """Row -> twins that nothing else has killed: what would survive if this check went."""
    alone: dict[str, list[str]] = {}
    for twin in sorted({outcome.twin for outcome in outcomes}):
        rows = {row for outcome in outcomes if outcome.twin == twin for row in killers(outcome)}
        if len(rows) == 1:
            alone.setdefault(rows.pop(), []).append(twin)
    return dict(sorted(alone.items()))


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table and its sums as Markdown; seconds are of one run of the suite, start included."""
    ordered = sorted(outcomes, key=lambda outcome: (outcome.twin, outcome.personality))
    lines = ["| twin | made from | killed | by | seconds | weak | defect |", "|---|---|---|---|---|---|---|"]
    for outcome in ordered:
        seconds = statistics.median(kill.seconds for kill in outcome.kills)
        cells = [
            outcome.twin,
            outcome.personality,
            f"{len(outcome.killed)}/{len(outcome.kills)}",
            ", ".join(killers(outcome)) or "-",
            f"{seconds:.1f}",
            "; ".join([*outcome.weak, *(f"spoils {text[:60]}" for text in outcome.spoiled)]) or "-",
            outcome.title,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", *summary(ordered), "", "Twins that one row alone has killed:", ""]
    lines += [f"- {row}: {', '.join(twins)}" for row, twins in unique_killers(ordered).items()]
    return "\n".join(lines) + "\n"


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """What the table comes to, in a few lines."""
    runs = sum(len(outcome.kills) for outcome in outcomes)
    killed = sum(len(outcome.killed) for outcome in outcomes)
    seconds = [kill.seconds for outcome in outcomes for kill in outcome.kills]
    survivors = [f"{outcome.twin} ({outcome.personality})" for outcome in outcomes if outcome.survived]
    weak = [outcome.twin for outcome in outcomes if outcome.weak or outcome.spoiled]
    return [
        f"{killed} of {runs} runs killed their twin; {len({outcome.twin for outcome in outcomes})} twins; "
        f"median {statistics.median(seconds):.1f} s a run",
        f"survivors: {', '.join(survivors) or 'none'}",
        f"weak: {', '.join(weak) or 'none'}",
    ]


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    """The outcomes as JSON or, for any other suffix, as Markdown."""
    if path.suffix == ".json":
        data = {"twins": [outcome.plain() for outcome in outcomes], "unique": unique_killers(outcomes)}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    else:
        path.write_text(markdown(outcomes), encoding="utf-8")
