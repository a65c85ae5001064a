"""A report.json that anybody may have edited: what is shown of it stays text."""

from __future__ import annotations

import json
import re
import xml.dom.minidom
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from torch_fl_reports import plots
from torch_fl_reports.canonical import report_digest
from torch_fl_reports.commands import report as report_command
from torch_fl_reports.model import Report
from torch_fl_reports.summary import Chapter, summarise

from .forging import operator_row, rule_row

HOSTILE = "\x1b[31m\x9b32m\N{RIGHT-TO-LEFT OVERRIDE}\x7f<script>alert(1)</script>"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def test_what_a_report_says_controls_neither_terminal_nor_page(tmp_path: Path, plain: dict[str, Any]) -> None:
    plain["subject"]["vendor"] = plain["subject"]["version"] = plain["suite"]["version"] = HOSTILE
    plain["subject"]["libraries"] = [{"path": HOSTILE, "sha256": "a" * 64}]
    plain["environment"]["env"] = plain["run"]["options"] = {HOSTILE: HOSTILE}
    row = operator_row(plain)
    row.update(op=HOSTILE, id=row["id"].replace(row["op"], HOSTILE), worst={"err_over_t": 1e308})
    rule_row(plain).update(verdict="fail", message=HOSTILE, case={HOSTILE: HOSTILE}, notes=[HOSTILE])
    plain["report_id"] = report_digest(plain)
    (tmp_path / "report.json").write_text(json.dumps(plain))
    for command in ("show", "render"):
        result = CliRunner().invoke(report_command, [command, str(tmp_path)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert not CONTROLS.search(result.output), command
    page = (tmp_path / "report.html").read_text()
    assert not CONTROLS.search(page)
    assert "<script" not in page
    for name in ("badge.svg", "junit.xml"):
        xml.dom.minidom.parse(str(tmp_path / name))


def test_another_interface_has_passed_nothing(plain: dict[str, Any]) -> None:
    plain["interface"] = "9.9"
    plain["report_id"] = report_digest(plain)
    summary = summarise(Report.model_validate(plain))
    assert not summary.certified
    assert "interface 9.9" in summary.reasons[0]


def test_a_dollar_in_a_chapter_is_no_formula() -> None:
    chapter = Chapter("$\\frac{$", rows=1, cases=3, seconds=0.5, verdicts={"pass": 1}, worst=None)
    assert "\\frac" in plots.bars((chapter,), "seconds")
