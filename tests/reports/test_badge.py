"""Badges say what was run and by whom, and never too much."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from torch_fl_reports.badge import badge_json, badge_of, badge_svg
from torch_fl_reports.canonical import report_digest
from torch_fl_reports.model import Report
from torch_fl_reports.summary import summarise
from torch_fl_reports.writer import assemble

from . import honest

RUN_PARTS = ("interface", "subject", "abi", "suite", "run", "environment", "declarations")


def _report(verdict: str = "pass", **run_fields: Any) -> Report:
    run = honest.run_data()
    run["run"].update(run_fields)
    rows = honest.rows(run)
    rows[0]["verdict"] = verdict
    if verdict == "waived":
        rows[0]["waiver"] = "W-1"
        waiver = {"id": "W-1", "kind": "suite-defect", "rows": [rows[0]["id"]], "text": "the suite is wrong here"}
        run["waivers"] = [{**waiver, "expires": "2027-01-01T00:00:00Z"}]
    return assemble(run, rows)


def test_earned(honest_report: Report) -> None:
    badge = badge_of(honest_report)
    assert (badge.message, badge.colour) == ("core-1.0-candidate · self-run", "brightgreen")


def test_a_waived_row_is_printed_on_the_badge() -> None:
    assert badge_of(_report("waived")).message == "core-1.0-candidate · self-run · 1 exception"


def test_totals_that_were_edited_earn_nothing(plain: dict[str, Any]) -> None:
    plain["rows"][0]["verdict"] = "fail"
    plain["report_id"] = report_digest(plain)
    assert plain["totals"]["certified"]
    assert badge_of(Report.model_validate(plain)).colour == "red"


def test_a_report_that_was_changed_earns_nothing(plain: dict[str, Any]) -> None:
    plain["run"]["seed"] += 1
    assert badge_of(Report.model_validate(plain)).message == "core-1.0-candidate · not passed"


def test_rows_that_were_taken_out_earn_nothing(plain: dict[str, Any]) -> None:
    """Without a key everything else can be made to fit."""
    taken = plain["rows"].pop(7)
    report = assemble({key: plain[key] for key in RUN_PARTS}, plain["rows"])
    assert report.totals.certified
    assert badge_of(report).message == "core-1.0-candidate · not passed"
    assert [text for text in summarise(report).reasons if "missing" in text and taken["id"] in text]


def test_a_waiver_that_is_not_there_excuses_nothing(plain: dict[str, Any]) -> None:
    plain["rows"][0] |= {"verdict": "waived", "waiver": "W-1"}
    report = assemble({key: plain[key] for key in RUN_PARTS}, plain["rows"])
    assert badge_of(report).colour == "red"


def test_rows_that_cannot_be_computed_here_earn_no_badge(plain: dict[str, Any]) -> None:
    plain["suite"]["registry_digest"] = "5" * 64
    report = assemble({key: plain[key] for key in RUN_PARTS}, plain["rows"])
    assert (badge_of(report).message, badge_of(report).colour) == ("core-1.0-candidate · other operators", "lightgrey")


@pytest.mark.parametrize("verdict", ["fail", "crash", "hang", "no-power"])
def test_failed_rows_are_counted(verdict: str) -> None:
    report = _report(verdict)
    badge = badge_of(report)
    assert badge.message == f"core-1.0-candidate · 1 of {len(report.rows)} rows failed"
    assert badge.colour == "red"


@pytest.mark.parametrize("verdict", ["error", "collateral"])
def test_trouble_of_the_suite_is_not_the_plugins_failure(verdict: str) -> None:
    badge = badge_of(_report(verdict))
    assert (badge.message, badge.colour) == ("core-1.0-candidate · incomplete run", "lightgrey")


@pytest.mark.parametrize("field", ["partial", "interrupted"])
def test_an_incomplete_run_is_grey(field: str) -> None:
    badge = badge_of(_report("pass", **{field: True}))
    assert (badge.message, badge.colour) == ("core-1.0-candidate · incomplete run", "lightgrey")


def test_a_debugging_run_earns_nothing() -> None:
    badge = badge_of(_report(in_process=True))
    assert (badge.message, badge.colour) == ("core-1.0-candidate · not passed", "red")


def test_endpoint_document(honest_report: Report) -> None:
    data = json.loads(badge_json(badge_of(honest_report)))
    assert data == {
        "schemaVersion": 1,
        "label": "Torch-FL conformance",
        "message": "core-1.0-candidate · self-run",
        "color": "brightgreen",
    }


def test_svg_is_well_formed_and_says_the_same(honest_report: Report) -> None:
    badge = badge_of(honest_report)
    svg = badge_svg(badge)
    texts = [node.text for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]
    assert badge.label in texts
    assert badge.message in texts
    assert svg == badge_svg(badge)


def test_words_that_no_badge_may_use() -> None:
    for report in (_report(), _report("fail"), _report("waived"), _report(partial=True)):
        text = badge_of(report).message.lower()
        assert not any(word in text for word in ("certified", "100 %", "100%", "bug-free"))
