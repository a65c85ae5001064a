"""Drivers that run every kernel case in another way than asked: gated, on a thread, with a clean workspace.

Each stands for the worker's driver where a case is examined (`case_judge.examine`), and changes one thing about its
`kernel_case` commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_fl_conformance.failures import DriverError, RuleViolated
from torch_fl_conformance.kernel_case import CaseDriver

GATE_SECONDS = 5.0  # until the gate opens by itself, so that a run which waits for it is a failure and no hang


class _Wrapped:
    """A driver that passes everything on."""

    def __init__(self, driver: CaseDriver) -> None:
        self.driver = driver

    def place(self, data: Any) -> list[int]:
        """As the driver."""
        return self.driver.place(data)

    def room(self, length: int) -> list[int]:
        """As the driver."""
        return self.driver.room(length)

    def view(self, region: list[int]) -> memoryview:
        """As the driver."""
        return self.driver.view(region)


class GatedDriver(_Wrapped):
    """Each run is called while its stream is stalled, and its inputs arrive behind the gate.

    A kernel that computes in the call sees stale bytes. `waited` counts the runs that returned only after the gate
    had been opened for them.
    """

    def __init__(self, driver: CaseDriver) -> None:
        super().__init__(driver)
        self.waited = 0

    def execute(self, command: Any, timeout: float | None = None) -> Any:
        """The command behind a gate."""
        answer = self.driver.execute({**command, "gate": True, "gate_seconds": GATE_SECONDS}, timeout)
        steps = [answer, *answer.get("again", [])]
        self.waited += sum(not step.get("returned_while_closed", True) for step in steps)
        return answer


class ThreadDriver(_Wrapped):
    """Each case runs on a driver thread of its own name, and so in a stream of its own."""

    def __init__(self, driver: CaseDriver, thread: str) -> None:
        super().__init__(driver)
        self.thread = thread

    def execute(self, command: Any, timeout: float | None = None) -> Any:
        """The command's answer, from the thread; a case that does not end in 20 s is a failure of its row."""
        self.driver.execute({**command, "thread": self.thread}, timeout)
        joined = self.driver.execute({"do": "join", "thread": self.thread, "timeout": 20.0}, 20.0)
        if joined["pending"]:
            raise RuleViolated(f"a kernel case on the thread {self.thread} does not end")
        (answer,) = joined["done"]
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer


class WorkspaceDriver(_Wrapped):
    """`largest` is the most workspace that a plan has asked for, in bytes. clean: it holds zeros, not garbage."""

    def __init__(self, driver: CaseDriver, *, clean: bool = False) -> None:
        super().__init__(driver)
        self.clean = clean
        self.largest = 0

    def execute(self, command: Any, timeout: float | None = None) -> Any:
        """The command, with zeros where it said garbage."""
        if self.clean:
            command = _cleaned(command) | {"again": [_cleaned(step) for step in command.get("again", ())]}
        answer = self.driver.execute(command, timeout)
        self.largest = max(self.largest, (answer.get("plan") or {}).get("workspace_bytes", 0))
        return answer


def _cleaned(step: Mapping[str, Any]) -> dict[str, Any]:
    return {**step, "workspace": {**step.get("workspace", {}), "fill": 0}}
