"""What one run is about: the vendor's plugin, how to drive it, and the rows it must show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch_fl_spec.rows import ExpectedRow, expected_rows

from torch_fl_conformance.driver_client import DriverConfig
from torch_fl_conformance.effort import Effort


@dataclass(frozen=True)
class RunSettings:
    """Made by the preflight in the controlling process; plain data, so that workers get the very same."""

    vendor: str
    profile: str
    effort: Effort
    seed: int
    in_process: bool
    report: str  # folder of the report, absolute
    staging: str  # folder for what the report will take in, absolute; gone after the run
    options: Mapping[str, str]  # the kit's, for device_open
    driver: DriverConfig
    description: Mapping[str, Any]  # answer to `describe`
    plugin: Mapping[str, Any]  # name, sha256 and size of the library before it was first loaded
    libraries: Sequence[Mapping[str, str]]  # path and sha256 of what it had brought along before any row ran
    healthy: bool  # the health probe succeeded before any row ran
    rows: list[ExpectedRow] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows:  # as another object has them
            return
        declared = {key: self.description[key] for key in ("devices", "extensions")}
        object.__setattr__(self, "rows", expected_rows(self.profile, declared, self.description["kernels"]))

    def to_plain(self) -> dict[str, Any]:
        """JSON-able form for `from_plain`."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del plain["rows"]
        driver = dataclasses.asdict(self.driver)
        driver["pass_env"] = list(self.driver.pass_env)
        return {**plain, "effort": self.effort.name, "driver": driver}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RunSettings:
        """Settings as another process made them."""
        driver = dict(plain["driver"])
        driver["pass_env"] = tuple(driver["pass_env"])
        return cls(**{**plain, "effort": Effort(plain["effort"]), "driver": DriverConfig(**driver)})


SETTINGS = pytest.StashKey[RunSettings]()
"""Where a pytest config of a conformance run keeps its settings."""
