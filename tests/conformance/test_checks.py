"""Checks called by themselves: what they may not pass over, and what is no plugin's fault."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_fl_conformance.chapters import test_kernel_table, test_stream
from torch_fl_conformance.driver_client import Driver, DriverConfig
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import NotClaimed, RuleViolated
from torch_fl_conformance.leaks import memory_taken
from torch_fl_conformance.row import Row


@pytest.fixture
def abi(good_library: Path) -> Iterator[Abi]:
    driver = Driver(DriverConfig(str(good_library)))
    yield Abi(driver)
    driver.close()


def test_a_table_that_another_process_was_shown_is_refused(abi: Abi) -> None:
    declared = copy.deepcopy({key: abi.driver.describe()[key] for key in ("devices", "extensions", "kernels")})
    declared["kernels"][0][0]["max_ndim"] += 1
    with pytest.raises(RuleViolated, match="another kernel table than in the process"):
        test_kernel_table.test_the_table_is_unique_and_constant(
            Row("FL-KERNEL-002", "kernel", "rule"), abi, Driver, declared, np.random.default_rng(1), Effort("quick")
        )


def test_streams_that_nobody_calls_independent_are_not_claimed(abi: Abi) -> None:
    abi.devices = [{**device, "independent_streams": 0} for device in abi.devices]
    with pytest.raises(NotClaimed):
        test_stream.test_a_stalled_stream_stops_no_other(Row("FL-STREAM-009", "stream", "rule"), abi)


class _Memory:
    """Tells one number of free bytes after the other, in place of Abi."""

    def __init__(self, *free: int) -> None:
        self.free = iter(free)

    def mem_info(self, device: str) -> tuple[int, int]:
        return next(self.free), 1 << 20


@pytest.mark.parametrize(
    ("free", "taken"),
    [
        ((100, 100), {}),
        ((100, 90, 90, 90), {}),  # another process took some, once
        ((100, 90, 90, 80, 80, 70), {"before": 80, "least": 70, "after": 70}),
    ],
)
def test_memory_that_is_lost_once_may_be_anybodys(free: tuple[int, ...], taken: dict[str, int]) -> None:
    memory: Any = _Memory(*free)
    assert memory_taken(memory, "d0", lambda: None) == taken


def test_memory_that_is_taken_for_a_while_is_taken() -> None:
    memory: Any = _Memory(*[100] * 6)
    assert memory_taken(memory, "d0", lambda: 90) == {"before": 100, "least": 90, "after": 100}
