"""The logger `torch_fl`: silent until the configuration, or the program, gives it somewhere to write."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from torch_fl.config import Logging

_logger = logging.getLogger("torch_fl")
_logger.addHandler(logging.NullHandler())
_own: logging.Handler | None = None


def configure(settings: Logging) -> str | None:
    """Apply level and path, in place of what was applied before; returns a complaint where the path cannot be used.

    A level alone writes to stderr, a path alone takes level info, neither leaves the program's own settings alone.
    """
    global _own
    if _own is not None:
        _logger.removeHandler(_own)
        _own.close()
        _own = None
    if settings.level is None and settings.path is None:
        return None
    complaint = None
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.path is not None:
        try:
            handler = logging.FileHandler(Path(settings.path), encoding="utf-8")
        except OSError as error:
            complaint = f"logging.path: cannot write to {settings.path}: {error.strerror}; logging to stderr instead"
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    _logger.setLevel((settings.level or "info").upper())
    _logger.addHandler(handler)
    _own = handler
    return complaint
