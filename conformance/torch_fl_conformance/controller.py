"""The controlling process's part: gather the rows of all workers, complete them, write the report, decide.

Exit codes: 0 certified, 1 not certified, 2 usage or no plugin (never gets here), 3 the harness failed,
130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_reports.model import Report
from torch_fl_reports.writer import write_report

from torch_fl_conformance import completion, terminal
from torch_fl_conformance.code_files import CODE
from torch_fl_conformance.metadata import library_facts, plugin_change, run_metadata
from torch_fl_conformance.plugin import INTERRUPTED, holds_suite
from torch_fl_conformance.recording import REPORT_ATTRIBUTE, REPRODUCER_FOLDER
from torch_fl_conformance.settings import RunSettings

CERTIFIED, NOT_CERTIFIED, HARNESS_ERROR = 0, 1, 3
_REGULAR_ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
WORKER_DESELECTED = "torch_fl_deselected"
WORKER_CODE = "torch_fl_code"


class Controller:
    """Rows arrive one by one and are also appended to a journal, so that a dying controller loses none."""

    def __init__(self, config: pytest.Config, settings: RunSettings) -> None:
        self.config = config
        self.settings = settings
        self.rows: dict[str, dict[str, Any]] = {}
        self.doubled: list[str] = []
        self.reproducers: dict[str, Path] = {}
        self.interrupted = False
        self.uncollected = False
        self.deselected = 0
        self.code = config.stash[CODE]  # of the drivers in this process; workers add theirs
        self.report: Report | None = None
        self.failure: str | None = None  # why there is no report
        self.began = time.time()
        self.workers = 1
        staging = Path(settings.staging)
        staging.mkdir(parents=True, exist_ok=True)
        self.journal = staging / "rows.jsonl"

    def pytest_report_header(self) -> str:
        """What is judged, and where its rows can be read while they come."""
        settings = self.settings
        judged = f"{settings.vendor} {settings.description['version']}, profile {settings.profile}"
        return f"torch-fl: {judged}, effort {settings.effort.name}, seed {settings.seed}, rows in {self.journal}"

    # -- what happens during the run ------------------------------------------------

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """-k, -m, --deselect, --lf: the run is a selection."""
        self.deselected += len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A chapter that cannot even be imported is the harness's fault."""
        self.uncollected = self.uncollected or report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker of pytest-xdist is there."""
        self.workers = max(self.workers, len(node.nodemanager.specs))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker of pytest-xdist has finished, or died (its row will be missing)."""
        output = getattr(node, "workeroutput", {})
        self.deselected += output.get(WORKER_DESELECTED, 0)
        self.code |= {(path, digest) for path, digest in output.get(WORKER_CODE, ())}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a row from the last report of its item."""
        text = getattr(report, REPORT_ATTRIBUTE, None)
        if text is None:
            return
        row = json.loads(text)
        with contextlib.suppress(OSError), self.journal.open("a") as file:  # a full disk does not end the run
            file.write(text + "\n")
        if row["id"] in self.rows:
            self.doubled.append(row["id"])
        folder = row.pop(REPRODUCER_FOLDER, None)
        if folder is not None:
            self.reproducers[row["id"]] = Path(folder)
        self.rows[row["id"]] = row

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C; pytest.exit() and pytest-xdist's --maxfail come here too, and are none."""
        self.interrupted = self.interrupted or type(excinfo.value) is KeyboardInterrupt

    # -- the end ------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Complete the rows, write the report, set the exit code."""
        if self.config.option.collectonly:
            shutil.rmtree(self.settings.staging, ignore_errors=True)
            return
        # A second Ctrl-C can come before pytest has told of the first.
        self.interrupted = self.interrupted or isinstance(sys.exc_info()[1], KeyboardInterrupt)
        with _uninterrupted():
            session.exitstatus = self._finish(session, exitstatus)
        if exitstatus == pytest.ExitCode.INTERNAL_ERROR:
            self._show(lambda line: sys.stderr.write(line + "\n"))

    def _finish(self, session: pytest.Session, exitstatus: int) -> int:
        stopped = bool(session.shouldstop or session.shouldfail) or self._stopped_at_maxfail(session)
        partial = bool(self.deselected or stopped or not holds_suite(self.config))
        ended_early = self.interrupted or partial
        rows = completion.complete(self.rows, self.doubled, self.settings, fill=not ended_early)
        change = plugin_change(self.settings, self.code)
        if change is not None:
            rows = completion.unsettled(rows, change)
        errors = any(row["verdict"] == "error" for row in rows) or exitstatus == pytest.ExitCode.INTERNAL_ERROR
        code = INTERRUPTED if self.interrupted else HARNESS_ERROR if errors else NOT_CERTIFIED
        clean = exitstatus in _REGULAR_ENDS or self.interrupted or stopped
        if (self.uncollected or not clean) and not self.interrupted:
            code = HARNESS_ERROR
        verdicts_allow = all(row["verdict"] in ("pass", "not-claimed", "waived") for row in rows)
        if code == NOT_CERTIFIED and verdicts_allow and not partial and not self.settings.in_process:
            code = CERTIFIED
        known = {(library["path"], library["sha256"]) for library in self.settings.libraries}
        run = run_metadata(
            self.settings,
            libraries=library_facts(known | self.code, Path(self.settings.driver.library)),
            began=self.began,
            ended=time.time(),
            workers=self.workers,
            partial=partial,
            interrupted=self.interrupted,
            exit_code=code,
            arguments=[str(argument) for argument in self.config.invocation_params.args],
        )
        return self._write(run, rows, code)

    def _write(self, run: dict[str, Any], rows: list[dict[str, Any]], code: int) -> int:
        allure = self.config.getoption("allure_report_dir", None)
        folder = Path(self.settings.report)
        try:
            try:
                self.report = write_report(run, rows, folder, self.reproducers, Path(allure) if allure else None)
            except OSError:  # the rows are worth more than what comes with them
                self.report = write_report(run, rows, folder)
        except Exception as error:
            self.failure = f"the report could not be written: {type(error).__name__}: {error}"
            return HARNESS_ERROR
        shutil.rmtree(self.settings.staging, ignore_errors=True)
        if code == CERTIFIED and not self.report.totals.certified:
            return NOT_CERTIFIED
        return code

    def _stopped_at_maxfail(self, session: pytest.Session) -> bool:
        limit = self.config.getvalue("maxfail")
        return bool(limit) and session.testsfailed >= limit

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The verdict, last of all."""
        if not self.config.option.collectonly:
            terminalreporter.reportchars = ""  # pytest's own list of failures: the rows say more
            self._show(terminalreporter.write_line)

    def _show(self, write: Any) -> None:
        if self.report is not None:
            terminal.show(self.report, Path(self.settings.report), write)
        elif self.failure is not None:
            write(f"torch-fl: {self.failure}")
            if self.journal.exists():
                write(f"torch-fl: the rows are in {self.journal}")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Without effect of Ctrl-C and SIGTERM, for the seconds in which a report is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
