"""Imports torch and the built bridge, and notes how far it comes; compiles nothing."""

from __future__ import annotations

import sys

from . import bridgeless
from .children import Notes


def main(path: str) -> None:
    """Notes: torch (its version), failed (to be imported), refused (why it cannot be used), bridge (file), loaded."""
    notes = Notes(path)
    notes.write(step="torch")
    try:
        import torch
    except Exception as error:  # a broken installation raises all kinds
        notes.write(failed=f"{type(error).__name__}: {error}")
        notes.end()
    notes.write(torch=str(torch.__version__))
    from torch_fl_build import BridgeUnavailable, cache, load, sources, supported

    bridgeless.prepare()
    from torch_fl._register import refuse_taken

    try:
        supported.check()
        refuse_taken()
        bridge = sources.bridge()
        found = cache.find(bridge, cache.identity(bridge.read()))
        notes.write(bridge=found)
        if found is not None:
            notes.write(step="bridge")
            load.module(found)
            notes.write(loaded=True)
    except (BridgeUnavailable, RuntimeError) as error:
        notes.write(refused=str(error))
    notes.end()


if __name__ == "__main__":
    main(sys.argv[1])
