"""The badge: badge.svg for a page, badge.json for shields.io's endpoint.

It says what was run and who ran it. It never says "certified by", "100 %" or "bug-free": a badge is read by
people who do not read the report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import anybadge  # type: ignore[import-untyped]
from torch_fl_spec.registry import load_registry

from torch_fl_reports.model import Report
from torch_fl_reports.summary import summarise
from torch_fl_reports.totals import HARMLESS, SUITE_TROUBLE

LABEL = "Torch-FL conformance"
_COLOURS = {"brightgreen": "#2da44e", "red": "#cf222e", "lightgrey": "#8b949e"}


@dataclass(frozen=True)
class Badge:
    """What a badge shows. `colour` is one of shields.io's names."""

    label: str
    message: str
    colour: str


def badge_of(report: Report) -> Badge:
    """The badge that a report earns, whatever its totals say."""
    level = f"{report.run.profile}-{report.interface}"
    if summarise(report).certified:
        exceptions = sum(row.verdict == "waived" for row in report.rows)
        parts = [level, "self-run"]
        if exceptions:
            parts.append(f"{exceptions} exception{'s' if exceptions > 1 else ''}")
        return Badge(LABEL, " · ".join(parts), "brightgreen")
    failed = sum(row.verdict not in HARMLESS | SUITE_TROUBLE for row in report.rows)
    if failed:
        return Badge(LABEL, f"{level} · {failed} of {len(report.rows)} rows failed", "red")
    troubled = any(row.verdict in SUITE_TROUBLE for row in report.rows)
    if report.run.interrupted or report.run.partial or troubled:
        return Badge(LABEL, f"{level} · incomplete run", "lightgrey")
    if report.suite.registry_digest != load_registry().digest:
        return Badge(LABEL, f"{level} · other operators", "lightgrey")
    return Badge(LABEL, f"{level} · not passed", "red")


def badge_json(badge: Badge) -> str:
    """shields.io's endpoint document (schemaVersion 1)."""
    data: dict[str, Any] = {
        "schemaVersion": 1,
        "label": badge.label,
        "message": badge.message,
        "color": badge.colour,
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def badge_svg(badge: Badge) -> str:
    """The same badge as a picture."""
    drawn = anybadge.Badge(badge.label, badge.message, default_color=_COLOURS[badge.colour], num_padding_chars=1)
    # anybadge numbers its masks per process; one fixed name keeps equal reports equal byte for byte.
    return str(drawn.badge_svg_text).replace(drawn.mask_str, "torch-fl-badge")
