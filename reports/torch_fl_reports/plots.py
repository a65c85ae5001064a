"""The page's pictures, drawn by matplotlib as inline SVG that follows the page's light or dark colours."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch_fl_reports.model import OperatorRow, Report
from torch_fl_reports.summary import Chapter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawn in these colours, which are then replaced with the page's own variables.
_INK, _FAINT, _ACCENT, _BAD = "#010101", "#020202", "#030303", "#040404"
_VARIABLES = {_INK: "var(--muted)", _FAINT: "var(--line)", _ACCENT: "var(--accent)", _BAD: "var(--bad)"}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: selectable, and in the page's font
    "svg.hashsalt": "torch-fl",  # equal reports give equal pages
    "text.parse_math": False,  # a name may hold a dollar
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}
_CEILING = 2.0
"""err/T beyond this is drawn at the right edge."""


def err_over_t(report: Report) -> str:
    """Worst err/T of every row that has a budget, one dot per row, one band per chapter; "" without any."""
    points: dict[str, list[float]] = {}
    for row in report.rows:
        if isinstance(row, OperatorRow) and row.worst is not None and row.worst.err_over_t != 0:
            ratio = row.worst.err_over_t
            value = _CEILING if isinstance(ratio, str) else min(ratio, _CEILING)
            points.setdefault(row.chapter, []).append(value)
    if not points:
        return ""
    names = sorted(points, reverse=True)
    shake = random.Random(0)
    with _figure(8.6, 0.7 + 0.42 * len(names)) as (figure, axes):
        for level, name in enumerate(names):
            heights = [level + shake.uniform(-0.26, 0.26) for _ in points[name]]
            colours = [_BAD if value > 1 else _ACCENT for value in points[name]]
            axes.scatter(points[name], heights, s=16, c=colours, alpha=0.75, linewidths=0)
        axes.axvline(1, color=_BAD, linewidth=1, linestyle=(0, (4, 3)))
        highest = max(max(values) for values in points.values())
        axes.set_xlim(0, 1.06 if highest <= 1 else _CEILING * 1.03)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlabel("worst error as a share of its budget (1 = all of it)")
        return _svg(figure, "Worst error over budget, by chapter")


def bars(chapters: tuple[Chapter, ...], unit: str) -> str:
    """Horizontal bars per chapter; `unit` is "seconds" or "cases"."""
    shown = chapters[::-1]  # matplotlib counts upwards
    values = [chapter.seconds if unit == "seconds" else float(chapter.cases) for chapter in shown]
    with _figure(4.6, 0.6 + 0.26 * len(shown)) as (figure, axes):
        drawn = axes.barh([chapter.name for chapter in shown], values, color=_ACCENT, height=0.62)
        labels = [f"{value:,.1f}" if unit == "seconds" else f"{value:,.0f}" for value in values]
        axes.bar_label(drawn, labels, padding=4, color=_INK, fontsize=8)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.margins(x=0.16, y=0.02)
        return _svg(figure, f"{unit} per chapter")


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A transparent figure (inches) outside pyplot's global state."""
    import matplotlib  # imported here: half a second that only a page needs
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.tick_params(length=0)
        yield figure, axes


def _svg(figure: Figure, title: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # an inline SVG has no XML prolog
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    prefix = re.sub(r"\W+", "-", title.lower())  # one page holds several pictures: ids must differ
    text = re.sub(r'((?<= id=")|(?<=url\(#)|(?<=href="#))', f"{prefix}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
