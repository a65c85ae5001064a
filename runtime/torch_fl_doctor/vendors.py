"""Each vendor as discovery would meet it: kit, library, driver, devices; and the device list that comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import libraries, nodes
from .children import Child, run
from .finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from torch_fl.config import Loaded
    from torch_fl.vendor_choice import Candidate

_SLOW = 5.0  # seconds to load and to count; from then on a user waits noticeably
#: Of the steps that are not the driver's: Python may be slow to start and to import, a compiler silent for long.
_OTHER_SECONDS = {"start": 60.0, "certificate": 60.0, "build": 900.0}

_WHILE = {
    "start": "the process for it was started",
    "find": "its package was asked for the kit's folder",
    "build": "its kit was built",
    "read": "its library was read",
    "load": "its library was loaded",
    "count": "it counted its devices",
    "certificate": "its certificate was looked up",
}
_ADVICE = {
    "find": "compare the spelling of `type` with `pip list`; install the vendor's package into this environment",
    "build": "run the kit's build command in its folder and read the compiler's words",
    "read": "the file has to be readable: ls -l",
    "load": "ask the vendor for a plugin of this interface and this machine; `torch-fl kit show` tries it alone",
    "count": "is the vendor's kernel driver loaded (lsmod, dmesg)? Does its own tool see the card? May you open its "
    "device files (below)?",
}
_NO_DEVICE = (
    "does the vendor's own tool see the card? Is its kernel driver loaded (lsmod, dmesg)? A container has to be "
    "started with the card's device files"
)


@dataclass
class Vendors:
    """One look at all vendors. used: what their libraries name and open, for the check of permissions."""

    loaded: Loaded
    seconds: float
    places: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    absent: dict[str, list[str]] = field(default_factory=dict)  # vendor without a device -> patterns without a file
    _libraries: dict[str, str] = field(default_factory=dict)

    def check(self) -> Iterator[Finding]:
        """Findings, vendor by vendor, in the order of discovery."""
        from torch_fl.vendor_choice import ON_REQUEST, STAND_IN, choose

        choice = choose(self.loaded)
        for candidate in choice.ask:
            yield from self._vendor(candidate)
        if choice.stand_in is not None:
            yield from self._stand_in(choice.stand_in, alone=not choice.ask)
        for name, reason in choice.left_out.items():
            if name in (ON_REQUEST, STAND_IN):
                yield ok(f"{name}: left out: {reason}")
            else:
                yield warning(f"{name}: installed, and left out: {reason}", "name it there, too, to have its devices")
        yield self._list()

    def _stand_in(self, candidate: Candidate, alone: bool) -> Iterator[Finding]:
        from torch_fl.vendor_choice import NOT_NEEDED

        name = candidate.rule.type
        if self.places:
            yield ok(f"{name}: left out: {NOT_NEEDED}")
            return
        yield from self._vendor(candidate)
        if self.places:
            why = "no other vendor's kit is installed" if alone else "no other vendor has a device"
            yield warning(
                f"{why}: fl:0 is the {name} device, which computes on the CPU",
                "install the kit of your card's vendor" if alone else "see to the problems above",
            )

    def _list(self) -> Finding:
        if not self.places:
            return problem("the device list is empty", "see to the problems above; without a vendor there is no device")
        return ok("device list: " + ", ".join(f"fl:{n} {place}" for n, place in enumerate(self.places)))

    def _vendor(self, candidate: Candidate) -> Iterator[Finding]:
        word = candidate.rule.type
        child = run("torch_fl_doctor.vendor_child", [self._request(candidate)], self._patience)
        library = child.find("library")
        found = libraries.needed_by(Path(library)) if library else libraries.Needed(())
        self._note_nodes(word, child, found)
        who = word if candidate.source == "installed" else f"{word} ({candidate.source})"
        yield from self._verdict(who, candidate, child, found)
        if child.find("failed") or not child.finished:
            yield from (problem(f"{word} said: {line}", "the vendor's documents explain it") for line in _lines(child))

    def _request(self, candidate: Candidate) -> str:
        from torch_fl.certification import registry_of

        config = self.loaded.config
        wish = {"word": candidate.rule.type, "registry": str(registry_of(config)), "count": candidate.rule.count}
        return json.dumps(wish | {"certified": config.certified})

    def _patience(self, step: str) -> float:
        return max(self.seconds, _OTHER_SECONDS.get(step, 0.0))

    def _note_nodes(self, word: str, child: Child, found: libraries.Needed) -> None:
        patterns = nodes.named_in(found.found)
        there = {*nodes.existing(patterns), *(child.find("files") or [])}
        self.used |= there
        if patterns and not there and not child.find("count"):
            self.absent[word] = patterns

    def _verdict(self, who: str, candidate: Candidate, child: Child, found: libraries.Needed) -> Iterator[Finding]:
        step, failed = child.step, child.find("failed")
        for complaint in found.complaints:
            yield problem(
                f"{who}: {complaint}",
                "install the vendor's driver and runtime; where it is installed, put its folder into LD_LIBRARY_PATH",
            )
        if failed is not None:
            if not (found.complaints and failed == "load"):
                yield problem(f"{who}: failed to {failed}: {child.find('reason')}", _ADVICE[failed])
            return
        if not child.finished:
            said = f"; it printed: {child.said}" if child.said else ""
            text = f"{who}: {child.end} while {_WHILE.get(step, f'doing this: {step}')}{said}"
            yield problem(text, _advice_of_end(step, candidate.rule.type))
        if child.find("count") is not None:
            yield from self._answered(who, candidate, child)

    def _answered(self, who: str, candidate: Candidate, child: Child) -> Iterator[Finding]:
        vendor, version, library, count = (child.find(key) for key in ("vendor", "version", "library", "count"))
        former = self._libraries.setdefault(library, who)
        if former != who:
            yield problem(f"{who}: {library} is the plugin that {former} stands for, too", "name it once")
            return
        yield ok(f"{who}: {vendor} {version}, {library}, devices: {count}")
        if child.find("seconds") > _SLOW:
            text = f"{who}: took {child.find('seconds'):.1f} s to load and to count its devices"
            yield warning(text, "every program waits as long at its first use of a device; ask the vendor")
        wanted = candidate.rule.count
        if count == 0:
            yield problem(f"{who}: answers, and has no device", _NO_DEVICE)
        elif wanted is not None and count < wanted:
            source = self.loaded.sources.get("devices", "the configuration")
            yield problem(
                f"{who}: has devices: {count}, where {source} wants {wanted}", f"lower `count`, or: {_NO_DEVICE}"
            )
        elif wanted is not None and count > wanted:
            yield warning(f"{who}: devices: {count}, and `count` admits {wanted}", "raise `count` to have all of them")
        yield from self._certificate(who, child)
        yield from self._devices(vendor, child, count if wanted is None else min(count, wanted))

    def _certificate(self, who: str, child: Child) -> Iterator[Finding]:
        if child.find("valid") is not False:
            return
        text = f"{who}: its plugin is {child.find('certification')}: {child.find('doubtful')}"
        source = self.loaded.sources.get("certified", "the configuration")
        if self.loaded.config.certified == "warn":
            yield warning(text, f"{source} says certified: warn, so it is used all the same")
        else:
            yield problem(
                f"{text}; {source} says certified: require, so none of its devices can be used",
                "name a registry that has an entry for it, or use `certified: warn`",
            )

    def _devices(self, vendor: str, child: Child, count: int) -> Iterator[Finding]:
        shut_out = child.find("valid") is False and self.loaded.config.certified == "require"
        opened = {note["device"]: note for note in child.notes if "device" in note}
        for index in range(count):
            place = f"fl:{len(self.places)} ({vendor} {index})"
            note = opened.get(index)
            self.places.append(f"{vendor} {index}" + ("" if note and "refused" not in note else " (cannot be used)"))
            if note is None:
                if not shut_out:
                    yield problem(f"{place}: nobody knows whether it opens", "see to the problem above")
            elif "refused" in note:
                yield problem(
                    f"{place} does not open: {note['refused']}",
                    "it keeps its number, and its use raises; does another process hold it? Does the vendor's own tool "
                    "see it?",
                )
            else:
                yield ok(f"{place} opens{_memory(note['free'], note['total'])}, operators: {note['operators']}")


def _memory(free: int | None, total: int | None) -> str:
    if free is None or total is None:
        return ", does not say how much memory is free"
    return f", {free / 2**30:.2f} of {total / 2**30:.2f} GiB free"


def _lines(child: Child) -> Iterable[str]:
    """The plugin's own last lines."""
    return [note["line"] for note in child.notes if "line" in note][-3:]


def _advice_of_end(step: str, word: str) -> str:
    if step in _ADVICE and step not in ("load", "count"):
        return _ADVICE[step]
    return (
        "every program that uses a device ends up there: until it works, TORCH_FL_VENDORS can name the others; "
        f"`torch-fl kit show {word}` tries it alone, dmesg may have the driver's words, and the vendor wants to know"
    )
