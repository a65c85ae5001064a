"""One process that judges one library with many seeds: `python -m tests.twins.judge_process < request.json`.

Request: {"library", "runs": [{"seed", "rows": [patterns]}], "watchdog": seconds, "stop": whether a run ends at its
first failing row}. Answer: one JSON line for each run, {"seed", "rows": [{"id", "verdict", "violates", "message",
"seconds"}], "exit", "seconds"}, with "said" where no row ran.
The process is the suite's own judge, pytest and all; only the report is left out, since nobody reads it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from typing import Any

import pytest


class _Rows:
    """Collects what the suite says of each row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of an item; the last one carries the row."""
        text = getattr(report, "torch_fl_row", None)
        if text is None:
            return
        row = json.loads(text)
        kept = ("id", "verdict", "violates", "message", "case", "seconds")
        self.rows.append({key: row[key] for key in kept if key in row})


def main() -> None:
    """Serve the request on standard input."""
    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory(prefix="torch-fl-judge-") as folder:
        # Locks of exclusive rows are kept in the temporary folder: each library is a device of its own.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chdir(folder)
        _prepare(request["watchdog"])
        for run in request["runs"]:
            print(json.dumps(_judge(request, run)), file=answers, flush=True)


def _prepare(watchdog: float) -> None:
    from torch_fl_conformance import controller, ordering
    from torch_fl_conformance.effort import Effort

    Effort.watchdog = property(lambda self: watchdog)  # type: ignore[method-assign, assignment]
    ordering.eventually.__defaults__ = (watchdog / 2,)
    controller.Controller._write = lambda self, run, rows, code: code  # type: ignore[method-assign]


def _judge(request: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    rows = _Rows()
    arguments = ["--pyargs", "torch_fl_conformance", "-q", "-p", "no:cacheprovider", "-p", "no:allure_pytest"]
    arguments += ["-x"] if request["stop"] else []
    arguments += [f"--vendor={request['library']}", "--effort=quick", f"--seed={run['seed']}"]
    arguments += [f"--row={row}" for row in run["rows"]]
    began = time.monotonic()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(arguments, plugins=[rows])
    answer = {"seed": run["seed"], "rows": rows.rows, "exit": int(code), "seconds": time.monotonic() - began}
    return answer if rows.rows else {**answer, "said": said.getvalue()[-4000:]}


if __name__ == "__main__":
    main()
