"""Chapter random: numbers that follow from seed, offset, shape and dtype alone (FL-KERNEL-014)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from torch_fl_conformance.case_drivers import ThreadDriver
from torch_fl_conformance.case_judge import run_alone
from torch_fl_conformance.draw_random import drops
from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.kernel_case import CaseDriver
from torch_fl_conformance.kernel_samples import ClaimedKernel, claimed, drawn, one_row
from torch_fl_conformance.layout_blocks import Layout
from torch_fl_conformance.problem import Problem
from torch_fl_conformance.random_row import judge_statistics
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.rule_cases import judge_case


@rule("FL-KERNEL-014")
def test_random_numbers_are_pure(
    row: Row,
    abi: Abi,
    declarations: dict[str, Any],
    fresh_driver: FreshDriver,
    rng: np.random.Generator,
    effort: Effort,
) -> None:
    """Equal bits on other streams, threads, strides, devices, processes; other bits for another seed or offset."""
    kernels = claimed(declarations, ("random",))
    if not kernels:
        row.not_claimed("the plugin has no random kernel")
    row.require("equal", "thread", "process", "strides", "other seed", "other offset")
    process = fresh_driver()
    process.describe()
    for kernel in kernels:
        for dtypes in kernel.rows if effort.is_full else (one_row(kernel, rng) or kernel.rows[0],):
            problem = drawn(kernel, dtypes, rng, shape="past_power", argument="standard", placement="own")
            if not judge_case(row, abi.driver, kernel, problem, easier=None):
                continue
            words, plan = run_alone(abi.driver, problem, kernel.device)
            for label, driver, device, variant in _elsewhere(abi, process, kernel, declarations, problem):
                row.case(where=label, **variant.describe())
                got, other_plan = run_alone(driver, variant, device)
                for name, first in words.items():
                    _equal(row, kernel, first, got[name], f"gives other bits: {label}")
                row.check(
                    other_plan["rng_increment"] == plan["rng_increment"],
                    f"plan of {kernel.name} gives another rng_increment: {label}",
                    first=plan["rng_increment"],
                    now=other_plan["rng_increment"],
                )
                row.label("equal", label)
            _differs(row, abi, kernel, problem, words, int(plan["rng_increment"]))
            judge_statistics(
                row,
                abi.driver,
                kernel.operator,
                kernel.claim(dtypes),
                device=kernel.device,
                seed=int(rng.integers(2**62)),
                count=effort.pick(2**14, 2**18),
            )


def _elsewhere(
    abi: Abi, process: CaseDriver, kernel: ClaimedKernel, declarations: dict[str, Any], problem: Problem
) -> Iterator[tuple[str, CaseDriver, str, Problem]]:
    """(label, driver, device, problem) of calls that must give the same bits."""
    yield "again", abi.driver, kernel.device, problem
    yield "thread", ThreadDriver(abi.driver, "random"), kernel.device, problem
    yield "process", process, kernel.device, problem
    if "STRIDED" in kernel.entry["layouts"]:
        moved = {out.name: _stepped(problem.layouts[out.name]) for out in problem.structure.outs}
    else:
        moved = {out.name: _moved(problem, out.name) for out in problem.structure.outs}
    yield "strides", abi.driver, kernel.device, replace(problem, layouts={**problem.layouts, **moved})
    for index, entries in enumerate(declarations["kernels"]):
        if kernel.entry in entries and f"d{index}" != kernel.device:
            yield "device", abi.driver, f"d{index}", problem


def _stepped(layout: Layout) -> Layout:
    """A layout with a hole beside every element."""
    return Layout(tuple(2 * stride for stride in layout.strides), 3)


def _moved(problem: Problem, name: str) -> Layout:
    """An output's layout at another offset."""
    layout = problem.layouts[name]
    return replace(layout, lead=layout.lead + max(problem.claim.data_align, 1))


def _differs(
    row: Row, abi: Abi, kernel: ClaimedKernel, problem: Problem, words: Mapping[str, Array], increment: int
) -> None:
    """Each bit of seed and offset counts, and the counters behind the call's own give other numbers.

    Masks of one half agree in half of their elements: what follows from seed and offset is seen all the same.
    """
    random, limit = ("mask", 0.95) if drops(kernel.operator) else ("out", 0.25)
    seed, offset = problem.structure.params["seed"], problem.structure.params["offset"]
    others = {
        "other seed": [(seed ^ 1, offset), (seed ^ 2**32, offset), (seed ^ 2**63, offset)],
        "other offset": [(seed, offset + increment), (seed, (offset + 2**32) % 2**64), (seed, offset ^ 2**63)],
    }
    for label, pairs in others.items():
        for other_seed, other_offset in pairs:
            changed = _with_rng(problem, other_seed, other_offset)
            row.case(what=label, **changed.describe())
            got = run_alone(abi.driver, changed, kernel.device)[0][random]
            equal = float(np.mean(got == words[random]))
            row.check(
                equal < limit,
                f"{kernel.name} gives the same numbers for another seed or offset",
                seeds=[seed, other_seed],
                offsets=[offset, other_offset],
                share_equal=equal,
            )
            row.label(label)


def _with_rng(problem: Problem, seed: int, offset: int) -> Problem:
    structure = problem.structure
    args = tuple({"rng": [seed, offset]} if "rng" in slot else slot for slot in structure.args)
    return replace(
        problem,
        structure=replace(structure, args=args, params={**structure.params, "seed": seed, "offset": offset}),
    )


def _equal(row: Row, kernel: ClaimedKernel, first: Array, got: Array, message: str) -> None:
    wrong = np.flatnonzero(first.reshape(-1) != got.reshape(-1))
    row.check(
        not len(wrong),
        f"{kernel.name} {message}",
        index=wrong[:1],
        first=first.reshape(-1)[wrong[:1]],
        now=got.reshape(-1)[wrong[:1]],
    )
