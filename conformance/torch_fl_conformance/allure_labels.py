"""Allure's view of a row: epic vendor, feature chapter, story rule, severity, attachments.

allure-pytest writes the result files; this fills in what it cannot know, in a run with --alluredir.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_fl_spec.rows import ExpectedRow

_SEVERITY = {
    "load": "blocker",
    "memory": "blocker",
    "stream": "critical",
    "copy": "critical",
    "thread": "critical",
    "process": "critical",
}


def wanted(config: pytest.Config) -> bool:
    """Whether this run writes Allure results."""
    return bool(config.getoption("allure_report_dir", None))


def describe(vendor: str, row: ExpectedRow, verdict: str, text: str, reproducer: Path | None) -> None:
    """Label the running test; attach what is known of a failure."""

    import allure as untyped

    allure: Any = untyped

    allure.dynamic.epic(vendor)
    allure.dynamic.feature(row.chapter)
    allure.dynamic.story(row.rule or f"{row.op} r{row.revision} {row.variant}")
    allure.dynamic.title(row.id)
    allure.dynamic.severity(allure.severity_level(_SEVERITY.get(row.chapter, "normal")))
    allure.dynamic.tag(verdict)
    if verdict not in ("pass", "not-claimed"):
        allure.attach(text, "failure", allure.attachment_type.TEXT)
    if reproducer is not None:
        for path in sorted(reproducer.iterdir()):
            allure.attach.file(str(path), f"reproducer/{path.name}")
