"""What calls of the interface return, and the objects a check holds in its hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_fl_spec import abi as header
from torch_fl_spec.abi import status_name

from torch_fl_conformance.driver_client import Driver


@dataclass(frozen=True)
class CallResult:
    """What one call of the interface did.

    err: {code, vendor_code, message, length, intact, ...}; None where no fl_error was passed, or a success
    left it alone. outs: out parameters in order, structs as dicts. untouched: per out parameter, no byte of it
    changed. intact: no byte that the call had no right to change has changed. seconds: duration.
    """

    fn: str
    status: int
    err: dict[str, Any] | None
    outs: list[Any]
    untouched: list[bool]
    intact: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the status is FL_OK."""
        return self.status == header.FL_OK

    @property
    def status_name(self) -> str:
        """ "OUT_OF_MEMORY" for 6."""
        return status_name(self.status)

    @property
    def message(self) -> str:
        """The error text, "" where there is none."""
        return str((self.err or {}).get("message") or "")

    @property
    def value(self) -> Any:
        """The only out parameter."""
        (value,) = self.outs
        return value

    def __str__(self) -> str:
        return f"{self.fn} returned {self.status_name}" + (f" ({self.message})" if self.message else "")


@dataclass(frozen=True)
class Stream:
    """A stream handle saved in the driver as `ref`."""

    ref: str
    device: str


@dataclass(frozen=True)
class Event:
    """An event handle saved in the driver as `ref`."""

    ref: str
    device: str


@dataclass(frozen=True)
class Block:
    """A device allocation; `ref` is its base, saved in the driver."""

    ref: str
    device: str
    bytes: int
    base: int


@dataclass(frozen=True)
class HostBuffer:
    """Ordinary host memory in the driver process."""

    ref: str
    bytes: int


@dataclass(frozen=True)
class Gate:
    """A host task that blocks its stream until `open`."""

    ref: str
    stream: Stream
    driver: Driver
    starts: int = 0  # of the driver when the gate was made: it went with its process

    def state(self) -> dict[str, bool]:
        """{entered: the task has begun, open, done: it has returned}."""
        state: dict[str, bool] = self.driver.execute({"do": "gate_state", "name": self.ref})
        return state

    def open(self) -> None:
        """Let the stream go on; a second call changes nothing, nor does one after the driver crashed or hung."""
        if self.driver.pid == 0 or self.driver.starts != self.starts:
            return
        self.driver.execute({"do": "gate_open", "name": self.ref})
