"""Statistics of random rows: honest generators pass, cut tails, shifted means and ignored seeds do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from torch_fl_conformance import random_row
from torch_fl_conformance.case_judge import run_alone
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.failures import RuleViolated
from torch_fl_conformance.problem import Claim, Problem
from torch_fl_conformance.row import Row

from .device_defects import (
    CutTails,
    InvertedMask,
    KeptForDropped,
    MaskInPairs,
    MaskOfData,
    MaskOfOneSeed,
    OffsetIgnored,
    OtherMask,
    SeedIgnored,
)
from .fake_device import FakeDevice, IdealDevice, operator_named


class Shifted(IdealDevice):
    """Everything a little larger."""

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        return np.minimum(answer.ref + 0.01, 0.999)


class Repeating(IdealDevice):
    """Each number comes twice."""

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        return np.repeat(answer.ref.ravel()[::2], 2)[: answer.ref.size].reshape(answer.ref.shape)


def judged(device: FakeDevice, name: str, dtype: str, seed: int, philox_exact: bool = False) -> Row:
    """Run the statistics of one row."""
    operator = operator_named(name)
    claim = Claim(operator.op, 1, "fake", (dtype,), philox_exact=philox_exact)
    row = Row(operator.op, "random", "operator")

    def run(driver: Any, problem: Problem, where: str = "d0") -> Any:
        device.problem = problem
        return run_alone(driver, problem, where)

    with mock.patch.object(random_row, "run_alone", run):
        random_row.judge_statistics(row, device, operator, claim, device="d0", seed=seed, count=2**18)
    return row


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["uniform", "normal_functional", "native_dropout"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_honest_generators_pass(name: str, dtype: str, seed: int) -> None:
    """Every type, with the grid of its precision."""
    assert not judged(IdealDevice(), name, dtype, seed).missing_labels()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "dtype", "device"),
    [
        ("normal_functional", "f32", CutTails), ("uniform", "f32", SeedIgnored), ("uniform", "f32", OffsetIgnored),
        ("native_dropout", "f32", KeptForDropped), ("native_dropout", "f32", MaskInPairs),
        ("native_dropout", "f16", MaskOfOneSeed), ("native_dropout", "f32", MaskOfData),
        ("native_dropout", "bf16", InvertedMask),
        ("uniform", "f32", Shifted), ("uniform", "f64", Repeating), ("normal_functional", "f32", Repeating),
    ],
)  # fmt: skip
def test_defects_are_caught(name: str, dtype: str, device: Callable[[], FakeDevice], seed: int) -> None:
    """Also in rows that promise no exact bits."""
    with pytest.raises(RuleViolated):
        judged(device(), name, dtype, seed)


@pytest.mark.parametrize("seed", range(3))
def test_masks_that_promise_philoxs_bits_have_them(seed: int) -> None:
    """As good a mask as any other is not the promised one; without the promise it passes."""
    judged(OtherMask(), "native_dropout", "f32", seed)
    judged(IdealDevice(), "native_dropout", "f32", seed, philox_exact=True)
    with pytest.raises(RuleViolated, match="of the mask are not Philox's"):
        judged(OtherMask(), "native_dropout", "f32", seed, philox_exact=True)
