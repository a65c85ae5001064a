"""`--in-process`: the plugin in the judge's own process, for a vendor's debugger; never for a certificate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch_fl_conformance.driver import answer
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.failures import DriverError


class InProcessDriver(Driver):
    """The same words as Driver, without a process: a crash of the plugin ends the run, a hang hangs it."""

    _session: Any = None

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def describe(self) -> dict[str, Any]:
        """What the plugin says of itself; asked once, since its devices stay open."""
        if self._description is None:
            self._description = self.execute({"do": "describe"})
        return self._description

    def start(self) -> None:
        """Load the plugin, once."""
        if self._session is not None:
            return
        from torch_fl_spec.session import Session

        self.memory.renew()
        self._session = Session(**self.config.session_arguments())
        self._session.attach_memory(self.memory.mapping)
        self.starts += 1

    def stop(self) -> None:
        """Nothing: a loaded plugin stays loaded, and its handles stay valid."""

    def stderr_tail(self, size: int = 4096) -> str:
        """Empty: what the plugin prints is on the terminal already."""
        return ""

    def _exchange(self, command: Mapping[str, Any], seconds: float) -> Any:
        reply = answer(self._session, dict(command))
        if "ok" in reply:
            return reply["ok"]
        raise DriverError(reply["error"])
