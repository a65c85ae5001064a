"""The judge's side of the driver process: start, execute, watch, and start again after a crash or a hang."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from torch_fl_spec.loader import HOST_NAME, PluginRefused
from torch_fl_spec.printable import printable

from torch_fl_conformance import wire
from torch_fl_conformance.code_files import CodeFile, code_files
from torch_fl_conformance.failures import DriverCrashed, DriverDisturbed, DriverError, DriverHung
from torch_fl_conformance.shared_memory import SharedMemory
from torch_fl_conformance.transcript import Transcript

MEMORY_BYTES = 1 << 30  # address space only: pages are committed when touched
MOST_PRINTED = 1 << 24  # bytes kept of what a plugin prints; only the last of them are ever shown

_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "TORCH_FL_CACHE", "CC")


@dataclass(frozen=True)
class DriverConfig:
    """What a driver loads and how; plain data, so that it also crosses to pytest-xdist's workers."""

    library: str
    options: str = ""
    grease: bool = True
    host_minor: int = 0
    host_name: str | None = HOST_NAME
    pass_env: tuple[str, ...] = ()  # variables of the judge's environment that the kit names
    env: Mapping[str, str] = field(default_factory=dict)  # further variables, set as given
    log: bool = False  # give the plugin a log function instead of NULL
    watchdog: float = 30.0  # seconds without an answer until the process counts as hung

    def session_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `torch_fl_spec.session.Session`, as JSON data."""
        return {
            "library": self.library,
            "options": self.options,
            "grease": self.grease,
            "host_minor": self.host_minor,
            "host_name": self.host_name,
            "log": self.log,
        }

    def environment(self) -> dict[str, str]:
        """The child's environment: the same for every row, and nothing that names a test."""
        chosen = {name: os.environ[name] for name in (*_ENVIRONMENT, *self.pass_env) if name in os.environ}
        return {**chosen, **self.env}


class Driver:
    """One driver process at a time; `execute` starts it when there is none.

    After DriverCrashed or DriverHung all handles, buffers and gates are gone; the next `execute` starts a new
    process, in which the refs "d0", "d1", ... exist again once `describe` has been called.
    """

    def __init__(self, config: DriverConfig) -> None:
        self.config = config
        self.memory = SharedMemory(MEMORY_BYTES)
        self.transcript = Transcript()
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._commands = self._answers = -1
        self._stderr: IO[bytes] | None = None
        self._names = 0
        self._row = "run"
        self._number = 0
        self._description: dict[str, Any] | None = None
        self.code: set[CodeFile] = set()  # what the plugin has brought into the processes so far, itself included
        self._before: set[str] | None = None  # files mapped ahead of the plugin

    @property
    def pid(self) -> int:
        """Process id of the running driver; 0 when none runs."""
        return self._process.pid if self._process is not None else 0

    def describe(self) -> dict[str, Any]:
        """What the plugin says of itself; opens every device as "d0", "d1", ... in this process."""
        if self._description is None or self._process is None:
            self._description = self.execute({"do": "describe"})
        return self._description

    def name(self, stem: str) -> str:
        """A name for a handle, buffer, gate or counter that nothing else in this driver has."""
        self._names += 1
        return f"{stem}{self._names}"

    def place(self, data: bytes | bytearray | memoryview) -> list[int]:
        """Copy `data` into shared memory; returns [offset, length] as commands refer to it."""
        self.start()
        return self.memory.place(data)

    def room(self, length: int) -> list[int]:
        """[offset, length] of zeroed shared memory that the driver may write results into."""
        self.start()
        return self.memory.room(length)

    def view(self, region: list[int]) -> memoryview:
        """The bytes of a region; valid until `begin_case` or a restart."""
        return self.memory.view(region)

    def begin_case(self) -> None:
        """A new case begins: the transcript forgets the case before, shared memory is free again."""
        self.transcript.begin_case()
        self.memory.reset()

    def begin_row(self, row: str, seed: int = 0) -> None:
        """A new row begins: the transcript is empty but for opening the devices.

        What GREASE draws from here on follows from row and seed, not from the rows before.
        """
        self.note_code()
        self._row, self._number = f"{seed}:{row}", 0
        self.transcript.begin_row()
        self.memory.reset()

    def execute(self, command: Mapping[str, Any], timeout: float | None = None) -> Any:
        """Run one command of `torch_fl_spec.session` and return its result.

        timeout: seconds the command itself may honestly take, added to the watchdog's.
        Raises DriverCrashed, DriverHung (process killed), DriverError (the driver's Python failed), and
        PluginRefused when a fresh process had to be started and the plugin did not load.
        """
        self.start()
        return self._exchange(self._noted(command), self.config.watchdog + (timeout or 0.0))

    def execute_all(self, commands: Sequence[Mapping[str, Any]], timeout: float = 0.0) -> list[Any]:
        """Run commands in one exchange and return their results; it ends behind the first call that is not FL_OK."""
        self.start()
        noted = [self._noted(command) for command in commands]
        return list(self._exchange({"do": "batch", "commands": noted}, self.config.watchdog + timeout))

    def _noted(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """The command with its number, entered into the transcript."""
        if command.get("do") != "describe":
            self._number += 1
            command = {**command, "number": f"{self._row}:{self._number}"}
        self.transcript.add(command, self.memory)
        return command

    def start(self) -> None:
        """Start the process and load the plugin, unless it is running."""
        if self._process is None:
            self.start_empty()
            self.load()

    def start_empty(self) -> set[str]:
        """Start the process without the plugin; returns the files mapped into it.

        Raises DriverError where it does not come up, which no plugin is to blame for.
        """
        self._spawn()
        self.starts += 1
        try:
            self._exchange({"do": "prepare"}, self.config.watchdog)
        except DriverCrashed as crash:
            raise DriverError(f"the driver process did not start: {crash.stderr_tail}") from None
        self._before = self.maps()
        return self._before

    def load(self) -> list[str]:
        """Load the plugin; returns what of the process that has changed (see flh_state); raises PluginRefused."""
        answer = self._exchange({"do": "load", **self.config.session_arguments()}, self.config.watchdog)
        return list(answer["state_changed"])

    def stop(self) -> None:
        """End the process: it gets 2 s to leave by itself after its pipe closed, then it is killed."""
        process = self._process
        if process is None:
            return
        self.note_code()
        self._close_pipes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        self._kill()

    def close(self) -> None:
        """Stop, and release the shared memory."""
        self.stop()
        self.memory.close()

    def note_code(self) -> None:
        """Remember the libraries that have come into the running process with the plugin."""
        if self._process is None or self._before is None:
            return
        with contextlib.suppress(OSError):  # it has just died
            self.code |= code_files(self.maps() - self._before)

    def maps(self) -> set[str]:
        """Paths of the files mapped into the running driver."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return {parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6 and parts[5][0] == "/"}

    def _spawn(self) -> None:
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        os.set_blocking(self._commands, False)
        self.memory.renew()
        inherited = (command_read, answer_write, self.memory.fd)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in _forget)
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, os.O_APPEND)  # so that it can be cut while the process writes
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-"],
            stdin=subprocess.PIPE,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=inherited,
            env=self.config.environment(),
            start_new_session=True,
        )
        os.close(command_read)
        os.close(answer_write)
        program = f"import sys; sys.path += {_import_paths()!r}\n"
        program += f"from torch_fl_conformance.driver import main; main{inherited!r}\n"
        assert self._process.stdin is not None
        self._process.stdin.write(program.encode())
        self._process.stdin.close()

    def _exchange(self, command: Mapping[str, Any], seconds: float) -> Any:
        process = self._process
        assert process is not None
        token = os.urandom(8).hex()

        def alive() -> bool:
            self._limit_printed()
            return process.poll() is None

        try:
            wire.send_within(self._commands, {"token": token, "command": command}, seconds, alive)
            reply = wire.receive_within(self._answers, seconds, alive)
            if not isinstance(reply, dict) or reply.get("token") != token:
                raise wire.Garbled("an answer to no question")
        except wire.Closed:
            raise self._crashed(command) from None
        except wire.TimedOut:
            raise self._hung(command, seconds) from None
        except wire.Garbled as garbled:
            self._kill()
            raise DriverDisturbed(f"the driver's answer is not its own ({garbled})", command) from None
        except BaseException:
            # Interrupted half-way: the next answer would be this one's.
            self._kill()
            raise
        self._limit_printed()
        if "ok" in reply:
            return reply["ok"]
        if "refused" in reply:
            self.stop()
            raise PluginRefused(reply["refused"])
        raise DriverError(f"{str(dict(command))[:2000]}\n{reply['error'][-8000:]}")

    def _crashed(self, command: Mapping[str, Any]) -> DriverCrashed:
        process = self._process
        assert process is not None
        try:
            code = process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        tail = self.stderr_tail()
        self._kill()
        return DriverCrashed(code, command, tail)

    def _hung(self, command: Mapping[str, Any], seconds: float) -> DriverHung:
        process = self._process
        assert process is not None
        self.note_code()
        stacks = _thread_states(process.pid)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        stacks += self.stderr_tail()
        self._kill()
        return DriverHung(seconds, command, stacks)

    def _kill(self) -> None:
        """End the process, and with it every process that the plugin has left in its session."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._forget()

    def _limit_printed(self) -> None:
        if self._stderr is not None and os.fstat(self._stderr.fileno()).st_size > MOST_PRINTED:
            os.ftruncate(self._stderr.fileno(), 0)

    def stderr_tail(self, size: int = 4096) -> str:
        """The last bytes that the running process wrote to stdout or stderr, control characters escaped."""
        if self._stderr is None:
            return ""
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - size))
        return printable(self._stderr.read().decode(errors="replace"))

    def _close_pipes(self) -> None:
        for fd in (self._commands, self._answers):
            if fd >= 0:
                os.close(fd)
        self._commands = self._answers = -1

    def _forget(self) -> None:
        self._close_pipes()
        if self._stderr is not None:
            self._stderr.close()
        self._process = self._stderr = self._description = None


def _import_paths() -> list[str]:
    """Folders in which the driver finds this suite, the loader and cffi, and as little else as possible."""
    import _cffi_backend
    import cffi
    import platformdirs
    import torch_fl_spec

    import torch_fl_conformance

    packages = [torch_fl_conformance, torch_fl_spec, cffi, platformdirs]
    folders = [str(Path(str(package.__file__)).parent.parent) for package in packages]
    return list(dict.fromkeys([*folders, str(Path(_cffi_backend.__file__).parent)]))


def _thread_states(pid: int) -> str:
    """One line per thread: name, state, and the kernel function it waits in."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        try:
            state = task.joinpath("stat").read_text().rpartition(") ")[2][:1]
            lines.append(f"thread {task.name} {task.joinpath('comm').read_text().strip()} state {state}")
        except OSError:
            continue
    return "\n".join(lines) + "\n"
