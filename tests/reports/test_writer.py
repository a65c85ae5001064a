"""Report folders: complete, replaced as a whole, and writable whatever a plugin says."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_fl_reports import writer
from torch_fl_reports.canonical import MalformedJson, canonical, plain, read_json, report_digest
from torch_fl_reports.writer import NotAReportFolder, folder_name, read_report, write_report

from . import honest


def _failing(rows: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    row = next(row for row in rows if row["kind"] == "operator" and row["verdict"] == "pass")
    row.update(verdict="fail", message="element [0, 4]: got 2, expected 1", violates=["FL-KERNEL-010"], **fields)
    return row


def test_folder_holds_report_and_everything_drawn_from_it(tmp_path: Path) -> None:
    run = honest.run_data()
    report = write_report(run, honest.rows(run), tmp_path / "acme")
    names = {path.name for path in (tmp_path / "acme").iterdir()}
    assert names == {"report.json", "report.html", "badge.svg", "badge.json", "junit.xml"}
    assert read_report(tmp_path / "acme") == report
    assert report.totals.certified
    assert [path.name for path in tmp_path.iterdir()] == ["acme"], "temporary folders are gone"


def test_totals_and_id_are_computed(tmp_path: Path) -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    failing = _failing(rows)
    report = writer.assemble(run, rows)
    assert report.totals.rows == len(rows)
    assert report.totals.cases == report.run.cases == sum(row["cases"] for row in rows)
    assert report.totals.verdicts["fail"] == 1
    assert not report.totals.certified
    assert report.report_id == report_digest(report.plain())
    failing["verdict"] = "crash"
    assert writer.assemble(run, rows).report_id != report.report_id


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    run = honest.run_data()
    for name in ("one", "two"):
        write_report(run, honest.rows(run), tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_an_earlier_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    run = honest.run_data()
    write_report(run, honest.rows(run), tmp_path / "acme")
    (tmp_path / "acme" / "left-over").write_text("old")
    write_report(run, honest.rows(run), tmp_path / "acme")
    assert not (tmp_path / "acme" / "left-over").exists()


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    run = honest.run_data()
    with pytest.raises(NotAReportFolder, match="holds no report"):
        write_report(run, honest.rows(run), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_page_that_cannot_be_drawn_does_not_lose_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(writer, "render_folder", broken)
    run = honest.run_data()
    with pytest.raises(RuntimeError, match="no fonts"):
        write_report(run, honest.rows(run), tmp_path / "acme")
    assert read_report(tmp_path / "acme").totals.certified


def test_reproducers_and_allure_results_come_along(tmp_path: Path) -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    failing = _failing(rows)
    source = tmp_path / "case-7"
    source.mkdir()
    (source / "repro.py").write_text("print(1)\n")
    allure = tmp_path / "allure"
    allure.mkdir()
    (allure / "x-result.json").write_text("{}")
    report = write_report(run, rows, tmp_path / "out", {failing["id"]: source}, allure)
    row = next(row for row in report.rows if row.id == failing["id"])
    assert row.reproducer == f"reproducers/{folder_name(failing['id'])}"
    assert (tmp_path / "out" / row.reproducer / "repro.py").read_text() == "print(1)\n"
    assert (tmp_path / "out" / "allure-results" / "x-result.json").exists()


def test_a_reproducer_that_has_gone_costs_only_itself(tmp_path: Path) -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    gone = _failing(rows)
    kept = _failing(rows)
    (tmp_path / "kept").mkdir()
    report = write_report(run, rows, tmp_path / "out", {gone["id"]: tmp_path / "gone", kept["id"]: tmp_path / "kept"})
    by_id = {row.id: row for row in report.rows}
    assert by_id[gone["id"]].reproducer is None
    assert "no reproducer: " in by_id[gone["id"]].notes[0]
    assert by_id[kept["id"]].reproducer is not None
    assert [path.name for path in (tmp_path / "out" / "reproducers").iterdir()] == [folder_name(kept["id"])]


def test_nan_and_infinity_are_words(tmp_path: Path) -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    facts = {"expected": float("nan"), "got": np.float32("inf"), "index": (0, np.int64(4)), "raw": b"\xff"}
    _failing(rows, worst={"err_over_t": float("inf"), "where": {"got": float("-inf")}}, case=facts)
    write_report(run, rows, tmp_path / "out")
    text = (tmp_path / "out" / "report.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    data = read_json(text.encode())
    row = next(row for row in data["rows"] if row["verdict"] == "fail")
    assert row["worst"] == {"err_over_t": "inf", "where": {"got": "-inf"}}
    assert row["case"] == {"expected": "nan", "got": "inf", "index": [0, 4], "raw": "ff"}


def test_whatever_a_plugin_says_can_be_written(tmp_path: Path) -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    row = _failing(rows)
    row["message"] = "\ud800 <script>alert(1)</script> \x00\x1b[31m ]]> & \N{RIGHT-TO-LEFT OVERRIDE}"
    run["declarations"]["devices"][0]["name"] = "<b>\udfff"
    report = write_report(run, rows, tmp_path / "out")
    assert read_report(tmp_path / "out") == report
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_strict_reading() -> None:
    with pytest.raises(MalformedJson, match="twice") as duplicate:
        read_json(b'{"a": {"b": 1, "b": 2}}')
    assert duplicate.value.code == "duplicate-key"
    for word in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        with pytest.raises(MalformedJson) as error:
            read_json(b'{"a": ' + word + b"}")
        assert error.value.code == "not-a-number"
    for broken in (b"", b"{", b"\xff", b"[" * 200_000):
        with pytest.raises(MalformedJson) as error:
            read_json(broken)
        assert error.value.code == "not-json"


def test_canonical_spelling_is_one() -> None:
    value = {"b": [1, 2.5, "é"], "a": None}
    assert canonical(value) == '{"a":null,"b":[1,2.5,"é"]}'.encode()
    assert canonical(json.loads(canonical(value))) == canonical(value)
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})


def test_plain_refuses_what_has_no_form() -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        plain({"a": object()})


@pytest.mark.parametrize(
    ("row_id", "name"),
    [
        ("aten::add.Tensor/r1/generic/f32", "add.Tensor-r1-generic-f32"),
        ("aten::_to_copy/r1/generic/f32,bf16", "_to_copy-r1-generic-f32-bf16"),
        ("FL-MEM-003", "FL-MEM-003"),
        ("../../etc", "etc"),
    ],
)
def test_folder_names(row_id: str, name: str) -> None:
    assert folder_name(row_id) == name


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"schema": "other/v1"}', "[" * 100_000])
def test_another_programs_report_json_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "report.json").write_text(content)
    run = honest.run_data()
    with pytest.raises(NotAReportFolder, match="holds no report"):
        write_report(run, honest.rows(run), tmp_path / "work")
    assert (tmp_path / "work" / "report.json").read_text() == content


def test_a_report_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAReportFolder, match="no folder that can be written to"):
        writer.check_replaceable(tmp_path / "file" / "below" / "it")


def test_a_folder_that_cannot_be_written_to_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, so a folder's mode alone would not show.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(NotAReportFolder, match="no folder that can be written to"):
        writer.check_replaceable(tmp_path / "report")


@pytest.mark.parametrize("folder", ["/proc/report", "/proc/below/report", "x" * 300, "x" * 300 + "/report"])
def test_a_folder_that_cannot_be_made_is_told_beforehand(tmp_path: Path, folder: str) -> None:
    with pytest.raises((OSError, NotAReportFolder)):
        writer.check_replaceable(tmp_path / folder)
    assert not list(tmp_path.iterdir())


def test_the_longest_name_of_a_folder_is_taken_twice(tmp_path: Path) -> None:
    run = honest.run_data()
    for _ in range(2):
        write_report(run, [], tmp_path / ("x" * 255))
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]


def test_runs_that_end_at_once_leave_one_whole_report(tmp_path: Path) -> None:
    def end(number: int) -> None:
        fresh = tmp_path / f"fresh{number}"
        fresh.mkdir()
        for name in ("a", "b"):
            (fresh / name).write_text(str(number))
        writer._replace(tmp_path / "report", fresh)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(end, range(64)))
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert len({path.read_text() for path in (tmp_path / "report").iterdir()}) == 1
