"""report.html: one file, no scripts, nothing loaded from elsewhere, light or dark as its reader is."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from torch_fl_spec.printable import printable
from torch_fl_spec.rules import load_rules

from torch_fl_reports import plots
from torch_fl_reports.badge import badge_of, badge_svg
from torch_fl_reports.matrix import matrix_of
from torch_fl_reports.model import OperatorRow, Report, Row
from torch_fl_reports.summary import Summary, duration_text, ratio_text, summarise
from torch_fl_reports.totals import ORDER

MAX_FAILURES = 60
"""Failing rows that get a card of their own; the rest is listed by id (report.json has everything)."""


def report_page(report: Report) -> str:
    """The whole page as text."""
    environment = Environment(
        loader=PackageLoader("torch_fl_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ratio=ratio_text, duration=duration_text, size=_size, fact=_fact, number=_number)
    summary = summarise(report)
    text: str = environment.get_template("report.html.j2").render(
        report=report,
        summary=summary,
        badge=Markup(badge_svg(badge_of(report))),
        matrix=matrix_of(report),
        plots={
            "ratio": Markup(plots.err_over_t(report)),
            "seconds": Markup(plots.bars(summary.chapters, "seconds")),
            "cases": Markup(plots.bars(summary.chapters, "cases")),
        },
        failures=summary.failing[:MAX_FAILURES],
        more_failures=summary.failing[MAX_FAILURES:],
        unclaimed=_by_operator(summary),
        rules={rule.id: rule for rule in load_rules()},
        rows_of={chapter.name: _rows_of(report, chapter.name) for chapter in summary.chapters},
        verdicts=ORDER,
        tiers=_tiers(report),
        reproduce=reproduce_command(report),
    )
    return text


def reproduce_command(report: Report) -> str:
    """The command that repeats this run."""
    parts = ["torch-fl certify", report.subject.vendor, f"--profile {report.run.profile}"]
    parts += [f"--effort {report.run.effort}", f"--seed {report.run.seed}"]
    return " ".join(parts)


def _rows_of(report: Report, chapter: str) -> list[Row]:
    return [row for row in report.rows if row.chapter == chapter]


def _by_operator(summary: Summary) -> dict[str, list[str]]:
    """Unclaimed rows: operator -> dtypes."""
    operators: dict[str, list[str]] = defaultdict(list)
    for row in summary.unclaimed:
        operators[row.op.removeprefix("aten::")].append(",".join(row.dtypes))
    return dict(operators)


def _tiers(report: Report) -> dict[str, int]:
    tiers: dict[str, int] = defaultdict(int)
    for row in report.rows:
        if isinstance(row, OperatorRow) and row.tier is not None:
            tiers[row.tier] += 1
    return dict(tiers)


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "\N{THIN SPACE}")


def _size(value: int) -> str:
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.3g} {unit}"


def _fact(value: Any) -> str:
    """A fact of a failing case on one line, or indented where it is a structure of its own."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 90 and isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False, indent=1)
    return text
