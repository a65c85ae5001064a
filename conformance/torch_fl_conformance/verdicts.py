"""From the way a check ended to the verdict of its row."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_fl_spec.loader import PluginRefused
from torch_fl_spec.printable import printable
from torch_fl_spec.replay import replay_command

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
    facts = {**row.facts, **getattr(error, "case", {})}
    if isinstance(error, DriverCrashed):
        return Judgement("crash", error.message, facts, error.stderr_tail)
    if isinstance(error, DriverHung):
        return Judgement("hang", error.message, facts, error.stacks)
    if isinstance(error, NotClaimed):
        if row.may_be_not_claimed:
            return Judgement("not-claimed", str(error))
        return Judgement("not-claimed", f"{error}, though the profile requires it")
    if isinstance(error, Collateral):
        return Judgement("collateral", str(error))
    if isinstance(error, SealBroken):
        return Judgement("fail", f"{error}: the plugin's process has written to memory that is not its own", facts)
    if isinstance(error, PluginRefused):
        return Judgement("fail", f"the plugin did not load: {'; '.join(error.reasons)}", facts)
    if isinstance(error, RuleViolated):
        return Judgement("fail", error.message, facts)
    return Judgement("error", f"{type(error).__name__}: {_last_line(error)}", detail=_own_traceback(error))


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[-1]


def _own_traceback(error: BaseException) -> str:
    """The traceback without the frames of pytest's machinery."""
    shown = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in shown.stack if not _MACHINERY.search(frame.filename)]
    shown.stack = traceback.StackSummary.from_list(frames)
    return "".join(shown.format())[-8000:]


def failure_text(row: Row, judgement: Judgement, reproducer: Path | None) -> str:
    """The block that the terminal shows for a row that did not pass."""
    lines = [f"{row.id}: {judgement.verdict}: {printable(str(judgement.message))}"]
    facts = dict(judgement.case)
    if row.violates:
        facts["may violate"] = ", ".join(row.violates)
    if reproducer is not None:
        facts["reproduce"] = replay_command(reproducer)
    width = max((len(key) for key in facts), default=0)
    lines += [f"  {key:<{width}}  {printable(str(value))}" for key, value in facts.items()]
    if judgement.detail:
        lines += ["", judgement.detail.rstrip()]
    return "\n".join(lines)
