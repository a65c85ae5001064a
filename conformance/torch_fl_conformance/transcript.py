"""What the driver was told in the running case, so that a failing one can be replayed without the suite."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch_fl_conformance.shared_memory import SharedMemory

LIMIT = 20_000  # commands of one case; a reproducer longer than this helps nobody

# Keys under which a command names shared memory that the driver reads; all others it writes.
_INPUT_KEYS = ("image", "mem")


class Transcript:
    """Commands of the row's preparation and of its present case, with the bytes they referred to."""

    def __init__(self) -> None:
        self.preparation: list[dict[str, Any]] = []
        self.case: list[dict[str, Any]] = []
        self.blobs: dict[str, bytes] = {}
        self.truncated = False
        self._in_case = False

    def begin_row(self) -> None:
        """Forget everything."""
        self.preparation, self.case, self.blobs = [], [], {}
        self.truncated = self._in_case = False

    def begin_case(self) -> None:
        """Forget the case before; what came before the first case stays."""
        self.case, self._in_case, self.truncated = [], True, False
        if not self.preparation:
            self.blobs = {}

    def add(self, command: Mapping[str, Any], memory: SharedMemory) -> None:
        """Note a command about to be executed, and the input bytes it names."""
        target = self.case if self._in_case else self.preparation
        if len(target) >= LIMIT:
            self.truncated = True
            return
        noted = copy.deepcopy(dict(command))
        if command.get("do") != "host_read":
            for holder, key in list(_regions(noted)):
                offset, length = holder[key]
                name = f"blob{len(self.blobs)}"
                self.blobs[name] = bytes(memory.view([offset, length]))
                holder[key] = {"blob": name, "length": length}
        target.append(noted)

    def commands(self) -> list[dict[str, Any]]:
        """Preparation and case, in order."""
        return [*self.preparation, *self.case]


def _regions(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            if key in _INPUT_KEYS and isinstance(entry, list) and len(entry) == 2:
                yield value, key
            else:
                yield from _regions(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _regions(entry)
