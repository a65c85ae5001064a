"""junit.xml: the rows in the format that every CI system draws."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from torch_fl_reports.model import Report, Row

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, and a plugin's message may."""


def write_junit(report: Report, path: Path) -> None:
    """Write one suite per chapter, one case per row; properties name the subject."""
    document = JUnitXml(f"Torch-FL {report.subject.vendor} {report.subject.version}")
    for chapter, rows in groupby(sorted(report.rows, key=lambda row: row.chapter), key=lambda row: row.chapter):
        document.add_testsuite(_suite(report, chapter, rows))
    document.update_statistics()  # type: ignore[no-untyped-call]
    # Names come from files that anybody may have edited: the whole text is cleaned, not one field or other.
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    path.write_text(_xml(text.decode("utf-8")), encoding="utf-8")


def _suite(report: Report, chapter: str, rows: Iterable[Row]) -> TestSuite:
    suite = TestSuite(chapter)
    suite.timestamp = report.run.start
    suite.add_property("plugin_sha256", report.subject.files[0].sha256)
    suite.add_property("seed", str(report.run.seed))
    for row in rows:
        case = TestCase(row.id, classname=f"torch_fl.{chapter}", time=round(row.seconds, 3))
        result = _result(row)
        if result is not None:
            case.result = [result]
        suite.add_testcase(case)
    return suite


def _result(row: Row) -> Error | Failure | Skipped | None:
    if row.verdict == "pass":
        return None
    if row.verdict in ("not-claimed", "waived"):
        return Skipped(row.verdict, row.verdict)
    kind = Error if row.verdict in ("error", "collateral") else Failure
    result = kind(row.message or row.verdict, row.verdict)
    if row.case is not None:
        result.text = json.dumps(row.case, indent=1, sort_keys=True, ensure_ascii=False)
    return result


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
