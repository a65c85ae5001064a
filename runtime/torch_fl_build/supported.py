"""The versions of torch that the bridge's sources are written for."""

from __future__ import annotations

import re

from . import BridgeUnavailable

#: First one that works, first one that nobody has tried.
FIRST, BEYOND = (2, 11), (2, 15)


def check() -> None:
    """Raise BridgeUnavailable unless the torch that is installed is one of them."""
    import torch

    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not FIRST <= (int(found[1]), int(found[2])) < BEYOND:
        wanted = ">={}.{},<{}.{}".format(*FIRST, *BEYOND)
        raise BridgeUnavailable(
            f"torch-fl works with torch {wanted}, and torch {version} is installed: pip install 'torch{wanted}'"
        )
