"""Commands about the process around the plugin: state it must not change, fork, exit, log, resources."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import abi, helper
from .loader import EXTENSION_STRUCTS
from .session_args import CommandError
from .session_structs import layout_of

if TYPE_CHECKING:
    from .session import Session

ffi = abi.ffi


def process_state() -> dict[str, int]:
    """Digests of what a plugin must leave as it is; see flh_state."""
    out = ffi.new("flh_state*")
    helper.load().flh_process_state(out)
    return {name: int(getattr(out, name)) for name in layout_of("flh_state").fields}


class Watch:
    """What the keys "state" and "log_lock" ask around one call; runs on the calling thread."""

    def __init__(self, command: Mapping[str, Any]) -> None:
        self._lock = bool(command.get("log_lock"))
        self._before = process_state() if command.get("state") else None
        if self._lock:
            helper.load().flh_log_lock()
            time.sleep(float(command["log_lock"]) if command["log_lock"] is not True else 0)

    def end(self) -> dict[str, Any]:
        """{"state_changed": names of flh_state's fields} where asked for."""
        if self._lock:
            helper.load().flh_log_unlock()
        if self._before is None:
            return {}
        after = process_state()
        return {"state_changed": [name for name, value in after.items() if value != self._before[name]]}


def _process_state(_: Session, __: Mapping[str, Any]) -> dict[str, Any]:
    """-> signals, signal_mask, floating_point, environment, directory, locale, limits, umask: numbers to compare.

    signal_mask and floating_point are the calling thread's.
    """
    return process_state()


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _resources(_: Session, __: Mapping[str, Any]) -> dict[str, Any]:
    """-> {"rss": bytes, "fds", "threads", "maps", "heap": bytes that malloc has given out} of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "fds": _entries("/proc/self/fd") - 1,  # without the one that lists them
        "threads": _entries("/proc/self/task"),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "heap": int(helper.load().flh_heap_bytes()),
    }


def _strings(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """-> {"strings": {where: [address, hex of its bytes]}}: every string that the plugin has handed out; NULL: [0, ""].

    "reread": {where: address}: what stands there now, of strings that an earlier answer told.
    """
    if "reread" in command:
        again = {where: ffi.cast("const char*", address) for where, address in command["reread"].items()}
        return {"strings": {where: [command["reread"][where], ffi.string(p).hex()] for where, p in again.items()}}
    root, found = session.plugin.root, {}

    def note(where: str, pointer: Any) -> None:
        raw = b"" if pointer == ffi.NULL else ffi.string(pointer)
        found[where] = [int(ffi.cast("uintptr_t", pointer)), raw.hex()]

    for field in ("name", "version", "header_id"):
        note(f"root.{field}", getattr(root, field))
    for device in session.devices:
        info = ffi.new("fl_device_info*")
        info.struct_size, info.kind = ffi.sizeof("fl_device_info"), abi.FL_KIND_DEVICE_INFO
        session.functions["device.info"](ffi.cast("fl_device", device.handle), info, ffi.NULL)
        note(f"device {device.index}.name", info.name)
        for position, kernel in enumerate(device.kernels.pointers.values()):
            note(f"device {device.index}.kernel {position}.op", kernel.op)
            note(f"device {device.index}.kernel {position}.variant", kernel.variant)
    return {"strings": found}


def _pads(session: Session, _: Mapping[str, Any]) -> dict[str, Any]:
    """-> {"pads": {where: value}}: every pad field of the structs that the plugin has handed out."""
    found = {"root.pad": int(session.plugin.root.pad)}
    for name in EXTENSION_STRUCTS:
        out, raw_name = ffi.new("const fl_extension**"), ffi.new("char[]", name.encode())
        if session.plugin.table["root.get_extension"](raw_name, 1, out, ffi.NULL) == abi.FL_OK:
            found[f"{name}.pad"] = int(out[0].pad)
    return {"pads": found}


def _log(_: Session, __: Mapping[str, Any]) -> dict[str, Any]:
    """-> {"count", "messages": [{"level", "text"}]}: the last 64 of a session with log=True."""
    library = helper.load()
    count, text = int(library.flh_log_count()), ffi.new("char[256]")
    messages = []
    for number in range(max(0, count - 64), count):
        level = library.flh_log_read(number, text, 256)
        messages.append({"level": int(level), "text": ffi.string(text).decode("utf-8", "backslashreplace")})
    return {"count": count, "messages": messages}


# -- the end of a process ---------------------------------------------------------------------------------


def _exit(_: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"how": "exit" | "python", "code": 0}: C's exit() at once, or the interpreter's own end. No answer comes."""
    code = command.get("code", 0)
    if command.get("how", "exit") == "exit":
        abi.libc.exit(code)
    raise SystemExit(code)


def _shutdown_at_exit(session: Session, _: Mapping[str, Any]) -> dict[str, Any]:
    """-> {}: the plugin's shutdown will be called from an exit handler of C."""
    if helper.load().flh_shutdown_at_exit(session.plugin.root):
        raise CommandError("atexit failed")
    return {}


def _fork(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """Fork; the child runs {"commands": [..]} and ends by {"end": "exit" | "exec" | "_exit"}.

    "exit" is C's exit(0), "exec" replaces the child by /bin/true. {"timeout": seconds = 10}.
    -> {"results": [...] or null, "code": exit code, negative for a signal, "hung": bool}.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _be_child(session, command, write_end)
    os.close(write_end)
    deadline = time.monotonic() + command.get("timeout", 10.0)
    text = _read_until(read_end, deadline)
    os.close(read_end)
    code = _wait_until(child, deadline)
    results = json.loads(text) if text else None
    return {"results": results, "code": code, "hung": code is None}


def _be_child(session: Session, command: Mapping[str, Any], write_end: int) -> None:
    session.after_fork()
    results = []
    for inner in command.get("commands", ()):
        try:
            results.append(session.execute(inner))
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    os.write(write_end, json.dumps(results).encode())
    os.close(write_end)
    end = command.get("end", "exit")
    if end == "exit":
        abi.libc.exit(0)
    elif end == "exec":
        os.execv("/bin/true", ["true"])
    os._exit(0)


def _read_until(fd: int, deadline: float) -> bytes:
    parts = []
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _wait_until(child: int, deadline: float) -> int | None:
    """Exit code, negative for a signal; None (and the child killed) when it has not ended in time."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


COMMANDS = {
    "process_state": _process_state,
    "resources": _resources,
    "strings": _strings,
    "pads": _pads,
    "log": _log,
    "exit": _exit,
    "shutdown_at_exit": _shutdown_at_exit,
    "fork": _fork,
}
