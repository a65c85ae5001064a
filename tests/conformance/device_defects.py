# mypy: disable-error-code="no-any-return"
"""Defects of a whole device, on top of the ideal one: layout, memory, caches, generators. Used by test_power."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch_fl_conformance import philox
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array, DType
from torch_fl_conformance.problem import Problem

from .defects import pack
from .fake_device import IdealDevice, strided


class AssumesContiguous(IdealDevice):
    """Reads inputs as if they were row-major."""

    def read(self, tensor: Mapping[str, Any], blocks: dict[str, Array]) -> Array:
        strides = [int(np.prod(tensor["sizes"][axis + 1 :])) for axis in range(len(tensor["sizes"]))]
        try:
            return super().read({**tensor, "strides": strides}, blocks)
        except ValueError:  # beyond the block
            return super().read(tensor, blocks)


class IgnoresOffset(IdealDevice):
    """Reads inputs from their base."""

    def read(self, tensor: Mapping[str, Any], blocks: dict[str, Array]) -> Array:
        return super().read({**tensor, "byte_offset": 0}, blocks)


class WritesHoles(IdealDevice):
    """Writes whole rows, holes included."""

    def write(self, tensor: Mapping[str, Any], blocks: dict[str, Array], words: Array) -> None:
        super().write(tensor, blocks, words)
        if words.size > 1 and tensor["strides"][-1] > 1:
            first = tensor["byte_offset"]
            blocks[tensor["block"]][first + words.dtype.itemsize : first + 2 * words.dtype.itemsize] = 0


class WritesBeyond(IdealDevice):
    """Rounds the output's end up to eight elements."""

    def write(self, tensor: Mapping[str, Any], blocks: dict[str, Array], words: Array) -> None:
        super().write(tensor, blocks, words)
        if words.size % 8:
            span = 1 + sum((n - 1) * step for n, step in zip(tensor["sizes"], tensor["strides"], strict=True))
            end = tensor["byte_offset"] + span * words.dtype.itemsize
            blocks[tensor["block"]][end : end + 1] ^= 0xFF


class ChangesInput(IdealDevice):
    """Uses its input as scratch."""

    def run(self, command: Mapping[str, Any], blocks: dict[str, Array]) -> None:
        super().run(command, blocks)
        tensor = command["tensors"]["self"]
        if 0 not in tensor["sizes"] and tensor["flags"]:
            strided(tensor, blocks, self.problem.structure.inputs[0].dtype)[...] ^= 1  # type: ignore[union-attr]


class CachesByAddress(IdealDevice):
    """Answers a call on the same addresses with the first call's results."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, dict[str, Array]] = {}

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        key = repr((command["tensors"], command["args"]))
        if key not in self.cache:
            self.cache[key] = super().compute(command, operands)
        return self.cache[key]


class CachesScalar(IdealDevice):
    """Keeps the first number that it saw for a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Any] = {}

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        problem = self.problem
        assert problem is not None
        params = problem.structure.params
        if "other" in params:
            key = str(problem.structure.outs[0].shape)
            kept = self.cache.setdefault(key, params["other"])
            object.__setattr__(problem.structure, "params", {**params, "other": kept})
        try:
            return super().compute(command, operands)
        finally:
            object.__setattr__(problem.structure, "params", params)


class AddsToOutput(IdealDevice):
    """Accumulates into an output that it takes for zeroed memory."""

    def run(self, command: Mapping[str, Any], blocks: dict[str, Array]) -> None:
        stale = {name: self.read(command["tensors"][name], blocks) for name in command["outs"]}
        super().run(command, blocks)
        for out in self.problem.structure.outs:  # type: ignore[union-attr]
            tensor = command["tensors"][out.name]
            now = self.read(tensor, blocks)
            with np.errstate(all="ignore"):
                self.write(tensor, blocks, pack(now + np.nan_to_num(stale[out.name], posinf=0, neginf=0), out.dtype))


class ByteBools(IdealDevice):
    """Stores true as 0xFF."""

    def write(self, tensor: Mapping[str, Any], blocks: dict[str, Array], words: Array) -> None:
        super().write(tensor, blocks, words * np.uint8(0xFF))


class LosesDuplicates(IdealDevice):
    """scatter_add keeps one of several summands of an element."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        problem = self.problem
        assert problem is not None
        dim, index = problem.structure.params["dim"], operands["index"]
        total = operands["self"].astype(np.float64).copy()
        if index.size and index.min() >= 0 and index.max() < total.shape[dim]:
            places = list(np.indices(index.shape))
            places[dim] = index
            total[tuple(places)] += operands["src"]
        return {"out": pack(total, problem.structure.outs[0].dtype)}


class SeedIgnored(IdealDevice):
    """The seed has no effect."""

    field = "seed"

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        params = {**problem.structure.params, self.field: 3}
        numel = int(np.prod(problem.structure.outs[0].shape))
        unit = philox.uniform(params["seed"], params["offset"], numel, problem.structure.outs[0].dtype)
        return (params["from"] + unit * (params["to"] - params["from"])).reshape(answer.ref.shape)


class OffsetIgnored(SeedIgnored):
    """The generator offset has no effect."""

    field = "offset"


class OtherMask(IdealDevice):
    """Dropout by the numbers of another seed; data and mask agree. `change` alters (data, mask) before the product."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        assert self.problem is not None
        structure = self.problem.structure
        params = structure.params
        p = params["p"]
        data = operands["input"].astype(np.longdouble)
        u = philox.uniform(params["seed"] ^ 5, params["offset"], data.size, DTYPES["f32"])
        mask = self.masked(u, p).reshape(data.shape)
        with np.errstate(all="ignore"):
            return {"out": pack(self.scaled(data, mask, p), structure.outs[0].dtype), "mask": mask.astype(np.uint8)}

    def masked(self, u: Array, p: float) -> Array:
        """Which elements are kept."""
        return u >= p

    def scaled(self, data: Array, mask: Array, p: float) -> Array:
        """The output."""
        return data * mask / (1 - p)


class UnscaledMask(OtherMask):
    """What is kept is not scaled."""

    def scaled(self, data: Array, mask: Array, p: float) -> Array:
        return data * mask


class InvertedMask(OtherMask):
    """The mask says which elements are dropped."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        results = super().compute(command, operands)
        return {**results, "mask": 1 - results["mask"]}


class ByteMask(OtherMask):
    """True is 0xFF in the mask."""

    def compute(self, command: Mapping[str, Any], operands: dict[str, Array]) -> dict[str, Array]:
        results = super().compute(command, operands)
        return {**results, "mask": results["mask"] * np.uint8(0xFF)}


class KeptForDropped(OtherMask):
    """p is taken for the probability of being kept; data and mask agree."""

    def masked(self, u: Array, p: float) -> Array:
        return u < p


class MaskInPairs(OtherMask):
    """Every two neighbours share their fate."""

    def masked(self, u: Array, p: float) -> Array:
        return np.repeat(u[::2], 2)[: u.size] >= p


class MaskOfOneSeed(OtherMask):
    """Seed and offset have no effect."""

    def masked(self, u: Array, p: float) -> Array:
        return philox.uniform(3, 3, u.size, DTYPES["f32"]) >= p


class MaskOfData(OtherMask):
    """The data's signs are among what decides."""

    def scaled(self, data: Array, mask: Array, p: float) -> Array:
        mask ^= (data > 1) & (np.indices(data.shape)[-1] % 7 == 0)
        return super().scaled(data, mask, p)


class CutTails(IdealDevice):
    """Normals beyond four standard deviations are cut off."""

    def value(self, problem: Problem, name: str, answer: Expected) -> Array:
        mean, std = problem.structure.params["mean"], problem.structure.params["std"]
        return np.clip(answer.ref, mean - 4 * std, mean + 4 * std)


class NotQuiteDeterministic(IdealDevice):
    """One bit of the result follows a counter, inside the budget."""

    def words(self, problem: Problem, name: str, answer: Expected, dtype: DType) -> Array:
        words = super().words(problem, name, answer, dtype)
        return words ^ words.dtype.type(self.runs % 2) if dtype == DTYPES["f32"] else words


def checksum(text: str) -> int:
    """A small stable number from a name, for seeds."""
    return zlib.crc32(text.encode())
