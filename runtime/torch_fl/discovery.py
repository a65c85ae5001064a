"""One run of discovery: asks the chosen vendors one after the other and gives their devices to the bridge."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch_fl_spec.loader import PluginRefused

from torch_fl import certification, vendor_choice
from torch_fl.compiled import Bridge
from torch_fl.config import Loaded
from torch_fl.device_inspect import Inspector, Kernels
from torch_fl.device_record import Probe
from torch_fl.vendor_choice import Candidate
from torch_fl.vendor_probe import SLOW, Found, PluginFile, ProbeFailed, patience, probe

_log = logging.getLogger("torch_fl.devices")


@dataclass(frozen=True)
class Place:
    """One number of the list. info: what the bridge says of an opened device; refusal: why there is none."""

    index: int
    file: PluginFile
    vendor_index: int
    info: Mapping[str, Any] | None = None
    kernels: Kernels | None = None
    refusal: str | None = None


class Discovery:
    """One run: places and probes so far, and what to warn of at its end."""

    def __init__(self, loaded: Loaded, bridge: Bridge) -> None:
        self._loaded = loaded
        self._bridge = bridge
        self._registry = certification.registry_of(loaded.config)
        self._plugins: dict[int, str] = {}  # address of the root table -> who it was loaded for
        self.places: list[Place] = []
        self.probes: list[Probe] = []
        self.complaints: list[str] = []

    def run(self) -> None:
        """Ask every vendor."""
        choice = vendor_choice.choose(self._loaded)
        for candidate in choice.ask:
            self._add(candidate)
        left_out = dict(choice.left_out)
        if choice.stand_in is not None:
            if self.places:
                left_out[choice.stand_in.rule.type] = vendor_choice.NOT_NEEDED
            else:
                self._add(choice.stand_in)
        for name, reason in left_out.items():
            _log.info("%s: left out: %s", name, reason)
            self.probes.append(Probe(name, "installed", "left out", reason=reason))

    def _add(self, candidate: Candidate) -> None:
        """One vendor and its devices."""
        word = candidate.rule.type
        try:
            found = self._probe(word)
        except ProbeFailed as failure:
            self.probes.append(Probe(word, candidate.source, "failed", failure.step, str(failure)))
            self.complaints.append(f"vendor {word} ({candidate.source}) failed to {failure.step}: {failure}")
            return
        first = len(self.places)
        notes = [*_notes(candidate, found), *self._add_devices(candidate, found)]
        devices = tuple(range(first, len(self.places)))
        self.complaints += [f"vendor {word} ({candidate.source}): {note}" for note in notes]
        self.probes.append(
            Probe(
                word,
                candidate.source,
                "used",
                devices=devices,
                notes=tuple(notes),
                seconds=found.seconds,
                plugin=found.file,
            )
        )
        _log.info(
            "%s: %s %s, %s, sha256 %s, devices: %d of %d",
            *(word, found.file.vendor, found.file.version, found.file.library, found.file.sha256),
            *(len(devices), found.count),
        )

    def _probe(self, word: str) -> Found:
        found = probe(word, self._registry)
        known = self._plugins.setdefault(found.plugin.root_address, word)
        if known != word:
            raise ProbeFailed("load", f"{found.file.library} is the plugin that {known} stands for, too")
        return found

    def _add_devices(self, candidate: Candidate, found: Found) -> list[str]:
        """Open and number them; what to note of those for which there is no number."""
        try:
            addresses = [found.plugin.extension_address(name) for name in ("fl.pinned", "fl.fault")]
        except PluginRefused as refused:
            return ["no device is used: " + "; ".join(refused.reasons)]
        vendor = self._bridge.add_vendor(found.plugin.root_address, *addresses)
        inspector = Inspector(found.plugin)
        wanted = found.count if candidate.rule.count is None else min(candidate.rule.count, found.count)
        for vendor_index in range(wanted):
            place = Place(len(self.places), found.file, vendor_index)
            refusal = self._certified(place)
            if refusal is None:
                place, refusal = self._open(place, vendor, found, inspector, candidate)
            if refusal is not None:
                name = f"fl:{place.index} ({found.file.vendor})"
                try:
                    self._bridge.add_unusable(f"{name} cannot be used: {refusal}")
                except RuntimeError as error:  # the list is full
                    return [f"devices from {vendor_index} on are left out: {error}"]
                self.complaints.append(f"{name} cannot be used: {refusal}")
                place = replace(place, refusal=refusal)
            self.places.append(place)
        return []

    def _open(
        self, place: Place, vendor: int, found: Found, inspector: Inspector, candidate: Candidate
    ) -> tuple[Place, str | None]:
        """(the place of the opened device, None), or (the place as it was, why it cannot be used)."""
        kernels: list[Kernels] = []
        _log.debug("fl:%d: open device %d of %s", place.index, place.vendor_index, candidate.rule.type)
        began = time.monotonic()
        try:
            with patience(f"device {place.vendor_index} of vendor {candidate.rule.type}"):
                info = self._bridge.add_device(
                    vendor,
                    place.vendor_index,
                    found.kit.option_string,
                    lambda handle: kernels.append(inspector.inspect(place.vendor_index, handle)),
                )
        except PluginRefused as refused:
            return place, "\n".join(refused.reasons)
        except RuntimeError as error:
            return place, str(error).removeprefix(f"fl:{place.index} ({found.file.vendor}): ")
        _log.info(
            "fl:%d: device %d of %s, %s, uuid %s, bytes: %d, %s, operators: %d, opened in %.3f s",
            *(place.index, place.vendor_index, candidate.rule.type, info["name"], info["uuid"]),
            *(info["total_memory"], info["execution_model"], len(kernels[0].operators), time.monotonic() - began),
        )
        fraction = candidate.rule.memory_fraction or self._loaded.config.pool.memory_fraction
        if fraction < 1:
            self._bridge.set_memory_fraction(fraction, place.index)
        return replace(place, info=info, kernels=kernels[0]), None

    def _certified(self, place: Place) -> str | None:
        """Why the user's demand for a certificate shuts the device out, None where it does not; warns if it should."""
        demand = self._loaded.config.certified
        if demand == "ignore" or place.file.certification.valid:
            return None
        found = place.file.certification
        if demand == "require":
            source = self._loaded.sources.get("certified", "default")
            return (
                f"its plugin is {found}: {found.reason}. {source} says certified: require; name a registry that has an "
                "entry for it, or use `certified: warn`"
            )
        self.complaints.append(
            f"the plugin of fl:{place.index} ({place.file.vendor}, {place.file.library}) is {found}: {found.reason}"
        )
        return None


def _notes(candidate: Candidate, found: Found) -> list[str]:
    """What a user should know of a vendor that answered."""
    notes = []
    count = candidate.rule.count
    if count is not None and found.count < count:
        notes.append(f"has devices: {found.count}, where the configuration wants {count}")
    if found.seconds > SLOW:
        notes.append(f"took {found.seconds:.1f} s to load and to count its devices")
    return notes
