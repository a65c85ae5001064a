"""What torch_fl.counters() shows of a step that really runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch_fl
from torch_fl.foresight.record import Coverage

from .models import Case

Told = Counter[tuple[str, str]]  # (operator, tier) -> calls

_TIERS = {"native": "native", "generic": "generic", "cpu": "cpu", "errors": "error"}


def counted(device: str, step: Callable[[], Any]) -> Told:
    """Calls per operator and tier of one step, once the generic tier knows which attempts are in vain."""
    step()
    before = torch_fl.counters()[device]
    step()
    after = torch_fl.counters()[device]
    told: Told = Counter()
    for operator, counters in after.items():
        for name, tier in _TIERS.items():
            told[operator, tier] += counters.get(name, 0) - before.get(operator, {}).get(name, 0)
    return +told


def foretold(coverage: Coverage) -> Told:
    """The same of a coverage."""
    told: Told = Counter()
    for row in coverage.rows:
        told[row.operator, row.tier] += row.calls
    return told


def step_of(case: Case, device: str, *, backward: bool = True) -> Callable[[], None]:
    """One training step of the case on the device."""
    model = case.model.to(device)
    inputs = tuple(tensor.to(device) for tensor in case.inputs)
    targets = tuple(tensor.to(device) for tensor in case.targets)
    gradient: list[torch.Tensor] = []  # made once: no operator of a step

    def step() -> None:
        model.zero_grad(set_to_none=True)
        out = model(*inputs)
        out = out if case.loss is None else case.loss(out, *targets)
        if backward:
            if not gradient:
                gradient.append(torch.ones(out.shape, dtype=out.dtype).to(device))
            out.backward(gradient[0])

    return step
