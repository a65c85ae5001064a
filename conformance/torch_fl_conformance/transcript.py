"""What the driver was told in the running row, so that a failing case can be replayed without the suite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch_fl_conformance.shared_memory import SharedMemory

MOST_COMMANDS = 20_000  # of earlier cases of a row
MOST_BYTES = 64 << 20

# Keys under which a command names shared memory that the driver reads; all others it writes.
_INPUT_KEYS = ("image", "mem", "memory")
_INPUTS_BY_BLOCK = "images"
_WITHOUT_INPUTS = ("tensors", "results", "workspace")  # the large parts of a command that name none
_PLAIN = frozenset((int, float, str, bool, type(None)))
_OPEN_DEVICES = {"do": "describe"}
_MAKES = ("host_alloc", "host_adopt", "gate")
_USES = ("host_write", "host_read", "host_free", "gate_open", "gate_state", "gate_wait")
_ALWAYS_THERE = re.compile(r"d\d+|kernel/.*")


class Transcript:
    """The row's commands in order, with the bytes that they referred to.

    A row is preparation, then cases. The case at hand is replayed alone where it can be: where it names no
    handle, buffer or gate that an earlier case made. Commands are kept as they are given, not copied: nobody
    changes one that has been executed.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.begin_row()

    def begin_row(self) -> None:
        """Forget everything."""
        self._all: list[dict[str, Any]] = [_OPEN_DEVICES]
        self._prepared = -1  # commands before the first case
        self._case = 0  # where the present case begins
        self._number = 0
        self._bytes = 0  # in blobs
        self.blobs.clear()

    def begin_case(self) -> None:
        """The commands that follow belong to a new case."""
        if self._prepared < 0:
            self._prepared = len(self._all)
        too_much = self._bytes > MOST_BYTES or len(self._all) > MOST_COMMANDS
        if too_much:
            del self._all[self._prepared :]
            kept = {holder[key]["blob"] for holder, key in _regions(self._all)}
            self.blobs = {name: data for name, data in self.blobs.items() if name in kept}
            self._bytes = sum(map(len, self.blobs.values()))
        self._case = len(self._all)

    def add(self, command: Mapping[str, Any], memory: SharedMemory) -> None:
        """Note a command about to be executed, and the input bytes it names."""
        if command.get("do") == "describe" or len(self._all) - self._case > MOST_COMMANDS:
            return

        def keep(region: list[int]) -> dict[str, Any]:
            self._number += 1
            name = f"blob{self._number}"
            self.blobs[name] = bytes(memory.view(region))
            self._bytes += region[1]
            return {"blob": name, "length": region[1]}

        noted = dict(command)
        names_no_input = memory.is_empty or command.get("do") == "host_read"
        self._all.append(noted if names_no_input else _replaced(noted, keep))

    def commands(self) -> list[dict[str, Any]]:
        """The shortest replayable list that ends with the last command: preparation and case, or the whole row."""
        if self._prepared >= 0 and self._case < len(self._all):
            alone = self._all[: self._prepared] + self._all[self._case :]
            if not _unmade(alone):
                return alone
        return list(self._all)


def _replaced(value: Any, keep: Callable[[list[int]], Any]) -> Any:
    """`value` with what `keep` makes of each region of input bytes in its place; parts without one stay the same."""
    changed: dict[Any, Any] = {}
    for key, entry in value.items() if type(value) is dict else enumerate(value):
        if key in _INPUT_KEYS and _is_region(entry):
            changed[key] = keep(entry)
        elif key == _INPUTS_BY_BLOCK and type(entry) is dict:
            changed[key] = {block: keep(region) if _is_region(region) else region for block, region in entry.items()}
        elif key in _WITHOUT_INPUTS:
            continue
        elif type(entry) is dict or (type(entry) is list and not _PLAIN.issuperset(map(type, entry))):
            inner = _replaced(entry, keep)
            if inner is not entry:
                changed[key] = inner
    if not changed:
        return value
    return {**value, **changed} if type(value) is dict else [changed.get(at, entry) for at, entry in enumerate(value)]


def _regions(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """(holder, key) of each place that names input bytes."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if key in _INPUT_KEYS and _is_region(entry):
                yield value, key
            elif key == _INPUTS_BY_BLOCK and isinstance(entry, dict):
                yield from ((entry, block) for block, region in entry.items() if _is_region(region))
            else:
                yield from _regions(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _regions(entry)


def _is_region(value: Any) -> bool:
    """[offset, length], or what `add` has put in its place."""
    return (isinstance(value, list) and len(value) == 2) or (isinstance(value, dict) and "blob" in value)


def _unmade(commands: list[dict[str, Any]]) -> set[str]:
    """Names that are used here but made nowhere here."""
    made: set[str] = set()
    used: set[str] = set()
    for command in commands:
        if command["do"] in _MAKES:
            made.add(command["name"])
        elif command["do"] in _USES:
            used.add(command["name"])
        _collect(command, made, used)
    return {name for name in used - made if not _ALWAYS_THERE.fullmatch(name)}


def _collect(value: Any, made: set[str], used: set[str]) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("save"), str):
            made.add(value["save"])
        if isinstance(value.get("task"), str):
            made.add(value["name"])
        used.update(value[key] for key in ("ref", "host") if isinstance(value.get(key), str))
        for entry in value.values():
            _collect(entry, made, used)
    elif isinstance(value, list):
        for entry in value:
            _collect(entry, made, used)
