"""Which vendors are asked for devices, in which order: the order in which their devices are numbered.

Where the configuration lists devices, exactly those, in its order. Else every installed vendor by name, except the two
that come with torch-fl: the `reference` device stands in where no other vendor has a device on this machine, and
`reference_inline` is there for those who name it. Neither the order in which packages were installed nor that in which
entry points are found has a say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch_fl_spec import kits

from torch_fl.config import DeviceRule, Loaded

#: Serves where no other vendor does.
STAND_IN = "reference"
#: Why it is left out where another does.
NOT_NEEDED = "stands in where no other vendor has a device"
#: Comes with torch-fl, too, and serves only those who name it.
ON_REQUEST = "reference_inline"


@dataclass(frozen=True)
class Candidate:
    """A vendor to ask. source: who named it, "installed", "/path/config.yaml:2" or "environment variable NAME"."""

    rule: DeviceRule
    source: str


@dataclass(frozen=True)
class Choice:
    """ask: in this order. stand_in: to be asked if these have no device. left_out: vendor name -> why."""

    ask: tuple[Candidate, ...]
    stand_in: Candidate | None
    left_out: Mapping[str, str]


def choose(loaded: Loaded) -> Choice:
    """What the configuration and the installed kits amount to."""
    installed = kits.installed()
    rules = loaded.config.devices
    if rules is not None:
        source = loaded.sources.get("devices", "configuration")
        ask = [Candidate(rule, loaded.sources.get(f"devices.{n}.type", source)) for n, rule in enumerate(rules)]
        named = {rule.type for rule in rules}
        return Choice(tuple(ask), None, {name: f"not named by {source}" for name in installed if name not in named})
    own = (STAND_IN, ON_REQUEST)
    return Choice(
        tuple(Candidate(DeviceRule(name), "installed") for name in installed if name not in own),
        Candidate(DeviceRule(STAND_IN), "installed") if STAND_IN in installed else None,
        {ON_REQUEST: "serves only where it is named"} if ON_REQUEST in installed else {},
    )
