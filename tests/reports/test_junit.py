"""junit.xml holds every row once, with its verdict in JUnit's terms."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import JUnitXml
from torch_fl_reports.junit import write_junit
from torch_fl_reports.writer import assemble

from . import honest


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [
        ("pass", None),
        ("fail", "failure"),
        ("crash", "failure"),
        ("hang", "failure"),
        ("no-power", "failure"),
        ("error", "error"),
        ("collateral", "error"),
        ("not-claimed", "skipped"),
        ("waived", "skipped"),
    ],
)
def test_each_verdict(tmp_path: Path, verdict: str, tag: str | None) -> None:
    run = honest.run_data()
    rows = [row for row in honest.rows(run) if row["verdict"] == "pass"]
    rows[0].update(verdict=verdict, message="bell \x07 & <angle>", case={"index": [1, 2]})
    report = assemble(run, rows)
    write_junit(report, tmp_path / "junit.xml")
    document = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    cases = {case.name: case for suite in document for case in suite}
    assert cases.keys() == {row.id for row in report.rows}
    assert document.tests == len(report.rows)
    results = cases[report.rows[0].id].result
    assert [type(result)._tag for result in results] == ([] if tag is None else [tag])
    if tag in ("failure", "error"):
        assert results[0].message == "bell \N{REPLACEMENT CHARACTER} & <angle>"
        assert '"index"' in results[0].text


def test_chapters_are_suites(tmp_path: Path) -> None:
    run = honest.run_data()
    report = assemble(run, honest.rows(run))
    write_junit(report, tmp_path / "junit.xml")
    document = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert [suite.name for suite in document] == sorted({row.chapter for row in report.rows})


def test_a_name_that_xml_cannot_hold_does_not_break_the_file(tmp_path: Path) -> None:
    run = honest.run_data()
    run["subject"]["version"] = "1\x01\x1b"
    write_junit(assemble(run, honest.rows(run)), tmp_path / "junit.xml")
    document = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert document.name == "Torch-FL acme 1\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
