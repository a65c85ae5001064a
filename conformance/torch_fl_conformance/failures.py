"""How a check ends other than by returning: the suite's own exceptions, each with one verdict.

Anything else that escapes from a check (another AssertionError included) counts as a fault of the harness:
verdict `error`, exit code 3. So a check says `row.check(...)`, never a bare `assert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_fl_conformance.wire import DESCRIPTORS_GONE


class RuleViolated(AssertionError):
    """The plugin did what a rule forbids: verdict `fail`.

    An AssertionError, since others (Allure) tell by that a test that failed from one that broke.

    `case` holds the facts of the failing case (op, shapes, index, expected, got, budget, ...), plain data.
    """

    def __init__(self, message: str, case: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.case: dict[str, Any] = dict(case or {})


class NotClaimed(Exception):
    """The plugin does not claim what the row is about: verdict `not-claimed`."""


class DriverCrashed(RuleViolated):
    """The driver process ended during a command: verdict `crash`.

    exit_code: negative for a signal, as subprocess has it. command: the last one sent.
    stderr_tail: the last 4 KiB the process wrote, faulthandler's stacks included.
    """

    def __init__(self, exit_code: int, command: Mapping[str, Any], stderr_tail: str) -> None:
        super().__init__(f"the plugin ended its process with {exit_text(exit_code)} in {command_text(command)}")
        self.exit_code = exit_code
        self.command = dict(command)
        self.stderr_tail = stderr_tail


class DriverDisturbed(RuleViolated):
    """Something but the driver has written into its answers or its sealed memory: verdict `fail`.

    Only the plugin, and what it has started, lives where that is possible. The process has been killed.
    """

    def __init__(self, what: str, command: Mapping[str, Any]) -> None:
        super().__init__(
            f"{what} in {command_text(command)}: the plugin's process has written to file descriptors or memory that "
            "are not its own"
        )


class DriverHung(BaseException):
    """No answer within the watchdog's time: verdict `hang`. The process has been killed.

    A BaseException on purpose: property-based shrinking would else wait for the watchdog again and again.
    """

    def __init__(self, seconds: float, command: Mapping[str, Any], stacks: str) -> None:
        self.message = f"no answer within {seconds:g} s from {command_text(command)}"
        super().__init__(self.message)
        self.command = dict(command)
        self.stacks = stacks
        self.case: dict[str, Any] = {}


class DriverError(Exception):
    """The driver's own Python failed on a command: a fault of the harness, verdict `error`.

    Its text is the driver's traceback behind the command; the last line says what went wrong.
    """


class PreflightFailed(Exception):
    """There is nothing to certify: one line for the user, exit code 2."""


def exit_text(code: int) -> str:
    """`SIGSEGV` for -11, `exit code 0` for 0."""
    import signal

    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    if code == DESCRIPTORS_GONE:
        return f"exit code {code}: file descriptors that are not its own were closed"
    return f"exit code {code}"


def command_text(command: Mapping[str, Any]) -> str:
    """The few words of a driver command that tell which call it was; of a batch, which calls it may have been."""
    if command.get("do") == "batch":
        calls = [inner for inner in command["commands"] if inner.get("do") == "call"] or command["commands"]
        return " or ".join(dict.fromkeys(map(command_text, calls)))
    words = [str(command.get("do", "?"))]
    words += [str(command[key]) for key in ("fn", "op", "variant", "name") if isinstance(command.get(key), str)]
    return " ".join(words)
