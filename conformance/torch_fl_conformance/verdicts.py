"""From the way a check ended to the verdict of its row."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_fl_spec.loader import PluginRefused
from torch_fl_spec.printable import printable

from torch_fl_conformance.failures import DriverCrashed, DriverHung, NotClaimed, RuleViolated
from torch_fl_conformance.kernel_case import SealBroken
from torch_fl_conformance.row import Row

_MACHINERY = re.compile(r"/(_pytest|pluggy|xdist)/")

BROKEN = ("fail", "crash", "hang", "error", "collateral")
"""Verdicts after which the worker's driver is replaced."""


class Collateral(Exception):
    """The row could not run because an earlier one left the device broken: verdict `collateral`."""


@dataclass
class Judgement:
    """A verdict, the sentence that goes with it, and the facts of the failing case."""

    verdict: str
    message: str | None = None
    case: dict[str, Any] = field(default_factory=dict)
    detail: str = ""  # stacks or traceback, for the terminal


def judge(row: Row, error: BaseException | None) -> Judgement:
    """The verdict of a check that raised `error`, or returned (None)."""
    if error is None:
        verdict, message = row.verdict_of_return()
        return Judgement(verdict, message)
    failure = suite_failure(error)
    if failure is None:
        return Judgement("error", f"{type(error).__name__}: {_last_line(error)}", detail=_own_traceback(error))
    notes = "\n".join(getattr(failure, "__notes__", []))
    facts = {**row.facts, **getattr(failure, "case", {})}
    if isinstance(failure, DriverCrashed):
        return Judgement("crash", failure.message, facts, failure.stderr_tail + notes)
    if isinstance(failure, DriverHung):
        return Judgement("hang", failure.message, facts, failure.stacks)
    if isinstance(failure, NotClaimed):
        if row.may_be_not_claimed:
            return Judgement("not-claimed", str(failure))
        return Judgement("not-claimed", f"{failure}, though the profile requires it")
    if isinstance(failure, Collateral):
        return Judgement("collateral", str(failure))
    if isinstance(failure, SealBroken):
        return Judgement("fail", f"{failure}: the plugin's process has written to memory that is not its own", facts)
    if isinstance(failure, PluginRefused):
        return Judgement("fail", f"the plugin did not load: {'; '.join(failure.reasons)}", facts)
    assert isinstance(failure, RuleViolated)
    if failure is not error:
        notes += "\nThe case did not fail again when it was repeated."
    return Judgement("fail", failure.message, facts, notes)


def suite_failure(error: BaseException) -> BaseException | None:
    """`error` itself, or the suite's failure in a group (hypothesis makes one of a flaky case), or None."""
    if isinstance(error, (RuleViolated, DriverHung, NotClaimed, Collateral, PluginRefused, SealBroken)):
        return error
    for inner in getattr(error, "exceptions", ()):
        found = suite_failure(inner)
        if found is not None:
            return found
    return None


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[-1]


def _own_traceback(error: BaseException) -> str:
    """The traceback without the frames of pytest's machinery."""
    shown = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in shown.stack if not _MACHINERY.search(frame.filename)]
    shown.stack = traceback.StackSummary.from_list(frames)
    return "".join(shown.format())[-8000:]


def failure_text(row_id: str, judgement: Judgement, reproducer: Path | None) -> str:
    """The block that the terminal shows for a row that did not pass."""
    lines = [f"{row_id}: {judgement.verdict}: {printable(str(judgement.message))}"]
    width = max((len(key) for key in judgement.case), default=0)
    lines += [f"  {key:<{width}}  {printable(str(value))}" for key, value in judgement.case.items()]
    if reproducer is not None:
        lines.append(f"  reproducer: {reproducer}")
    if judgement.detail:
        lines += ["", judgement.detail.rstrip()]
    return "\n".join(lines)
