"""The devices of this process: `fl:0`, `fl:1`, ... over all vendors, found when the first of them is used.

`import torch_fl` looks for nothing. The first `list_devices()`, the first tensor on `fl`, the first call of `torch.fl`,
and what makes torch itself count devices (the first backward pass, `pin_memory()`) make the bridge call `_discover`:
each vendor that torch_fl.vendor_choice names is built where that is needed, loaded, asked for its devices, and these
are opened and numbered one after the other, in the vendor's own order. A device that does not open, or that the user's
demand for certificates shuts out, keeps its number, and its use raises with the reason. A vendor that cannot be loaded,
or does not say how many devices it has, gets no numbers: those after it move down. It is warned of, and
`probe_report()` tells it.
"""

from __future__ import annotations

import logging
import platform
import sys
import warnings
from dataclasses import dataclass

import torch
from torch_fl_spec import INTERFACE, __version__

from torch_fl import config, log, routing
from torch_fl.compiled import Bridge
from torch_fl.compiled import bridge as _bridge
from torch_fl.device_record import DeviceList, DeviceRecord, ProbeReport
from torch_fl.discovery import Discovery, Place
from torch_fl.dtypes import TORCH_DTYPES

_log = logging.getLogger("torch_fl.devices")


class DeviceWarning(UserWarning):
    """Something about a vendor or a device that a user would want to know before trusting the device list."""


def list_devices() -> DeviceList:
    """Every logical device, by index; free memory as of now. Looks for devices at the first call.

    Raises torch_fl.config.ConfigError where the configuration is wrong; a vendor that fails only warns.
    """
    bridge, found = _bridge(), _discovered()
    return DeviceList((_record(place, bridge) for place in found.places), found.probes)


def probe_report() -> ProbeReport:
    """What became of each vendor: its devices, or the step at which it failed and why. Looks for devices first."""
    return _discovered().probes


@dataclass(frozen=True)
class _Discovered:
    places: tuple[Place, ...]
    probes: ProbeReport


_found: _Discovered | None = None
_bridge_knows_operators = False


def _discovered() -> _Discovered:
    _bridge().device_count()  # discovers where nobody has; after a fork it raises
    assert _found is not None
    return _found


def _discover() -> None:
    """Called by the bridge, by one thread at a time, until it succeeds once; what it adds is undone where it raises."""
    global _found, _bridge_knows_operators
    bridge = _bridge()
    loaded = config.current()
    complaint = log.configure(loaded.config.logging)
    _log_surroundings(loaded)
    if not _bridge_knows_operators:
        routing.add_operators(bridge)
        _bridge_knows_operators = True
    fallback = loaded.config.fallback
    bridge.set_policy("generic", fallback.enable_generic_kernel)
    bridge.set_policy("cpu", fallback.enable_cpu_fallback)
    bridge.set_policy("admit_fast", loaded.config.precision == "fast")
    bridge.set_on_fallback(fallback.on_fallback)
    discovery = Discovery(loaded, bridge)
    discovery.run()
    if complaint is not None:
        discovery.complaints.append(complaint)
    for text in discovery.complaints:
        _log.warning("%s", text)
        warnings.warn(text, DeviceWarning, stacklevel=_level_of_caller())
    _found = _Discovered(tuple(discovery.places), ProbeReport(discovery.probes))


def _log_surroundings(loaded: config.Loaded) -> None:
    """What whoever reads a log without having seen the machine asks first."""
    if not _log.isEnabledFor(logging.INFO):
        return
    versions = f"torch-fl {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    _log.info("%s, %s, interface %s", versions, platform.platform(), INTERFACE)
    _log.info("settings: %s", loaded.file or "no file")
    for setting in loaded.settings():
        level = logging.DEBUG if setting.source == "default" else logging.INFO
        _log.log(level, "%s: %s (%s)", setting.key, setting.value, setting.source)


def _level_of_caller() -> int:
    """How many frames up from here's caller the code stands that first used a device."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch_fl":
        level, frame = level + 1, frame.f_back
    return level


def _record(place: Place, bridge: Bridge) -> DeviceRecord:
    file, info, kernels = place.file, place.info or {}, place.kernels
    free = None
    if place.info is not None:
        try:
            free, _ = bridge.mem_get_info(place.index)
        except RuntimeError as error:  # a lost device stays in the list
            _log.info("fl:%d does not say how much memory is free: %s", place.index, error)
    return DeviceRecord(
        index=place.index,
        vendor=file.vendor,
        vendor_index=place.vendor_index,
        name=info.get("name"),
        uuid=info.get("uuid"),
        total_memory=info.get("total_memory", 0),
        free_memory=free,
        dtypes=tuple(TORCH_DTYPES[name] for name in kernels.dtypes) if kernels else (),
        operators=len(kernels.operators) if kernels else 0,
        execution_model=info.get("execution_model"),
        refusal=place.refusal,
        plugin=file,
    )
