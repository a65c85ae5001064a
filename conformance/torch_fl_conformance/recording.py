"""From pytest's items to rows: which row an item is, what its check told, and the plain dict that goes out.

The dict travels on the item's last report (`report.torch_fl_row`, JSON text), which pytest-xdist carries to
the controller as it is.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch_fl_reports.writer import REPRODUCERS, folder_name
from torch_fl_spec.rows import ExpectedRow

from torch_fl_conformance import allure_labels
from torch_fl_conformance.reproducer import write_for
from torch_fl_conformance.row import Row, plain
from torch_fl_conformance.rule import mark_of
from torch_fl_conformance.settings import RunSettings
from torch_fl_conformance.verdicts import BROKEN, Judgement, failure_text, judge

REPORT_ATTRIBUTE = "torch_fl_row"
REPRODUCER_FOLDER = "reproducer_folder"
"""Key under which a row's dict says where its reproducer lies until the report takes it."""


@dataclass(frozen=True)
class ItemRow:
    """The expected row that an item judges."""

    expected: ExpectedRow
    exclusive: bool


ITEM_ROW = pytest.StashKey[ItemRow]()
ROW = pytest.StashKey[Row]()
JUDGED = pytest.StashKey[tuple[Judgement, Path | None]]()  # with the folder of the reproducer, if there is one
BROKE = pytest.StashKey[bool]()


def attach_rows(items: list[pytest.Item], settings: RunSettings) -> None:
    """Tell each item its row; items that judge none are left alone."""
    known = {row.id: row for row in settings.rows}
    for item in items:
        mark = mark_of(getattr(item, "function", None))
        callspec = getattr(item, "callspec", None)
        if mark is not None:
            if mark.rule not in known:
                raise RuntimeError(f"{item.nodeid} checks {mark.rule}, which is no vendor rule")
            item.stash[ITEM_ROW] = ItemRow(known[mark.rule], mark.exclusive)
        elif callspec is not None and isinstance(callspec.params.get("operator_row"), ExpectedRow):
            item.stash[ITEM_ROW] = ItemRow(callspec.params["operator_row"], False)


def broke_before(config: pytest.Config) -> bool:
    """Whether the row before, in this process, left the driver in doubt; asking settles it."""
    broke = config.stash.get(BROKE, False)
    config.stash[BROKE] = False
    return broke


class Recorder:
    """pytest plugin of every process that runs items."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.staging = Path(settings.staging)  # reproducers are written below it
        self.report_folder = Path(settings.report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin the item's row."""
        if ITEM_ROW not in item.stash:
            return
        expected = item.stash[ITEM_ROW].expected
        item.stash[ROW] = Row(
            expected.id, expected.chapter, expected.kind, may_be_not_claimed=expected.may_be_not_claimed
        )

    @pytest.hookimpl(wrapper=True, trylast=True)  # innermost: Allure and others see the report as judged
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge the row, and make pytest's report say the same."""
        report = yield
        if ROW not in item.stash:
            return report
        error = call.excinfo.value if call.excinfo is not None else None
        if error is None and call.when == "teardown":
            error = item.stash[ROW].ending
        first_failure = error is not None and (JUDGED not in item.stash or call.when == "teardown")
        if first_failure or (call.when == "call" and JUDGED not in item.stash):
            self._judge(item, report, error)
        item.stash[ROW].seconds += call.duration
        if call.when == "teardown":
            setattr(report, REPORT_ATTRIBUTE, json.dumps(self._row_data(item)))
        return report

    def _judge(self, item: pytest.Item, report: pytest.TestReport, error: BaseException | None) -> None:
        row = item.stash[ROW]
        judgement = judge(row, error)
        if report.when == "teardown" and judgement.verdict != "error" and item.stash[JUDGED][0].verdict in BROKEN:
            return
        folder = None
        if judgement.verdict in BROKEN:
            item.config.stash[BROKE] = True
        if judgement.verdict in ("fail", "crash", "hang"):
            try:
                folder = write_for(row, judgement, self.staging)
            except OSError as failure:  # a full disk costs the reproducer, not the row
                row.note(f"no reproducer: {failure}")
        item.stash[JUDGED] = (judgement, folder)
        final = self.report_folder / REPRODUCERS / folder_name(row.id) if folder else None
        text = failure_text(row, judgement, final)
        if judgement.verdict == "pass":
            report.outcome = "passed"
        elif judgement.verdict == "not-claimed" and row.may_be_not_claimed:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"not-claimed: {judgement.message}")
        else:
            report.outcome = "failed"
            report.longrepr = text
        if allure_labels.wanted(item.config):
            allure_labels.describe(self.settings.vendor, item.stash[ITEM_ROW].expected, judgement.verdict, text, folder)

    def _row_data(self, item: pytest.Item) -> dict[str, Any]:
        row, expected = item.stash[ROW], item.stash[ITEM_ROW].expected
        judgement, folder = item.stash[JUDGED]
        data = {**expected_fields(expected), **row.data(), "verdict": judgement.verdict}
        data["seconds"] = round(row.seconds, 6)
        if judgement.message:
            data["message"] = judgement.message
        if judgement.case:
            data["case"] = plain(judgement.case)
        if folder is not None:
            data[REPRODUCER_FOLDER] = str(folder)
        return data


def expected_fields(expected: ExpectedRow) -> dict[str, Any]:
    """The fields of a report row that are known before it runs."""
    data: dict[str, Any] = {"id": expected.id, "kind": expected.kind, "chapter": expected.chapter}
    if expected.extra:
        data["extra"] = True
    if expected.kind == "rule":
        return {**data, "rule": expected.rule}
    data |= {"op": expected.op, "revision": expected.revision, "variant": expected.variant}
    data["dtypes"] = list(expected.dtypes)
    if expected.tier:
        data["tier"] = expected.tier
    return data
