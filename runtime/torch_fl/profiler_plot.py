"""A profile as a picture: a bar per row, in its tier's colour; what the host spent waiting is hatched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_fl.profiler import TIERS, Measurement

#: Distinguishable with any colour vision (Okabe and Ito, https://jfly.uni-koeln.de/color/).
_COLOURS = dict(zip(TIERS, ("#999999", "#56b4e9", "#009e73", "#f0e442", "#e69f00", "#d55e00"), strict=True))
_INK = "#333333"
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "text.parse_math": False, "font.size": 9, "hatch.linewidth": 0.6}
_INCHES = (9.0, 1.4, 0.28)  # width; height, and more of it per row


def write(measured: Measurement, path: Path, limit: int) -> Path:
    """Draw the `limit` longest rows; the path's ending is the format, and matplotlib names those that it has."""
    import matplotlib  # imported here: half a second that only a picture needs
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = measured.operators[:limit][::-1]  # matplotlib counts upwards
    width, height, per_row = _INCHES
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height + per_row * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        waiting = [1e3 * (row.wait_s + row.completion_s) for row in rows]
        working = [max(0.0, 1e3 * row.host_s - wait) for row, wait in zip(rows, waiting, strict=True)]
        colours = [_COLOURS[row.tier] for row in rows]
        places = range(len(rows))
        axes.barh(places, working, color=colours, edgecolor=_INK, linewidth=0.4)
        axes.barh(places, waiting, left=working, color=colours, edgecolor=_INK, linewidth=0.4, hatch="////")
        axes.set_yticks(places, [f"{row.operator}  {row.device}  {row.calls} x" for row in rows])
        axes.set_xlabel("ms of the host" + (", the device's work included" if measured.synchronize else ""))
        shares = f"{1e3 * measured.host_s:,.2f} ms of the host's {1e3 * measured.seconds:,.2f} ms"
        title = f"operators on fl devices: {shares}"
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        used = [tier for tier in TIERS if any(row.tier == tier for row in rows)]
        legend = [Patch(facecolor=_COLOURS[tier], edgecolor=_INK, label=tier) for tier in used]
        legend.append(Patch(facecolor="white", edgecolor=_INK, hatch="////", label="waiting"))
        axes.legend(handles=legend, loc="lower right", frameon=False)
        figure.savefig(path, dpi=150)
    return path
