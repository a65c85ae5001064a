"""One drawn call of one operator, before elements: tensors, arguments, and where they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch_fl_spec.registry import Operator

from torch_fl_conformance.budget import Precision
from torch_fl_conformance.dtypes import DTYPES, DType
from torch_fl_conformance.layout_blocks import Layout
from torch_fl_conformance.values import Draw

_LAYOUT_BITS = {"STRIDED": 1, "CONTIGUOUS": 2, "CHANNELS_LAST_2D": 4, "CHANNELS_LAST_3D": 8, "PERMUTED": 16}
UNSERVED = ("out_of_range", "zero_divisor")
"""Argument words of recipes whose data hold values that no kernel can serve (FL-KERNEL-013)."""


@dataclass(frozen=True)
class Claim:
    """What a kernel variant declares for one dtype row (from the driver's `describe`)."""

    op: str
    revision: int
    variant: str
    dtypes: tuple[str, ...]
    layouts: int = _LAYOUT_BITS["STRIDED"]  # FL_LAYOUT_* bits
    max_ndim: int = 8
    data_align: int = 0
    tier: str = "ACCURATE"
    inplace: bool = False
    takes_scalar: bool = False
    deterministic: bool = False
    accumulator: str | None = None
    accumulator_bits: int = 0
    path_length: int = 0
    ftz_in: bool = False
    ftz_out: bool = False
    philox_exact: bool = False

    @property
    def strided(self) -> bool:
        return self.admits("STRIDED")

    def admits(self, layout: str) -> bool:
        """Whether the layout mask has FL_LAYOUT_<layout>."""
        return bool(self.layouts & _LAYOUT_BITS[layout])

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any], dtypes: tuple[str, ...]) -> Claim:
        """The claim of one row of a kernel entry as `describe` gives it; KeyError when the row is not there."""
        rows = {tuple(row["dtypes"]): row for row in entry["rows"]}
        row = rows[dtypes]
        flags, row_flags = entry["flags"], row["flags"]
        return cls(
            op=entry["op"],
            revision=entry["revision"],
            variant=entry["variant"],
            dtypes=dtypes,
            layouts=sum(_LAYOUT_BITS.get(name, 0) for name in entry["layouts"]),
            max_ndim=entry["max_ndim"],
            data_align=entry["data_align"],
            tier=entry["tier"],
            inplace="INPLACE_OK" in flags,
            takes_scalar="TAKES_SCALAR" in flags,
            deterministic="DETERMINISTIC" in flags,
            accumulator=row["accumulator"],
            accumulator_bits=row["accumulator_bits"],
            path_length=row["path_length"],
            ftz_in="FTZ_IN" in row_flags,
            ftz_out="FTZ_OUT" in row_flags,
            philox_exact="PHILOX_EXACT" in row_flags,
        )

    def precision(self, operator: Operator) -> Precision:
        """Accumulator, its bits and summation path, as declared or as the registry's default."""
        accumulator = DTYPES[self.accumulator or operator.compute_dtype(self.dtypes)]
        bits = self.accumulator_bits or accumulator.precision
        if not accumulator.is_float:  # of integer rows, whose budgets are exact
            accumulator = DTYPES["f32"]
            bits = accumulator.precision
        return Precision(accumulator, bits, self.path_length, self.tier == "FAST")


@dataclass(frozen=True)
class Tensor:
    """An input or output: `shape` as the call sees it; `repeat` lists dimensions that arrive with stride 0."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    draw: Draw | None = None  # None for outputs
    repeat: tuple[int, ...] = ()

    @cached_property
    def core(self) -> tuple[int, ...]:
        """The shape that is really stored: repeated dimensions have one element."""
        return tuple(1 if axis in self.repeat else size for axis, size in enumerate(self.shape))


@dataclass(frozen=True)
class Recipe:
    """What a case must show, one value per axis; the rest is drawn. A missing axis is free."""

    shape: str = "any"
    regime: str = "normal"
    layout: str = "contiguous"
    argument: str = "plain"
    placement: str = "pool"

    def text(self) -> str:
        """For messages and seeds."""
        return f"{self.shape}/{self.regime}/{self.layout}/{self.argument}/{self.placement}"


@dataclass(frozen=True)
class Structure:
    """Tensors and arguments of a call: what a class's drawer decides."""

    inputs: tuple[Tensor, ...]
    outs: tuple[Tensor, ...]
    args: tuple[dict[str, Any], ...]  # in slot order, as the driver takes them
    params: Mapping[str, Any] = field(default_factory=dict)  # scalars, lists and strings by slot name
    labels: frozenset[str] = frozenset()

    @property
    def unwanted(self) -> frozenset[str]:
        """Names of the outputs that the call does not ask for: they have the sizes [0]."""
        names = {out.name for out in self.outs if out.shape == (0,)} if "unwanted_output" in self.labels else set()
        return frozenset(names)


@dataclass(frozen=True)
class Problem:
    """A structure with its place in memory and the seed of its elements."""

    operator: Operator
    claim: Claim
    recipe: Recipe
    structure: Structure
    layouts: Mapping[str, Layout]
    alias: str | None  # the input that output 0 is
    value_seed: int

    def describe(self) -> dict[str, Any]:
        """Facts for the report: plain data."""
        tensors = (*self.structure.inputs, *self.structure.outs)
        return {
            "op": self.operator.op,
            "variant": self.claim.variant,
            "dtypes": ",".join(self.claim.dtypes),
            "recipe": self.recipe.text(),
            "shapes": {t.name: list(t.shape) for t in tensors},
            "strides": {t.name: list(self.layouts[t.name].strides) for t in tensors},
            "offsets": {t.name: self.layouts[t.name].lead for t in tensors},
            "arguments": dict(self.structure.params),
            "alias": self.alias,
            "value_seed": self.value_seed,
        }
