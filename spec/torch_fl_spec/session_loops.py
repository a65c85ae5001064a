"""The `loop` command: named loops of the C helper, for storms that Python is too slow for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import abi, helper
from .session_args import CommandError

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi

_MAX_THREADS = 16
_CYCLES = ("stream", "event", "alloc", "failed_alloc")  # in the order of FLH_CYCLE_*
_WORK_CYCLES = ("completed", "destroyed", "refused")  # in the order of FLH_WORK*

Loop = Callable[["Session", Mapping[str, Any], Any], dict[str, Any]]


def _threads(command: Mapping[str, Any]) -> int:
    threads = int(command.get("threads", 1))
    if not 1 <= threads <= _MAX_THREADS:
        raise CommandError(f"{threads} threads; a loop has 1 to {_MAX_THREADS}")
    return threads


def _handle(session: Session, ctype: str, reference: str | None) -> Any:
    return ffi.NULL if reference is None else ffi.cast(ctype, session.resolve(reference))


def _alloc_storm(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"device", "threads", "count", "max_bytes", "seed"}: random alloc and free under an overlap checker."""
    device = session.device(command["device"])
    helper.load().flh_alloc_storm(
        session.plugin.root,
        ffi.cast("fl_device", device.handle),
        _threads(command),
        command["count"],
        command["max_bytes"],
        device.info["alloc_align"],
        device.info["max_align"],
        command.get("seed", 0),
        out,
    )
    return {}


def _cycle(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"device", "what": "stream" | "event" | "alloc" | "failed_alloc", "threads", "count", "bytes"}."""
    device = ffi.cast("fl_device", session.device(command["device"]).handle)
    what, size = _CYCLES.index(command["what"]), command.get("bytes", 4096)
    root = session.plugin.root
    helper.load().flh_cycle(root, device, what, _threads(command), command["count"], size, out)
    return {}


def _work_cycle(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"device", "what": "completed" | "destroyed" | "refused", "count", "bytes"}: work that must leave nothing."""
    device = ffi.cast("fl_device", session.device(command["device"]).handle)
    what, size = _WORK_CYCLES.index(command["what"]), command.get("bytes", 4096)
    helper.load().flh_work_cycle(session.plugin.root, device, what, command["count"], size, out)
    return {}


def _submit_storm(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"stream", "record": name, "threads", "count", "base": reference?}; `tickets` tells the order.

    Thread k submits the tickets k * count ...; with base, after each a fill of word k there with 1, 2, ...
    """
    library = helper.load()
    threads, count = _threads(command), command["count"]
    record = session.tasks.new_record(command["record"], threads * count)
    base = session.resolve(command["base"]) if "base" in command else 0
    stream = _handle(session, "fl_stream", command["stream"])
    library.flh_submit_storm(session.plugin.root, stream, record, threads, count, base, out)
    return {}


def _error_storm(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"device", "threads", "count"}: failing calls; wrong: texts that are not the caller's own."""
    device = ffi.cast("fl_device", session.device(command["device"]).handle)
    helper.load().flh_error_storm(session.plugin.root, device, _threads(command), command["count"], out)
    return {}


def _elapsed_storm(session: Session, command: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """{"start", "end": timing events, "stream", "count"} -> "least_ns"; wrong: negative times."""
    start, end = (_handle(session, "fl_event", command[name]) for name in ("start", "end"))
    stream = _handle(session, "fl_stream", command["stream"])
    root = session.plugin.root
    return {"least_ns": int(helper.load().flh_elapsed_storm(root, start, end, stream, command["count"], out))}


LOOPS: dict[str, Loop] = {
    "alloc_storm": _alloc_storm,
    "cycle": _cycle,
    "work_cycle": _work_cycle,
    "submit_storm": _submit_storm,
    "error_storm": _error_storm,
    "elapsed_storm": _elapsed_storm,
}


def _loop(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"name": one of LOOPS, ...} -> {"calls", "failures", "wrong", "first_failure": status or null, ...}.

    failures counts calls with a status other than the expected one. The session's mask is not applied.
    """
    try:
        run = LOOPS[command["name"]]
    except KeyError:
        raise CommandError(f"unknown loop {command.get('name')!r}; there are {', '.join(LOOPS)}") from None
    session.touched = True
    out = ffi.new("flh_outcome*")
    result = run(session, command, out)
    counted = {"calls": int(out.calls), "failures": int(out.failures), "wrong": int(out.wrong)}
    first = int(out.first_failure) if out.first_failure else None
    return {**counted, "first_failure": first, **result}


COMMANDS = {"loop": _loop}
