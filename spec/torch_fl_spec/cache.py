"""Where files that this machine made for itself live."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The folder of all generated and compiled files; TORCH_FL_CACHE overrides it. It need not exist."""
    override = os.environ.get("TORCH_FL_CACHE")
    if override:
        return Path(override)
    import platformdirs

    return platformdirs.user_cache_path("torch-fl")
