"""Fixtures that chapters code against; registered only in a run with --vendor.

row           Row of this item: case(), require(), label(), check(), fail(), worst(), not_claimed(), note()
abi           Abi: typed calls through `driver`, objects released after the row (see facade.py)
driver        Driver of this worker, shared by its rows; fresh after a row that did not pass
fresh_driver  factory of further drivers: fresh_driver(host_minor=9999, grease=False, env={...})
operator_row  ExpectedRow of an operator item (op, revision, variant, dtypes, tier); asking for it is what
              makes a test function the check of its chapter's operator rows
device_info   list of the devices' infos, as `describe` gives them
declarations  {"devices", "extensions", "kernels"} as `describe` gives them
effort        Effort: effort.pick(quick=.., full=..)
seed          int: the seed of this row's draws
rng           numpy Generator from that seed
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from torch_fl_spec.loader import HOST_NAME
from torch_fl_spec.rows import ExpectedRow

from torch_fl_conformance.code_files import CODE
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.effort import Effort, row_seed
from torch_fl_conformance.exclusive import DeviceLock
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import DriverCrashed, DriverError, DriverHung, RuleViolated
from torch_fl_conformance.health import is_healthy
from torch_fl_conformance.in_process import InProcessDriver
from torch_fl_conformance.recording import ITEM_ROW, ROW, broke_before
from torch_fl_conformance.row import Row
from torch_fl_conformance.settings import SETTINGS, RunSettings
from torch_fl_conformance.verdicts import Collateral

if TYPE_CHECKING:
    import numpy

FreshDriver = Callable[..., Driver]
"""fresh_driver(*, host_minor=0, host_name="torch-fl", grease=True, log=False, options=None, env=None)"""


@pytest.fixture(scope="session")
def settings(request: pytest.FixtureRequest) -> RunSettings:
    """The run's settings."""
    return request.config.stash[SETTINGS]


@pytest.fixture
def effort(settings: RunSettings) -> Effort:
    """How long to look."""
    return settings.effort


@pytest.fixture
def device_info(settings: RunSettings) -> list[dict[str, Any]]:
    """What each device declares, by index."""
    return list(settings.description["devices"])


@pytest.fixture
def declarations(settings: RunSettings) -> dict[str, Any]:
    """What the plugin declares: devices, extensions (name -> revision), kernels (a list per device)."""
    return {key: settings.description[key] for key in ("devices", "extensions", "kernels")}


@pytest.fixture(scope="session")
def device_lock(settings: RunSettings) -> DeviceLock:
    """The lock between exclusive rows and all others."""
    return DeviceLock([str(device["uuid"]) for device in settings.description["devices"]])


@pytest.fixture
def row(request: pytest.FixtureRequest, device_lock: DeviceLock) -> Iterator[Row]:
    """This item's row of the report; while it lives the row has its place on the device."""
    found = request.node.stash[ROW]
    with device_lock.hold(request.node.stash[ITEM_ROW].exclusive):
        yield found


@pytest.fixture(scope="session")
def worker_driver(settings: RunSettings, pytestconfig: pytest.Config) -> Iterator[Driver]:
    """The one driver that the rows of this worker share."""
    driver = InProcessDriver(settings.driver) if settings.in_process else Driver(settings.driver)
    yield driver
    _close(driver, pytestconfig)


def _close(driver: Driver, config: pytest.Config) -> None:
    driver.close()
    config.stash[CODE] |= driver.code


@pytest.fixture
def driver(request: pytest.FixtureRequest, row: Row, worker_driver: Driver, settings: RunSettings) -> Iterator[Driver]:
    """The worker's driver with its devices open as "d0", "d1", ...

    After a row that did not pass it is a fresh process. Where even that cannot move 64 bytes, though the run
    began with a healthy device, this row is `collateral`.
    """
    if broke_before(request.config):
        worker_driver.stop()
        if settings.healthy and not is_healthy(worker_driver):
            raise Collateral("an earlier row left the device unable to move 64 bytes, in a fresh process too")
    worker_driver.begin_row(row.id, settings.seed)
    worker_driver.describe()
    row.on_case = worker_driver.begin_case
    row.driver = worker_driver
    yield worker_driver
    row.on_case = None


@pytest.fixture
def abi(driver: Driver, row: Row) -> Iterator[Abi]:
    """Typed calls through the worker's driver; what a row leaves behind is released.

    A crash or hang meanwhile is the row's, unless it has failed before.
    """
    calls = Abi(driver)
    yield calls
    try:
        calls.release_all()
    except (DriverCrashed, DriverHung) as end:
        row.facts = {"what": "release of what the row had made"}
        row.ending = end
    except (RuleViolated, DriverError) as refusal:
        row.note(f"what the row had made could not be released: {refusal}")
        driver.stop()


@pytest.fixture
def fresh_driver(settings: RunSettings, row: Row, pytestconfig: pytest.Config) -> Iterator[FreshDriver]:
    """Drivers of the row's own, closed after it."""
    with contextlib.ExitStack() as stack:

        def make(
            *,
            host_minor: int = 0,
            host_name: str | None = HOST_NAME,
            grease: bool = True,
            log: bool = False,
            options: str | None = None,
            env: Mapping[str, str] | None = None,
        ) -> Driver:
            config = dataclasses.replace(
                settings.driver,
                host_minor=host_minor,
                host_name=host_name,
                grease=grease,
                log=log,
                options=settings.driver.options if options is None else options,
                env={**settings.driver.env, **(env or {})},
            )
            made = Driver(config)
            made.begin_row(row.id, settings.seed)
            stack.callback(_close, made, pytestconfig)
            if row.driver is None:
                row.driver = made
            return made

        yield make


@pytest.fixture
def seed(row: Row, settings: RunSettings) -> int:
    """Seed of this row's draws: from the run's seed and the row's id, never from worker or order."""
    return row_seed(settings.seed, row.id)


@pytest.fixture
def rng(seed: int) -> numpy.random.Generator:
    """Generator seeded for this row."""
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(seed))


@pytest.fixture
def operator_row(request: pytest.FixtureRequest) -> ExpectedRow:
    """The operator row that this item judges."""
    expected: ExpectedRow = request.param
    return expected
