"""One process that judges one library with many seeds: `python -m tests.twins.judge_process < request.json`.

Request: {"library", "runs": [{"seed", "rows": [patterns]}], "watchdog": seconds, "stop": whether a run ends at its
first failing row}. Answer: one JSON line for each run, {"seed", "rows": [{"id", "verdict", "violates", "message",
"seconds", "worst"}], "exit", "seconds"}, with "said" where no row ran. A failing case is shrunk for the first seed
only: of the others one asks whether they fail.
The process is the suite's own judge, pytest and all. Left out is what thousands of short runs need not repeat: the
report, which nobody reads, and items for rows that are not asked for.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch_fl_spec.rows import fits


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
        kept = ("id", "verdict", "violates", "message", "case", "seconds", "worst")
        self.rows.append({key: row[key] for key in kept if key in row})


def main() -> None:
    """Serve the request on standard input."""
    from torch_fl_conformance import kernel_row

    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory(prefix="torch-fl-judge-") as folder:
        # Locks of exclusive rows are kept in the temporary folder: each library is a device of its own.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chdir(folder)
        _prepare(request["watchdog"])
        shrink_runs = kernel_row.SHRINK_RUNS, kernel_row.CRASH_RUNS
        for run in request["runs"]:
            is_first = run["seed"] == request["runs"][0]["seed"]
            kernel_row.SHRINK_RUNS, kernel_row.CRASH_RUNS = shrink_runs if is_first else (0, 0)
            print(json.dumps(_judge(request, run)), file=answers, flush=True)


def _prepare(watchdog: float) -> None:
    from torch_fl_conformance import calls, controller, facade, moves, ordering, preflight
    from torch_fl_conformance.driver_client import DriverConfig
    from torch_fl_conformance.effort import Effort

    Effort.watchdog = property(lambda self: watchdog)  # type: ignore[method-assign, assignment]
    patience, join = watchdog / 2, calls.Calls.join  # whatever waits for a defect that hangs waits no longer
    ordering.eventually.__defaults__ = (patience,)
    calls.Calls.join = lambda self, thread, seconds: join(self, thread, min(seconds, patience))  # type: ignore[method-assign]
    moves.SYNC_NS = int(patience * 1e9)
    calls.Calls.sync.__defaults__ = facade.Abi.device_sync.__defaults__ = (moves.SYNC_NS,)
    controller.Controller._write = lambda self, run, rows, code: code  # type: ignore[method-assign]
    preflight._check_reportable = lambda name, settings: None
    look, seen = preflight.look, {}

    def look_once(config: DriverConfig, name: str) -> Any:
        if name not in seen:
            seen[name] = look(config, name)
        return seen[name]

    preflight.look = look_once  # what the plugin says of itself is the same with every seed
    _make_no_items_but_the_wanted()


def _make_no_items_but_the_wanted() -> None:
    from torch_fl_conformance import run

    generate = run.Collection.pytest_generate_tests

    def generate_wanted(self: run.Collection, metafunc: pytest.Metafunc) -> None:
        wanted = metafunc.config.getoption("--row")
        every, self.settings.rows[:] = list(self.settings.rows), [r for r in self.settings.rows if fits(r.id, wanted)]
        try:
            generate(self, metafunc)
        finally:
            self.settings.rows[:] = every

    run.Collection.pytest_generate_tests = generate_wanted  # type: ignore[method-assign]


@cache
def _rules_of_modules() -> dict[Path, list[str]]:
    """The rules that each module of the suite checks; none for those that hold operator rows only."""
    import torch_fl_conformance.chapters

    modules = sorted(Path(str(torch_fl_conformance.chapters.__file__)).parent.glob("test_*.py"))
    return {path: re.findall(r'^@rule\("(FL-[A-Z]+-[0-9]{3})"', path.read_text(), re.MULTILINE) for path in modules}


def _modules(rows: Sequence[str]) -> list[str]:
    """Paths of the modules that check one of these rows."""
    operators = any(not row.startswith("FL-") for row in rows)
    return [
        str(path)
        for path, rules in _rules_of_modules().items()
        if any(fits(rule, rows) for rule in rules) or (operators and not rules)
    ]


def _judge(request: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    rows = _Rows()
    arguments = [*_modules(run["rows"]), "-c", os.devnull, "-q"]
    for plugin in ("cacheprovider", "allure_pytest", "hypothesispytest", "xdist", "unraisableexception"):
        arguments += ["-p", f"no:{plugin}"]
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
