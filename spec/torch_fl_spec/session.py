"""The driver's executor: JSON commands in, JSON results out; bulk bytes through one shared buffer.

`Session.execute(command)` is the only way in which the suite touches a plugin. It imports neither torch
nor numpy nor YAML and knows no expected value. `command["do"]` names the command; `COMMANDS` lists them,
each documented where it is defined. Two keys work with every command:

- "thread": name - queue the command on that driver thread and return {"queued": k} at once; `join`
  collects the results.
- "number": a number or text that, with the session's grease_seed, decides what GREASE draws; left out, it is
  the count of commands so far.

A malformed command raises CommandError; a plugin that must not be used raises PluginRefused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import (
    abi,
    session_calls,
    session_describe,
    session_host,
    session_kernels,
    session_loops,
    session_process,
    session_tasks,
)
from .loader import HOST_NAME, Plugin, PluginRefused, load
from .session_args import CommandError, Frame
from .session_calls import Live
from .session_memory import HostBuffer
from .session_threads import Crew

__all__ = ["COMMANDS", "CommandError", "PluginRefused", "Session"]

ffi = abi.ffi

Command = Callable[["Session", Mapping[str, Any]], dict[str, Any]]


class Session:
    """A loaded plugin with everything that commands have created in it.

    library: the plugin. options: device_open's "key=value;..." string. grease: see session_args.
    host_minor, host_name, mask: see loader.load. grease_seed: all of GREASE derives from it and the command's number.
    log: give the plugin a log function (the helper's) instead of NULL.
    """

    def __init__(
        self,
        library: str | Path,
        options: str = "",
        grease: bool = True,
        host_minor: int = 0,
        mask: Iterable[str] = (),
        grease_seed: int = 0,
        log: bool = False,
        host_name: str | None = HOST_NAME,
    ) -> None:
        self.options = options
        self.grease = grease
        self.grease_seed = grease_seed
        log_function = session_tasks.log_function() if log else None
        self.plugin: Plugin = load(library, host_minor, log_function, mask, host_name)
        self.functions: dict[str, Any] = {**self.plugin.table, "root.query": self.plugin.query}
        self.references: dict[str, int] = {}
        self.live = Live()
        self.buffers: dict[str, HostBuffer] = {}
        self.tasks = session_tasks.Tasks()
        self.devices: list[session_describe.Device] = []
        self.crew = Crew()
        self.kernel_streams: dict[tuple[int, str], int] = {}
        self._shared: Any = None
        self._count = 0
        self._pid = os.getpid()
        self.touched = False  # anything but the query has been called: a fork is over from then on

    # -- commands -------------------------------------------------------------------------------------

    def execute(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run one command; see the module's text for the keys and for what it raises."""
        if self.touched and os.getpid() != self._pid:
            raise CommandError("this process was forked after the plugin had been used [FL-THREAD-006]")
        try:
            run = COMMANDS[command["do"]]
        except KeyError:
            raise CommandError(f"unknown command {command.get('do')!r}") from None
        self._count += 1
        number = command.get("number", self._count)

        def job() -> dict[str, Any]:
            self.crew.set_rng(f"{self.grease_seed}:{number}" if self.grease and command.get("grease", True) else None)
            return run(self, command)

        if "thread" in command and command["do"] != "join":
            return {"queued": self.crew.queue(command["thread"], job)}
        return job()

    def after_fork(self) -> None:
        """In a child: the session goes on here, if the parent has called nothing but the query."""
        if not self.touched:
            self._pid = os.getpid()

    # -- what frames and commands ask -----------------------------------------------------------------

    def frame(self) -> Frame:
        """Memory for one call made by the running command."""
        self.touched = True
        return Frame(self, self.crew.rng)

    def resolve(self, reference: str) -> int:
        """A saved handle or number."""
        try:
            return self.references[reference]
        except KeyError:
            raise CommandError(f"nothing is saved as {reference!r}") from None

    def address_of(self, buffer: str, offset: int) -> int:
        """Address of byte `offset` of a host buffer."""
        return int(ffi.cast("uintptr_t", self.buffer(buffer).pointer)) + offset

    def buffer(self, name: str) -> HostBuffer:
        """A host buffer by name."""
        try:
            return self.buffers[name]
        except KeyError:
            raise CommandError(f"no host buffer {name!r}") from None

    def attach_memory(self, memory: Any) -> None:
        """The shared buffer (mmap or anything with a writable buffer) that [offset, length] pairs mean."""
        self._shared = ffi.from_buffer(memory, require_writable=True)

    def detach_memory(self) -> None:
        """Let go of the shared buffer, so that its owner may resize or close it."""
        if self._shared is not None:
            ffi.release(self._shared)
            self._shared = None

    def shared(self, offset: int, length: int) -> Any:
        """char* to bytes [offset, offset + length) of the shared buffer."""
        size = 0 if self._shared is None else len(self._shared)
        if offset < 0 or length < 0 or offset + length > size:
            raise CommandError(f"bytes {offset}..{offset + length} of a shared buffer of {size}")
        return ffi.cast("char*", self._shared) + offset

    def shared_address(self, offset: int, length: int = 0) -> int:
        """The same as a number."""
        return int(ffi.cast("uintptr_t", self.shared(offset, length)))

    def function(self, name: str) -> Any:
        """A plugin function by its table name, extensions' included; raises CommandError when absent."""
        found = self.functions.get(name)
        if found is None and name not in self.functions:
            session_describe.add_extension(self, name.partition(".")[0])
            found = self.functions.get(name)
        if found is None:
            raise CommandError(f"the plugin has no {name}")
        return found

    def device(self, index: int | str) -> session_describe.Device:
        """An opened device by its index or its reference ("d0"); opens all of them on first use."""
        if not self.devices:
            session_describe.open_devices(self)
        if isinstance(index, str):
            index = int(index[1:]) if index[:1] == "d" and index[1:].isdigit() else -1
        if not 0 <= index < len(self.devices):
            raise CommandError(f"no device {index}; there are {len(self.devices)}")
        return self.devices[index]

    # -- end ----------------------------------------------------------------------------------------------

    def close(self) -> list[str]:
        """Open every gate, wait, destroy all that is left; returns what failed, as text."""
        self.tasks.open_all()
        self.crew.stop()
        problems = session_calls.release_all(self)
        for buffer in self.buffers.values():
            buffer.release()
        self.buffers.clear()
        self.detach_memory()
        return problems

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _join(session: Session, command: Mapping[str, Any]) -> dict[str, Any]:
    """{"do": "join", "thread": name, "timeout": seconds} -> {"done": [results since the last join], "pending": n}."""
    return session.crew.join(command["thread"], command.get("timeout", 30.0))


COMMANDS: dict[str, Command] = {
    "join": _join,
    **session_describe.COMMANDS,
    **session_calls.COMMANDS,
    **session_host.COMMANDS,
    **session_tasks.COMMANDS,
    **session_kernels.COMMANDS,
    **session_loops.COMMANDS,
    **session_process.COMMANDS,
}
