"""torch_fl's Python modules for a process that must work without its bridge."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def prepare() -> None:
    """Let `from torch_fl.config import ...` and the like work without a bridge; to be called before such an import.

    A package without code takes the place of torch_fl, so that its start, which compiles and loads the bridge, does
    not run. For a process that does nothing else: `import torch_fl` gives no devices in it. Does nothing where torch_fl
    has been imported.
    """
    if "torch_fl" in sys.modules:
        return
    package = ModuleType("torch_fl", "torch_fl without its bridge: see torch_fl_doctor.bridgeless.")
    package.__path__ = [str(Path(__file__).parent.with_name("torch_fl"))]
    sys.modules["torch_fl"] = package
