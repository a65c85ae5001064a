"""Loads a built bridge into this process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from . import BridgeUnavailable
from .build import ensure
from .sources import Sources


def module(path: Path, name: str = "torch_fl._bridge") -> ModuleType:
    """The C++ module at this path, loaded at most once in a process; raises BridgeUnavailable."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    import torch  # noqa: F401 - its libraries have to be in the process first

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    try:
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    except ImportError as error:
        raise BridgeUnavailable(
            f"the bridge cannot be loaded: {error}. `torch-fl build --force` compiles it anew; if that doesn't help, "
            "torch was replaced by a build of another kind under the same version"
        ) from error
    sys.modules[name] = found
    return found


def built(sources: Sources) -> ModuleType:
    """The bridge of these sources, built first if need be; raises BridgeUnavailable."""
    return module(ensure(sources).path)
