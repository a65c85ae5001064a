"""Before the first row: is there a plugin, does it load, does it answer? If not, one line and exit code 2."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch_fl_reports.writer import NotAReportFolder, assemble, check_replaceable
from torch_fl_spec import helper, kits
from torch_fl_spec.loader import PluginRefused
from torch_fl_spec.rows import UNCLAIMED, fits

from torch_fl_conformance.driver_client import Driver, DriverConfig
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.failures import DriverError, DriverHung, PreflightFailed, RuleViolated
from torch_fl_conformance.health import is_healthy
from torch_fl_conformance.metadata import file_facts, library_facts, trial_metadata
from torch_fl_conformance.settings import RunSettings

PROFILES = ("core", "infer", "train")
EFFORTS = ("quick", "full")
LOAD_SECONDS = 30.0  # a plugin that needs longer to load and to open its devices counts as hung


def settle(config: pytest.Config) -> RunSettings:
    """The run's settings from pytest's options; raises PreflightFailed."""
    profile, effort, seed = _options(config)
    name = config.getoption("--vendor")
    try:
        kit = kits.resolve(name)
        library = kit.ensure_built(lambda line: _say(config, f"building the plugin of {line}"))
        plugin = file_facts(library)
        helper.library_path()
    except (kits.KitError, helper.HelperUnavailable) as error:
        raise PreflightFailed(str(error)) from None
    except OSError as error:
        raise PreflightFailed(f"{str(name)[:200]}: {error.strerror}") from None
    driver_config = DriverConfig(
        library=str(library),
        options=kit.option_string,
        pass_env=tuple(kit.env),
        watchdog=LOAD_SECONDS,
    )
    described, libraries, healthy = look(driver_config, name)
    if not described["devices"]:
        raise PreflightFailed(f"{name}: the plugin loads but reports no device")
    vendor = str(described["name"])
    if config.getoption("--report") == "":
        raise PreflightFailed("--report: names no folder")
    report = (config.invocation_params.dir / (config.getoption("--report") or f"torch-fl-report/{vendor}")).absolute()
    _check_report_folder(report)
    settings = RunSettings(
        vendor=vendor,
        profile=profile,
        effort=effort,
        seed=seed,
        in_process=config.getoption("--in-process"),
        report=str(report),
        staging="",
        options=dict(kit.options),
        driver=DriverConfig(**{**vars(driver_config), "watchdog": effort.watchdog}),
        description=described,
        plugin=plugin,
        libraries=libraries,
        healthy=healthy,
    )
    for pattern in config.getoption("--row"):
        if not any(row.variant != UNCLAIMED and fits(row.id, [pattern]) for row in settings.rows):
            raise PreflightFailed(
                f"--row {pattern}: this plugin has no such row; `torch-fl kit show {shlex.quote(name)}` lists its "
                "operators, SPEC.md the rules"
            )
    _check_reportable(name, settings)
    return dataclasses.replace(settings, staging=tempfile.mkdtemp(prefix=f"torch-fl-{vendor}-"))


def _say(config: pytest.Config, line: str) -> None:
    """On stderr at once: pytest captures it from its start on."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        print(line, file=sys.stderr, flush=True)


def _check_report_folder(folder: Path) -> None:
    """Whether the run will be able to leave its report there; better said before it than after."""
    try:
        check_replaceable(folder.resolve())
    except NotAReportFolder as error:
        raise PreflightFailed(f"--report: {error}") from None
    except OSError as error:
        raise PreflightFailed(f"--report {folder}: {error.strerror}") from None
    except RuntimeError as error:  # pathlib's, for links that lead in a circle
        raise PreflightFailed(f"--report: {error}") from None


def _check_reportable(name: str, settings: RunSettings) -> None:
    """Whether what the plugin says of itself has its place in a report."""
    try:
        assemble(trial_metadata(settings), [])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PreflightFailed(f"{name}: no report can say this of a plugin: {where}: {first['msg']}") from None


def _options(config: pytest.Config) -> tuple[str, Effort, int]:
    profile, effort, seed = (config.getoption(f"--{name}") for name in ("profile", "effort", "seed"))
    if profile not in PROFILES:
        raise PreflightFailed(f"--profile {profile}: choose one of {', '.join(PROFILES)}")
    if profile != "core":
        raise PreflightFailed(
            f"--profile {profile}: the operator registry does not hold all rows of this profile yet; "
            "a run of --profile core shows those it holds as extras"
        )
    if effort not in EFFORTS:
        raise PreflightFailed(f"--effort {effort}: choose one of {', '.join(EFFORTS)}")
    workers = config.getoption("numprocesses", None)  # of pytest-xdist
    if isinstance(workers, int) and workers < 0:
        raise PreflightFailed(f"-n {workers}: the number of worker processes, 0 for none")
    if seed is None:
        return profile, Effort(effort), secrets.randbelow(1 << 32)
    try:
        number = int(seed, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise PreflightFailed(f"--seed {seed}: an integer from 0 to 2^64 - 1")
    return profile, Effort(effort), number


def look(config: DriverConfig, name: str) -> tuple[dict[str, Any], list[dict[str, str]], bool]:
    """(answer to describe, libraries that the plugin brought along, whether 64 bytes make a round trip)."""
    driver = Driver(config)
    try:
        described = driver.describe()
        driver.note_code()
        healthy = is_healthy(driver)
        driver.note_code()
        return described, library_facts(driver.code, Path(config.library)), healthy
    except PluginRefused as refusal:
        raise PreflightFailed(f"{name}: {'; '.join(refusal.reasons)}") from None
    except RuleViolated as failure:
        raise PreflightFailed(f"{name}: {failure.message}") from None
    except DriverHung as hang:
        raise PreflightFailed(f"{name}: the plugin gave {hang.message}") from None
    except DriverError as error:
        last = str(error).strip().splitlines()
        raise PreflightFailed(f"{name}: the plugin could not be described: {last[-1]}") from None
    finally:
        driver.close()
