"""report.html: one self-contained file that holds what a reader looks for."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from torch_fl_reports.html import MAX_FAILURES, report_page
from torch_fl_reports.matrix import matrix_of
from torch_fl_reports.model import Report
from torch_fl_reports.summary import duration_text, ratio_text, summarise
from torch_fl_reports.writer import assemble

from . import honest

VOID = {"meta", "br", "link", "input", "img", "hr"}


class Page(HTMLParser):
    """Checks nesting while it collects ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def failing_report(**fields: Any) -> Report:
    run = honest.run_data()
    rows = honest.rows(run)
    row = next(row for row in rows if row["id"] == "aten::mm/r1/generic/f32")
    row |= {
        "verdict": "fail",
        "message": "element [4, 7]: got 12.5, expected 12.25, budget 0.0625",
        "violates": ["FL-KERNEL-010"],
        "case": {"shapes": [[8, 33], [33, 16]], "strides": [[66, 2], [1, 33]], "index": [4, 7]},
        "reproducer": "reproducers/mm-r1-generic-f32",
        **fields,
    }
    return assemble(run, rows)


def test_page_is_whole_and_stands_alone(honest_report: Report) -> None:
    text = report_page(honest_report)
    page = Page(text)
    assert "script" not in page.tags
    assert not {"img", "link", "iframe", "object"} & page.tags
    outside = [value for name, value in page.attributes if name in ("src", "href") and not value.startswith("#")]
    assert [value for value in outside if not value.startswith("http://www.w3.org")] == []
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text


def test_ids_are_unique_and_links_lead_somewhere(honest_report: Report) -> None:
    page = Page(report_page(honest_report))
    assert len(page.ids) == len(set(page.ids))
    targets = {value[1:] for name, value in page.attributes if name.endswith("href") and value.startswith("#")}
    assert targets <= set(page.ids)


def test_earned_page_says_what_and_what_not(honest_report: Report) -> None:
    page = Page(report_page(honest_report))
    subject = honest_report.subject
    for part in (
        "Passed core 1.0-candidate",
        "Self-run",
        subject.files[0].sha256,
        subject.libraries[0].sha256,
        honest_report.suite.source_digest,
        honest_report.suite.registry_digest,
        honest_report.report_id,
        "torch-fl certify acme --profile core --effort quick --seed 20260801",
        "What this report does not show",
        "cannot tell a chip from a model of it",
        "ACME_LOG",
    ):
        assert part in page.text, part
    assert "Failures" not in page.text
    for row in honest_report.rows:
        assert row.id in page.text


def test_failing_rows_come_with_everything_needed(honest_report: Report) -> None:
    page = Page(report_page(failing_report()))
    for part in (
        "Did not pass core 1.0-candidate",
        "1 row failed",
        "element [4, 7]: got 12.5, expected 12.25, budget 0.0625",
        "FL-KERNEL-010",
        "[[66, 2], [1, 33]]",
        "python reproducers/mm-r1-generic-f32/repro.py",
        "gdb --args python reproducers/mm-r1-generic-f32/repro.py",
    ):
        assert part in page.text, part


def test_many_failures_are_cut_and_counted() -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    failing = [row for row in rows if row["verdict"] == "pass"][: MAX_FAILURES + 7]
    for row in failing:
        row["verdict"] = "hang"
    page = Page(report_page(assemble(run, rows)))
    assert "7 more failing rows" in page.text
    assert f"{MAX_FAILURES + 7} rows hung" in page.text


def test_hostile_text_stays_text() -> None:
    text = report_page(failing_report(message="</pre><script>x()</script>", notes=["<img src=x>"]))
    assert "<script" not in text
    assert "<img" not in text


def test_matrix_has_every_operator_row_once(honest_report: Report) -> None:
    matrix = matrix_of(honest_report)
    assert matrix.columns == ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
    hints = [
        cell.hint.split(" · ")[0]
        for group in matrix.groups
        for line in group.lines
        for cell in line.cells
        if cell is not None
    ]
    assert sorted(hints) == sorted(row.id for row in honest_report.rows if row.kind == "operator")


def test_matrix_puts_unclaimed_dtypes_on_the_operators_line(honest_report: Report) -> None:
    lines = [line for group in matrix_of(honest_report).groups for line in group.lines if line.op == "erf"]
    assert len(lines) == 1
    verdicts = {cell.verdict for cell in lines[0].cells if cell is not None}
    assert verdicts == {"pass", "not-claimed"}


def test_casts_have_a_line_per_target(honest_report: Report) -> None:
    lines = [line for group in matrix_of(honest_report).groups for line in group.lines if line.op == "_to_copy"]
    assert sorted(line.detail for line in lines)[0] == "to bf16"
    assert len(lines) == 10


def test_summary_reads_rows_not_totals(honest_report: Report) -> None:
    lying = failing_report()
    lying = lying.model_copy(update={"totals": honest_report.totals})
    assert not summarise(lying).certified
    assert summarise(honest_report).certified


def test_worst_of_words_beats_numbers() -> None:
    summary = summarise(failing_report(worst={"err_over_t": "inf"}))
    assert summary.worst == ("aten::mm/r1/generic/f32", "inf")
    assert ratio_text("inf") == "inf"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (42.4, "42 s"), (59.7, "1 min 00 s"), (363, "6 min 03 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_shown_defects_come_before_troubles_of_the_suite() -> None:
    run = honest.run_data()
    rows = honest.rows(run)
    for index, verdict in enumerate(["error", "collateral", "hang", "fail"]):
        rows[index]["verdict"] = verdict
    failing = summarise(assemble(run, rows)).failing
    assert [row.verdict for row in failing] == ["hang", "fail", "error", "collateral"]


def test_chapters_stand_in_the_specifications_order(honest_report: Report) -> None:
    names = [chapter.name for chapter in summarise(honest_report).chapters]
    assert names[:4] == ["load", "version", "error", "thread"]
    assert names.index("kernel") + 1 == names.index("kernel.contraction")
    assert names[-1] == "extension.pinned"
