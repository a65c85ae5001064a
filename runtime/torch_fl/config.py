"""What the user wants: `~/.torch_fl/config.yaml`, or the file that TORCH_FL_CONFIG names, under the environment.

    devices:                      # default: every installed vendor, see torch_fl.devices
      - type: vendor_a            # a vendor's name, a kit folder, or a plugin's .so
        count: 2                  # at most so many of its devices
        memory_fraction: 0.9      # share of each device's memory that its pool may hold
    pool:
      memory_fraction: 0.9        # the same for devices that do not say
    fallback:
      enable_generic_kernel: true
      enable_cpu_fallback: true
      on_fallback: warn           # a step down from a native kernel: warn (once per operator), ignore, error
    precision: accurate           # or fast: kernels of tier FAST are admitted
    certified: ignore             # devices without a valid certificate: ignore, warn, require
    registry: ~/registry          # where certificates are looked up; default: the one that comes with torch-fl
    logging:
      level: info                 # debug, info, warning, error
      path: torch_fl.log

Paths in the file are relative to it. A variable that is set and not empty beats the file:

    TORCH_FL_CONFIG             the file itself
    TORCH_FL_VENDORS            devices: their types with commas between; count and memory_fraction stay the file's
    TORCH_FL_MEMORY_FRACTION    pool.memory_fraction
    TORCH_FL_GENERIC_KERNEL     fallback.enable_generic_kernel: true or false, 1 or 0
    TORCH_FL_CPU_FALLBACK       fallback.enable_cpu_fallback: true or false, 1 or 0
    TORCH_FL_ON_FALLBACK        fallback.on_fallback
    TORCH_FL_PRECISION          precision
    TORCH_FL_CERTIFIED          certified
    TORCH_FL_REGISTRY           registry
    TORCH_FL_LOG_LEVEL          logging.level
    TORCH_FL_LOG_PATH           logging.path

The file is read once, when the first device is used; `effective()` says what holds and where it came from.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

Certified = Literal["ignore", "warn", "require"]
OnFallback = Literal["warn", "ignore", "error"]
Precision = Literal["accurate", "fast"]
Level = Literal["debug", "info", "warning", "error"]
Fraction = Annotated[float, Gt(0), Le(1)]

#: Variable -> the key that it overrides, as the table above has it.
ENVIRONMENT: Mapping[str, str] = {
    "TORCH_FL_VENDORS": "devices",
    "TORCH_FL_MEMORY_FRACTION": "pool.memory_fraction",
    "TORCH_FL_GENERIC_KERNEL": "fallback.enable_generic_kernel",
    "TORCH_FL_CPU_FALLBACK": "fallback.enable_cpu_fallback",
    "TORCH_FL_ON_FALLBACK": "fallback.on_fallback",
    "TORCH_FL_PRECISION": "precision",
    "TORCH_FL_CERTIFIED": "certified",
    "TORCH_FL_REGISTRY": "registry",
    "TORCH_FL_LOG_LEVEL": "logging.level",
    "TORCH_FL_LOG_PATH": "logging.path",
}


class ConfigError(ValueError):
    """The file or a variable says what cannot be: a line per problem, with file, line, key and what is allowed."""


class Section:
    """How the file is held against the dataclasses below: no conversions, no unknown keys."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "extra": "forbid"}


@dataclass(frozen=True)
class DeviceRule(Section):
    """Devices of one vendor."""

    type: str
    count: Annotated[int, Ge(1)] | None = None
    memory_fraction: Fraction | None = None


@dataclass(frozen=True)
class Pool(Section):
    """The caching pool that each device's tensors come from."""

    memory_fraction: Fraction = 1.0


@dataclass(frozen=True)
class Fallback(Section):
    """What may serve an operator that the device has no native kernel for."""

    enable_generic_kernel: bool = True
    enable_cpu_fallback: bool = True
    on_fallback: OnFallback = "warn"


@dataclass(frozen=True)
class Logging(Section):
    """Of logger `torch_fl`; both None: Python's own logging decides."""

    level: Level | None = None
    path: str | None = None


@dataclass(frozen=True)
class Config(Section):
    """Everything; without a file, as here."""

    devices: tuple[DeviceRule, ...] | None = None  # None: every installed vendor
    pool: Pool = field(default_factory=Pool)
    fallback: Fallback = field(default_factory=Fallback)
    precision: Precision = "accurate"
    certified: Certified = "ignore"
    registry: str | None = None  # None: the snapshot in this package
    logging: Logging = field(default_factory=Logging)


@dataclass(frozen=True)
class Setting:
    """One value in force. source: "default", "/path/config.yaml:7" or "environment variable NAME"."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Loaded:
    """A config with the origin of its values: dotted key -> source, defaults left out. file: None: none was there."""

    config: Config
    sources: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    def settings(self) -> tuple[Setting, ...]:
        """Every value, in the order of the file's description."""
        return tuple(
            Setting(key, value, self.sources.get(key, "default")) for key, value in _leaves(self.config, prefix="")
        )


def load() -> Loaded:
    """Read file and environment anew; raises ConfigError."""
    path = _path()
    variables = {name: os.environ[name] for name in ENVIRONMENT if os.environ.get(name)}
    if path is None and not variables:
        return Loaded(Config())
    from torch_fl.config_file import read  # pydantic and yaml, which most processes need not import

    return read(path, variables)


_current: Loaded | None = None
_lock = threading.Lock()


def current() -> Loaded:
    """What this process goes by, read at the first call; raises ConfigError until it can be."""
    global _current
    with _lock:
        if _current is None:
            _current = load()
        return _current


def effective() -> tuple[Setting, ...]:
    """The values that this process goes by, and where each came from; raises ConfigError."""
    return current().settings()


def file() -> Path | None:
    """Where the file is looked for, be it there or not: as TORCH_FL_CONFIG says, else in the home directory.

    None where there is no home directory.
    """
    named = os.environ.get("TORCH_FL_CONFIG")
    try:
        return Path(named).expanduser() if named else Path.home() / ".torch_fl" / "config.yaml"
    except RuntimeError:
        return Path(named) if named else None


def _path() -> Path | None:
    """The file to read, None where there is none; a file that TORCH_FL_CONFIG names must exist."""
    path = file()
    try:
        if path is None or path.is_file():
            return path
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if os.environ.get("TORCH_FL_CONFIG"):
        raise ConfigError(f"{path}: no such file; TORCH_FL_CONFIG names it")
    return None


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        for item in dataclasses.fields(value):
            yield from _leaves(getattr(value, item.name), f"{prefix}.{item.name}" if prefix else item.name)
    elif isinstance(value, tuple):
        for index, entry in enumerate(value):
            yield from _leaves(entry, f"{prefix}.{index}")
    else:
        yield prefix, value
