"""Devices made of numpy, for testing the judge: they obey `kernel_case` as the driver does, without any plugin.

`FakeDevice.compute` gets the operands as the device would see them (read through base, offset and strides out of the
uploaded bytes) and answers with storage words. `IdealDevice` answers RN(oracle); defects are small subclasses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
from torch_fl_conformance import case_judge, kernel_row
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array, DType, from_bits, to_bits
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.expectation import budget_of, expected
from torch_fl_conformance.problem import Claim, Problem
from torch_fl_conformance.rounding import round_to
from torch_fl_conformance.row import Row
from torch_fl_spec.registry import Operator, load_registry

_BY_NUMBER = {dtype.number: dtype for dtype in DTYPES.values()}


class FakeDevice:
    """Shared memory, blocks and the `kernel_case` command. Set `problem` ahead of a case."""

    def __init__(self) -> None:
        self._memory: list[bytearray] = []
        self.problem: Problem | None = None
        self.runs = 0

    def place(self, data: Any) -> list[int]:
        self._memory.append(bytearray(data))
        return [len(self._memory) - 1, len(data)]

    def room(self, length: int) -> list[int]:
        return self.place(bytes(length))

    def view(self, region: list[int]) -> memoryview:
        return memoryview(self._memory[region[0]])

    def execute(self, command: Mapping[str, Any], timeout: float | None = None) -> Any:
        images = {block["name"]: block["image"] for block in command["blocks"]}
        answers = []
        for step in (command, *command.get("again", ())):
            blocks = {
                name: np.frombuffer(self._memory[image[0]], np.uint8).copy()
                for name, image in step.get("images", images).items()
            }
            self.run(command, blocks)
            self.runs += 1
            seals = {}
            for name, region in step["results"].items():
                self._memory[region[0]][:] = blocks[name].tobytes()
                seals[name] = hashlib.sha256(blocks[name]).hexdigest()
            counters = self.problem.structure.params.get("counters", 0) if self.problem else 0
            plan = {"status": 0, "err": None, "workspace_bytes": 0, "workspace_align": 0, "rng_increment": counters}
            fine = {"status": 0, "err": None}
            answers.append({"plan": plan, "run": fine, "sync": fine, "sha256": seals, "workspace_intact": True})
        return {**answers[0], "again": answers[1:]}

    def run(self, command: Mapping[str, Any], blocks: dict[str, Array]) -> None:
        """One run on blocks of bytes: read operands, compute, write outputs."""
        operands = {name: self.read(tensor, blocks) for name, tensor in command["tensors"].items()}
        results = self.compute(command, operands)
        for name in self.problem.structure.outs if self.problem else ():
            self.write(command["tensors"][name.name], blocks, results[name.name])

    def read(self, tensor: Mapping[str, Any], blocks: dict[str, Array]) -> Array:
        """Logical values of a tensor in its block."""
        dtype = _BY_NUMBER[tensor["dtype"]]
        if 0 in tensor["sizes"] or tensor["block"] is None:
            return np.empty(tensor["sizes"], dtype.logical)
        return np.array(from_bits(strided(tensor, blocks, dtype), dtype))

    def write(self, tensor: Mapping[str, Any], blocks: dict[str, Array], words: Array) -> None:
        """Put storage words at the tensor's strides."""
        if 0 not in tensor["sizes"]:
            strided(tensor, blocks, _BY_NUMBER[tensor["dtype"]])[...] = words

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        """Storage words by output name."""
        raise NotImplementedError


def strided(tensor: Mapping[str, Any], blocks: dict[str, Array], dtype: DType) -> Array:
    """A writable view of a tensor's storage words."""
    sizes, strides = tensor["sizes"], tensor["strides"]
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    start = tensor["byte_offset"]
    words = blocks[tensor["block"]][start : start + span * dtype.size].view(dtype.storage)
    return np.lib.stride_tricks.as_strided(words, sizes, [step * dtype.size for step in strides])


class IdealDevice(FakeDevice):
    """Answers the oracle's value, rounded once to the output's type."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        problem = self.problem
        assert problem is not None
        precision = problem.claim.precision(problem.operator)
        answers = expected(problem, operands, precision)
        return {out.name: self.words(problem, out.name, answers[out.name], out.dtype) for out in problem.structure.outs}

    def words(self, problem: Problem, name: str, answer: Expected, dtype: DType) -> Array:
        """Storage words of one output."""
        if not dtype.is_float:
            return to_bits(np.asarray(answer.ref).astype(dtype.logical), dtype)
        return to_bits(round_to(self.value(problem, name, answer), dtype), dtype)

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        """The value to be rounded; distortions override this."""
        if problem.operator.op_class == "random" and answer.forbid is not None:
            return np.minimum(answer.ref, answer.alternatives[0])
        return answer.ref


class StretchedDevice(IdealDevice):
    """Off by `factor` times the budget, in every element that has one and room in its type."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        precision = problem.claim.precision(problem.operator)
        bound = budget_of(problem, name, answer, precision).values
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(bound), answer.ref + self.factor * bound, answer.ref)


def judge_operator(
    device: FakeDevice,
    name: str,
    dtypes: tuple[str, ...],
    *,
    seed: int = 1,
    effort: str = "quick",
    row: Row | None = None,
    **claims: Any,
) -> Row:
    """Judge a row of the registry on a fake device (`row`, or a new one); raises RuleViolated as the suite does."""
    operator = operator_named(name)
    claim = Claim(operator.op, 1, "fake", dtypes, takes_scalar=True, inplace=bool(operator.inplace), **claims)
    row = row or Row(f"{operator.op}/r1/fake/{','.join(dtypes)}", operator.chapter, "operator")
    inner = case_judge.examine

    def examine(driver: Any, problem: Problem, **options: Any) -> Any:
        device.problem = problem
        return inner(driver, problem, **options)

    with mock.patch.object(kernel_row, "examine", examine):
        kernel_row.judge_row(row, device, operator, {"d0": claim}, seed=seed, effort=Effort(effort))
    return row


def operator_named(short_name: str) -> Operator:
    """A registry operator by its name without namespace."""
    found: Operator = next(operator for operator in load_registry() if operator.short_name == short_name)
    return found
