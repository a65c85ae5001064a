"""Gates, counters and tickets: host tasks in C that the judge can look at from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import abi, helper
from .session_args import CommandError

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi

_ENTERED, _OPEN, _DONE = 1, 2, 4
_BITS = {"entered": _ENTERED, "open": _OPEN, "done": _DONE}
_RECORD_CAPACITY = 1 << 16


class Entry(NamedTuple):
    """One run of a host task: see flh_entry."""

    value: int
    status: int


class Tasks:
    """Gates and records by name. They are never freed: a plugin may still hold a task."""

    def __init__(self) -> None:
        self.gates: dict[str, Any] = {}
        self.records: dict[str, Any] = {}
        self._all_gates: list[Any] = []

    def gate(self, name: str) -> Any:
        """A gate by name."""
        try:
            return self.gates[name]
        except KeyError:
            raise CommandError(f"no gate {name!r}") from None

    def new_gate(self, name: str) -> Any:
        """A closed gate; an older one of that name stays as it is, without its name."""
        self.gates[name] = helper.load().flh_gate_new()
        self._all_gates.append(self.gates[name])
        return self.gates[name]

    def record(self, name: str) -> Any:
        """A record by name, made on first use."""
        if name not in self.records:
            self.records[name] = helper.load().flh_record_new(_RECORD_CAPACITY)
        return self.records[name]

    def new_record(self, name: str, capacity: int) -> Any:
        """An empty record with room for `capacity` entries."""
        self.records[name] = helper.load().flh_record_new(capacity)
        return self.records[name]

    def argument(self, arg: Mapping[str, Any]) -> list[Any]:
        """(fn, arg) of a host task: gate, or count and ticket, which are entries of a record."""
        library, kind, name = helper.load(), arg["task"], arg["name"]
        if kind == "gate":
            gate = self.gates.get(name) or self.new_gate(name)
            return [ffi.addressof(library, "flh_gate_task"), ffi.cast("void*", gate)]
        if kind in ("count", "ticket"):
            ticket = library.flh_record_ticket(self.record(name), arg.get("value", 0))
            return [ffi.addressof(library, "flh_record_task"), ticket]
        raise CommandError(f"unknown host task {kind!r}")

    def open(self, gate: Any) -> None:
        """Open a gate."""
        helper.load().flh_gate_open(gate)

    def open_all(self) -> None:
        """Open every gate ever made, named or not."""
        for gate in self._all_gates:
            helper.load().flh_gate_open(gate)

    def entries(self, name: str) -> list[Entry]:
        """What a record holds, in the order in which its tasks ran: copies, since cffi's views die with their array."""
        library, record = helper.load(), self.record(name)
        count = library.flh_record_count(record)
        out = ffi.new("flh_entry[]", max(count, 1))
        read = library.flh_record_read(record, out, count)
        return [Entry(int(e.value), int(e.status)) for e in out[0:read]]


def log_function() -> tuple[Any, Any]:
    """(fl_log_fn, user pointer) of the helper's log."""
    library = helper.load()
    return ffi.addressof(library, "flh_log"), ffi.NULL


def _state(gate: Any) -> dict[str, Any]:
    status = ffi.new("fl_status*")
    bits = helper.load().flh_gate_state(gate, status)
    state: dict[str, Any] = {name: bool(bits & bit) for name, bit in _BITS.items()}
    state["status"] = None if status[0] == -1 else int(status[0])
    return state


def _gate(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {}: a new closed gate under that name."""
    session.tasks.new_gate(command["name"])
    return {}


def _gate_state(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {"entered", "open", "done", "status": as its task was given}."""
    return _state(session.tasks.gate(command["name"]))


def _gate_wait(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "for": "entered" | "done", "timeout": seconds = 30} -> gate_state plus "reached"."""
    gate = session.tasks.gate(command["name"])
    bits, timeout = _BITS[command["for"]], int(command.get("timeout", 30.0) * 1e9)
    reached = bool(helper.load().flh_gate_wait(gate, bits, timeout))
    return {"reached": reached, **_state(gate)}


def _gate_open(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {}."""
    helper.load().flh_gate_open(session.tasks.gate(command["name"]))
    return {}


def _count(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {"calls", "statuses"} of the count tasks under that name."""
    calls = helper.load().flh_record_count(session.tasks.record(command["name"]))
    return {
        "calls": calls,
        "statuses": [entry.status for entry in session.tasks.entries(command["name"])],
    }


def _tickets(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name"} -> {"values": [...], "statuses": [...]} in the order in which the tasks ran, "overlaps" of storms."""
    entries = session.tasks.entries(command["name"])
    overlaps = int(helper.load().flh_record_overlaps(session.tasks.record(command["name"])))
    return {"values": [e.value for e in entries], "statuses": [e.status for e in entries], "overlaps": overlaps}


def _now(_: Session, __: Mapping[str, Any]) -> dict[str, Any]:
    """-> {"nanoseconds"} of CLOCK_MONOTONIC."""
    return {"nanoseconds": int(helper.load().flh_now())}


COMMANDS = {
    "gate": _gate,
    "gate_state": _gate_state,
    "gate_wait": _gate_wait,
    "gate_open": _gate_open,
    "count": _count,
    "tickets": _tickets,
    "now": _now,
}
