"""One call of the interface through the driver, and calls that must succeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from torch_fl_spec import abi as header
from torch_fl_spec.abi import status_name

from torch_fl_conformance.arguments import Arg
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.failures import DriverError, RuleViolated
from torch_fl_conformance.handles import Block, CallResult, Event, HostBuffer, Stream
from torch_fl_conformance.moves import SYNC_NS, call_command

Kept = TypeVar("Kept", Block, Event, HostBuffer, Stream)

_ALWAYS = object()


def abi_call(
    driver: Driver,
    fn: str,
    *args: Arg,
    err: Any = _ALWAYS,
    thread: str | None = None,
    timeout: float | None = None,
) -> CallResult:
    """Call one function of the interface, e.g. abi_call(driver, "stream.query", stream).

    args: see torch_fl_conformance.arguments; the trailing fl_error* is not among them. err: left out for an
    fl_error of 1024 bytes, None for NULL, or {"capacity": n, "size": n?, "kind": n?}. timeout: seconds that
    the call may take beyond the watchdog's. For `thread` use Abi.queue.
    """
    command = call_command(fn, *args)
    if err is not _ALWAYS:
        command["err"] = err
    if thread is not None:
        command["thread"] = thread
    return result_of(fn, driver.execute(command, timeout))


def result_of(fn: str, raw: Mapping[str, Any]) -> CallResult:
    """The driver's answer to a call as a CallResult."""
    if "error" in raw:
        raise DriverError(f"{fn}: {raw['error']}")
    return CallResult(fn, raw["status"], raw["err"], raw["outs"], raw["untouched"], raw["intact"], raw["seconds"])


class Calls:
    """Calls through one driver; devices are named "d0", "d1", ..."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.devices: list[dict[str, Any]] = driver.describe()["devices"]
        self._live: dict[str, Any] = {}

    def call(self, fn: str, *args: Arg, err: Any = _ALWAYS, timeout: float | None = None) -> CallResult:
        """One call, whatever comes back; see abi_call."""
        return abi_call(self.driver, fn, *args, err=err, timeout=timeout)

    def ok(self, fn: str, *args: Arg, timeout: float | None = None) -> CallResult:
        """One call that must return FL_OK."""
        return self.expect(header.FL_OK, fn, *args, timeout=timeout)

    def expect(self, status: int, fn: str, *args: Arg, err: Any = _ALWAYS, timeout: float | None = None) -> CallResult:
        """One call that must return `status`."""
        result = self.call(fn, *args, err=err, timeout=timeout)
        if result.status != status:
            self.refuse(result, status)
        return result

    def succeeded(self, fn: str, raw: Mapping[str, Any]) -> CallResult:
        """The result of a call that must have returned FL_OK, from the driver's answer."""
        result = result_of(fn, raw)
        if result.status != header.FL_OK:
            self.refuse(result)
        return result

    def refuse(self, result: CallResult, expected: int = header.FL_OK) -> NoReturn:
        """Fail the row because a call returned something else than it had to."""
        raise RuleViolated(f"{result}, expected {status_name(expected)}", {"call": result.fn})

    def queue(self, thread: str, fn: str, *args: Arg, err: Any = _ALWAYS) -> None:
        """Append a call to the driver's thread of that name, which runs its calls in order."""
        command = {**call_command(fn, *args), "thread": thread}
        if err is not _ALWAYS:
            command["err"] = err
        self.driver.execute(command)

    def join(self, thread: str, seconds: float) -> tuple[list[CallResult], int]:
        """(results of the thread's calls done since the last join, calls still pending after `seconds`)."""
        answer = self.driver.execute({"do": "join", "thread": thread, "timeout": seconds}, timeout=seconds)
        return [result_of(thread, raw) for raw in answer["done"]], answer["pending"]

    def query(self, handle: Stream | Event) -> int:
        """The status that query returns: FL_OK, FL_NOT_READY or a failure."""
        return self.call(f"{table_of(handle)}.query", handle).status

    def sync(self, handle: Stream | Event, timeout_ns: int = SYNC_NS) -> None:
        """Wait for the stream or event; anything but FL_OK fails the row, FL_TIMEOUT included."""
        self.ok(f"{table_of(handle)}.sync", handle, timeout_ns, timeout=timeout_ns / 1e9)

    def forget(self, handle: Block | Event | HostBuffer | Stream) -> None:
        """The handle is destroyed or freed by other means than this object's."""
        self._live.pop(handle.ref, None)

    def keep(self, handle: Kept) -> Kept:
        """Release the handle after the row."""
        self._live[handle.ref] = handle
        return handle


def table_of(handle: Stream | Event) -> str:
    """The table whose functions take this handle."""
    return "stream" if isinstance(handle, Stream) else "event"
