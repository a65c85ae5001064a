"""The driver: a small child process that holds the plugin, and neither torch nor any expected value.

It obeys commands of `torch_fl_spec.session.Session` that come through a pipe and answers through another;
stdout and stderr belong to whatever the plugin prints. Bulk bytes live in one shared memory object.
Messages are {"token", "command"}: {"do": "prepare"}, answered once everything but the plugin is loaded; {"do":
"load", ...arguments of Session}, answered by {"ok": {"state_changed": what of the process loading and the query have
changed}} or {"refused": [reasons]}; then commands, answered by {"ok":
result}, or by {"error": traceback} when Python's side failed. {"do": "batch", "commands": [...]} is answered by the
list of results. Each answer repeats its command's token.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import traceback
from typing import Any

from torch_fl_conformance import wire

_PR_SET_PDEATHSIG = 1


def main(commands: int, answers: int, memory: int) -> None:
    """Serve until the command pipe closes. The three are inherited file descriptors.

    The process ends with the judge's, even when a plugin call never returns.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    for fd in (commands, answers, memory):
        os.set_inheritable(fd, False)
    buffer = mmap.mmap(memory, os.fstat(memory).st_size)
    os.close(memory)
    try:
        session = _load(commands, answers, buffer)
        while True:
            message = wire.receive(commands)
            wire.send(answers, {"token": message["token"], **answer(session, message["command"])})
    except wire.Closed:
        return
    except OSError:
        os._exit(wire.DESCRIPTORS_GONE)


def _load(commands: int, answers: int, buffer: mmap.mmap) -> Any:
    """Import all but the plugin, say so, load it when told to; raises wire.Closed when that fails."""
    from torch_fl_spec import helper
    from torch_fl_spec.loader import PluginRefused
    from torch_fl_spec.session import Session
    from torch_fl_spec.session_process import process_state

    helper.load()
    refuse_oracles()
    wire.send(answers, {"token": wire.receive(commands)["token"], "ok": {}})
    message = wire.receive(commands)
    token, request = message["token"], message["command"]
    try:
        before = process_state()
        session = Session(**{key: value for key, value in request.items() if key != "do"})
        changed = sorted(name for name, value in process_state().items() if value != before[name])
        session.attach_memory(buffer)
    except PluginRefused as refusal:
        wire.send(answers, {"token": token, "refused": list(refusal.reasons)})
        raise wire.Closed from None
    except Exception:
        wire.send(answers, {"token": token, "error": traceback.format_exc()})
        raise wire.Closed from None
    wire.send(answers, {"token": token, "ok": {"state_changed": changed}})
    return session


def refuse_oracles() -> None:
    """Nothing in this process may be able to compute an expected value.

    Raises RuntimeError naming the library that has crept in.
    """
    found = {"torch", "numpy", "mpmath"} & sys.modules.keys()
    if found:
        raise RuntimeError(f"the driver process has imported {', '.join(sorted(found))}")


def answer(session: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Execute one command, or a batch; Python's own failures become an answer, not an exit."""
    from torch_fl_spec.loader import PluginRefused

    if command["do"] == "batch":
        return _batch(session, command["commands"])
    try:
        return {"ok": session.execute(command)}
    except PluginRefused as refusal:
        return {"refused": list(refusal.reasons)}
    except Exception:
        return {"error": traceback.format_exc()}


def _batch(session: Any, commands: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer with the results of commands in order, up to the first call that does not return FL_OK."""
    results = []
    for command in commands:
        reply = answer(session, command)
        if "ok" not in reply:
            return reply
        results.append(reply["ok"])
        if reply["ok"].get("status", 0):
            break
    return {"ok": results}
