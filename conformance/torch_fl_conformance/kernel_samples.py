"""Calls of the kernels that a plugin claims, for rules that hold for every kernel alike.

`claimed` lists the kernels; `plain` gives each a small canonical call, `drawn` one that shows what a recipe asks for.
Both are the operator rows' own draws, so that rule rows and operator rows mean the same by a canonical call.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_fl_spec.registry import Operator, load_registry

from torch_fl_conformance.draws import Draw
from torch_fl_conformance.kernel_calls import kernel_ref
from torch_fl_conformance.problem import Claim, Problem, Recipe
from torch_fl_conformance.strategies import draw_problem, drawer

Row = tuple[str, ...]
"""One dtype row of a kernel: a dtype per type variable."""


@dataclass(frozen=True)
class ClaimedKernel:
    """A table entry whose operator the registry knows; `rows`: its dtype rows that the registry knows."""

    device: str
    operator: Operator
    entry: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def ref(self) -> str:
        """The driver's name of it."""
        return kernel_ref(self.device, self.operator.op, self.entry["variant"], self.operator.revision)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.operator.op} r{self.operator.revision} {self.entry['variant']} of {self.device}"

    def has(self, flag: str) -> bool:
        """Whether it carries FL_KERNEL_<flag>."""
        return flag in self.entry["flags"]

    def claim(self, row: Row) -> Claim:
        """What it declares for one of its rows."""
        return Claim.of_entry(self.entry, row)


def claimed(declarations: Mapping[str, Any], op_classes: Iterable[str] = ()) -> list[ClaimedKernel]:
    """Kernels of all devices in table order, each (op, revision, variant) on the first device that has it.

    op_classes: only operators of these classes; none given: all.
    """
    registry, wanted = load_registry(), set(op_classes)
    found: dict[tuple[str, int, str], ClaimedKernel] = {}
    for index, entries in enumerate(declarations["kernels"]):
        for entry in entries:
            key = (entry["op"], entry["revision"], entry["variant"])
            operator = registry.get(entry["op"], entry["revision"])
            if operator is None or key in found or (wanted and operator.op_class not in wanted):
                continue
            rows = tuple(tuple(row["dtypes"]) for row in entry["rows"] if tuple(row["dtypes"]) in operator.rows)
            if rows:
                found[key] = ClaimedKernel(f"d{index}", operator, entry, rows)
    return list(found.values())


def one_row(kernel: ClaimedKernel, rng: np.random.Generator, among: Sequence[str] = ()) -> Row | None:
    """One of the kernel's rows at random; `among`: only rows whose first dtype is one of these, None without any."""
    rows = [row for row in kernel.rows if not among or row[0] in among]
    return rows[int(rng.integers(len(rows)))] if rows else None


def per_class(kernels: Iterable[ClaimedKernel], rng: np.random.Generator, count: int) -> list[ClaimedKernel]:
    """At most `count` kernels of each operator class, drawn anew at each call."""
    classes: dict[str, list[ClaimedKernel]] = {}
    for kernel in kernels:
        classes.setdefault(kernel.operator.op_class, []).append(kernel)
    return [
        members[int(place)]
        for members in classes.values()
        for place in rng.permutation(len(members))[: min(count, len(members))]
    ]


def plain(kernel: ClaimedKernel, row: Row) -> Problem:
    """A small contiguous call of the kernel; the same at every call."""
    return _plain(kernel.operator.op, kernel.operator.revision, kernel.claim(row))


@functools.lru_cache(maxsize=4096)
def _plain(op: str, revision: int, claim: Claim) -> Problem:
    operator = load_registry().operators[op, revision]
    return draw_problem(Draw(), operator, claim, recipe(operator, claim))


def recipe(operator: Operator, claim: Claim, **words: str) -> Recipe:
    """A recipe of plain words, apart from the given ones (shape, regime, layout, argument, placement)."""
    regimes = operator.regimes_for(claim.dtypes)
    plain_words = {
        "shape": "tail",
        "regime": "normal" if "normal" in regimes or not regimes else regimes[0],
        "argument": drawer(operator).arguments(operator, claim)[0],
    }
    return Recipe(**{**plain_words, **words})


def drawn(kernel: ClaimedKernel, row: Row, rng: np.random.Generator, **words: str) -> Problem:
    """A call that shows the given words of a recipe, all else drawn."""
    claim = kernel.claim(row)
    wanted = recipe(kernel.operator, claim, **words)
    return draw_problem(Draw(chance=random.Random(int(rng.integers(2**63)))), kernel.operator, claim, wanted)
