"""What a PyTorch user imports: every vendor's plugin as a logical device `fl:N` of stock PyTorch.

    import torch, torch_fl
    torch_fl.list_devices()
    torch.randn(3, 3, device="fl:0")

Importing registers the device type `fl` and the module `torch.fl` with torch; it compiles the bridge to this torch
where it has not been compiled yet (`torch-fl build` does it ahead), and looks for no device: the first use does, and
the process's first backward pass or `pin_memory()`, on whatever device, since torch counts devices there. Raises
ImportError where torch is of another version, another backend has the one place that torch keeps for such, or the
bridge cannot be built; its text says what to do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from torch_fl_build import BridgeUnavailable, load, sources, supported
from torch_fl_spec import __version__

if TYPE_CHECKING:
    from torch_fl._bridge import host_waits
    from torch_fl.config import ConfigError
    from torch_fl.cuda_code.compat import cuda_compat
    from torch_fl.device_record import DeviceList, DeviceRecord, Probe, ProbeReport
    from torch_fl.devices import DeviceWarning, list_devices, probe_report
    from torch_fl.fallback import FallbackWarning
    from torch_fl.foresight.record import Coverage, CoverageError, CoverageRow
    from torch_fl.foresight.rehearsal import coverage
    from torch_fl.profiler import OperatorProfile, Profile, profile
    from torch_fl.routing import counters, reset_counters, supports
    from torch_fl.tuning.record import Combination, Trial, TuneError, Tuning
    from torch_fl.tuning.scan import tune

__all__ = [
    "BridgeUnavailable",
    "Combination",
    "ConfigError",
    "Coverage",
    "CoverageError",
    "CoverageRow",
    "DeviceList",
    "DeviceRecord",
    "DeviceWarning",
    "FallbackWarning",
    "OperatorProfile",
    "Probe",
    "ProbeReport",
    "Profile",
    "Trial",
    "TuneError",
    "Tuning",
    "__version__",
    "counters",
    "coverage",
    "cuda_compat",
    "host_waits",
    "list_devices",
    "probe_report",
    "profile",
    "reset_counters",
    "supports",
    "tune",
]

#: Where the names above that are not here come from; their modules are imported when they are first asked for.
_HOMES = {
    "Combination": "tuning.record",
    "ConfigError": "config",
    "Coverage": "foresight.record",
    "CoverageError": "foresight.record",
    "CoverageRow": "foresight.record",
    "DeviceList": "device_record",
    "DeviceRecord": "device_record",
    "DeviceWarning": "devices",
    "FallbackWarning": "fallback",
    "OperatorProfile": "profiler",
    "Probe": "device_record",
    "ProbeReport": "device_record",
    "Profile": "profiler",
    "Trial": "tuning.record",
    "TuneError": "tuning.record",
    "Tuning": "tuning.record",
    "counters": "routing",
    "coverage": "foresight.rehearsal",
    "cuda_compat": "cuda_code.compat",
    "host_waits": "_bridge",
    "list_devices": "devices",
    "probe_report": "devices",
    "profile": "profiler",
    "reset_counters": "routing",
    "supports": "routing",
    "tune": "tuning.scan",
}


#: Modules that a user may name without importing them.
_MODULES = ("config", "devices", "routing")


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'torch_fl' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"torch_fl.{name}")
    value = getattr(import_module(f"torch_fl.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _start() -> None:
    supported.check()
    from torch_fl import _register

    try:
        _register.refuse_taken()
        load.built(sources.bridge())
        _register.register()
    except RuntimeError as error:
        raise ImportError(f"torch_fl: {error}") from None
    if os.environ.get("TORCH_FL_CUDA_COMPAT") == "1":
        from torch_fl.cuda_code.compat import enter_for_good

        enter_for_good()


_start()
