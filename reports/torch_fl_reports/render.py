"""Everything that is drawn from report.json: page, badge, JUnit. It can be drawn again at any time."""

from __future__ import annotations

from pathlib import Path

from torch_fl_reports.badge import badge_json, badge_of, badge_svg
from torch_fl_reports.html import report_page
from torch_fl_reports.junit import write_junit
from torch_fl_reports.model import Report

PAGE = "report.html"


def render_folder(report: Report, folder: Path) -> list[Path]:
    """Write badge.json, badge.svg, junit.xml and report.html to `folder`; the answer lists them."""
    badge = badge_of(report)
    files = {"badge.json": badge_json(badge), "badge.svg": badge_svg(badge)}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_junit(report, folder / "junit.xml")
    (folder / PAGE).write_text(report_page(report), encoding="utf-8")
    return [folder / name for name in (*files, "junit.xml", PAGE)]
