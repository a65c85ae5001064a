"""Chapter kernel, the numbers: tiers and determinism, values that no kernel can serve (FL-KERNEL-010 and 013)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch_fl_spec import abi as header
from torch_fl_spec.vocabulary import FLOATS

from torch_fl_conformance.case_judge import CaseFailed, run_alone, run_twice
from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.kernel_row import check_declaration
from torch_fl_conformance.kernel_samples import ClaimedKernel, claimed, drawn, one_row, per_class, plain
from torch_fl_conformance.problem import Problem
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.rule_cases import judge_case
from torch_fl_conformance.strategies import drawer

SEPARATING = ("wide", "cancel", "offset", "big_logits", "tiny", "special", "normal")
"""Regimes whose data tell accurate arithmetic from shortened, the sharpest first."""
STORM = 4000  # operations of another stream that run beside a kernel


@rule("FL-KERNEL-010")
def test_tiers_are_kept(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Declarations that a tier permits, budgets on data that separate tiers, DETERMINISTIC under load."""
    kernels = claimed(declarations)
    row.require("declaration", *(["separating data"] if any(one_row(k, rng, among=FLOATS) for k in kernels) else []))
    row.require(*(["subnormal"] if _subnormal_kernels(kernels, rng, effort) else []))
    for kernel in kernels:
        for dtypes in kernel.rows:
            row.case(kernel=kernel.name, dtypes=",".join(dtypes))
            check_declaration(row, kernel.operator, kernel.claim(dtypes))
            row.label("declaration")
    for kernel in per_class(kernels, rng, effort.pick(4, len(kernels))):
        floating = one_row(kernel, rng, among=FLOATS)
        if floating is not None:
            _separates(row, abi, kernel, floating, rng)
    for kernel in _subnormal_kernels(kernels, rng, effort):
        problem = drawn(kernel, one_row(kernel, rng, among=("f32",)) or kernel.rows[0], rng, regime="special")
        judge_case(row, abi.driver, kernel, problem, easier=None)
    same = [kernel for kernel in kernels if kernel.has("DETERMINISTIC") and one_row(kernel, rng, among=FLOATS)]
    if same:
        row.require("deterministic under load")
    adding = _that_add(same)
    for kernel in adding:
        _repeats(row, abi, kernel, rng, effort.pick(4, 40))
    for kernel in per_class(adding, rng, effort.pick(1, len(adding))):
        _repeats(row, abi, kernel, rng, effort.pick(20, 100))


def _separates(row: Row, abi: Abi, kernel: ClaimedKernel, dtypes: tuple[str, ...], rng: np.random.Generator) -> None:
    """The two sharpest regimes of the operator, in the shape that lets errors grow."""
    regimes = [name for name in SEPARATING if name in kernel.operator.regimes_for(dtypes)][:2]
    for regime in regimes:
        problem = drawn(kernel, dtypes, rng, regime=regime, shape=_longest(kernel, dtypes, regime))
        judge_case(row, abi.driver, kernel, problem, easier=None, labels=("separating data",), again="other")


def _longest(kernel: ClaimedKernel, dtypes: tuple[str, ...], regime: str) -> str:
    """A shape word under which many terms meet; few for `wide`, whose power long sums would drown."""
    words = drawer(kernel.operator).shapes(kernel.operator, kernel.claim(dtypes))
    wanted = ("tail",) if regime in ("wide", "special") else ("past_4096", "long_k", "past_power", "tail")
    return next((word for word in wanted if word in words), words[0])


def _subnormal_kernels(kernels: list[ClaimedKernel], rng: np.random.Generator, effort: Effort) -> list[ClaimedKernel]:
    """Pointwise kernels whose special values include subnormals: those that flush them must have said so."""
    chosen = [
        kernel
        for kernel in kernels
        if kernel.operator.op_class == "pointwise"
        and any(row[0] == "f32" and "special" in kernel.operator.regimes_for(row) for row in kernel.rows)
    ]
    return per_class(chosen, rng, effort.pick(4, len(chosen)))


def _that_add(kernels: list[ClaimedKernel]) -> list[ClaimedKernel]:
    """Kernels in which an order of additions, or of writes, could differ from run to run."""
    adding = ("reduction", "contraction", "normalisation", "pooling", "index", "loss")
    names = ("index_select", "gather", "embedding", "argmax", "amax", "amin", "any.dim", "max_pool2d_with_indices")
    return [
        kernel for kernel in kernels if kernel.operator.op_class in adding and kernel.operator.short_name not in names
    ]


def _repeats(row: Row, abi: Abi, kernel: ClaimedKernel, rng: np.random.Generator, runs: int) -> None:
    """Many runs on equal data while other streams of the device are busy give equal bits."""
    dtypes = one_row(kernel, rng, among=("f32",)) or one_row(kernel, rng, among=FLOATS) or kernel.rows[0]
    regimes = kernel.operator.regimes_for(dtypes)
    regime = next(name for name in (*SEPARATING, regimes[0]) if name in regimes)
    shape = _longest(kernel, dtypes, "normal")
    problem = drawn(kernel, dtypes, rng, regime=regime, shape=shape, argument=_duplicating(kernel, dtypes))
    row.case(device=kernel.device, **problem.describe(), runs=runs)
    loads = [_Load(abi, kernel.device, f"load{number}") for number in range(2)]
    words: list[dict[str, Array]] = []
    while len(words) < runs:
        for load in loads:
            load.keep_up()
        words += run_twice(abi.driver, problem, kernel.device)[0]
    for load in loads:
        load.end(row)
    row.label("deterministic under load")
    for run, outputs in enumerate(words):
        for name, bits in outputs.items():
            wrong = np.flatnonzero(bits != words[0][name])
            row.check(
                not len(wrong),
                f"{kernel.name} declares DETERMINISTIC, but {name} differs between two runs on equal data",
                run=run,
                index=wrong[:1],
                first=words[0][name].reshape(-1)[wrong[:1]],
                now=bits.reshape(-1)[wrong[:1]],
            )


def _duplicating(kernel: ClaimedKernel, dtypes: tuple[str, ...]) -> str:
    """The argument word under which indices occur more than once, or windows share, where the operator has one."""
    words = drawer(kernel.operator).arguments(kernel.operator, kernel.claim(dtypes))
    return next((word for word in ("inner_equal", "equal", "shared") if word in words), words[0])


class _Load:
    """Fills and host tasks that a driver thread submits to a stream of its own."""

    def __init__(self, abi: Abi, device: str, thread: str) -> None:
        self.abi, self.thread = abi, thread
        self.stream, self.block = abi.stream(device), abi.alloc(device, 4096)
        self.record = ""  # of the last storm's host tasks

    def keep_up(self) -> None:
        """Begin, or begin anew where the last storm is through; returns at once.

        Only where the device, too, is through with it: it would fall behind a slow one for good.
        """
        if self.abi.driver.execute({"do": "join", "thread": self.thread, "timeout": 0.0})["pending"]:
            return
        if self.abi.query(self.stream) == header.FL_NOT_READY:
            return
        self.record = self.abi.driver.name("load")
        command = {"do": "loop", "name": "submit_storm", "stream": self.stream.ref, "record": self.record, "threads": 2}
        self.abi.driver.execute({**command, "count": STORM, "base": self.block.ref, "thread": self.thread})

    def end(self, row: Row) -> None:
        """Wait for all of it."""
        answer = self.abi.driver.execute({"do": "join", "thread": self.thread, "timeout": 20.0}, timeout=20.0)
        row.check(not answer["pending"], "submits to one stream did not end while kernels ran in another")
        self.abi.sync_storm(self.stream, self.record)
        self.abi.destroy(self.stream)
        self.abi.free(self.block)


@rule("FL-KERNEL-013")
def test_no_value_leads_outside(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Indices out of range up to the type's extremes, and integer divisors of zero, among sentinels."""
    kernels = claimed(declarations)
    indexing = [kernel for kernel in kernels if _has_word(kernel, kernel.rows[0], "out_of_range")]
    if indexing:
        row.require("index out of range")
    for kernel in indexing:
        for dtypes in _index_rows(kernel, rng, effort):
            # Whether one index too far leaves the tensor depends on where in it the index stands: several draws.
            for placement in ("own", "page", "end") * effort.pick(6, 12):
                hard = drawn(kernel, dtypes, rng, argument="out_of_range", placement=placement, shape="tail")
                easier = replace(hard, recipe=replace(hard.recipe, argument="inner"))
                judge_case(row, abi.driver, kernel, hard, easier=easier, labels=("index out of range",))
    dividing = [(kernel, row) for kernel in kernels for row in kernel.rows if _has_word(kernel, row, "zero_divisor")]
    if dividing:
        row.require("integer division by zero")
    for kernel, dtypes in dividing:
        hard = drawn(kernel, dtypes, rng, argument="zero_divisor", regime="full_range")
        easier = replace(hard, recipe=replace(hard.recipe, argument="plain"))
        judge_case(row, abi.driver, kernel, hard, easier=easier, labels=("integer division by zero",))
        if kernel.has("TAKES_SCALAR"):
            _divided_by_number(row, abi, kernel, plain(kernel, dtypes))


def _has_word(kernel: ClaimedKernel, dtypes: tuple[str, ...], word: str) -> bool:
    return word in drawer(kernel.operator).arguments(kernel.operator, kernel.claim(dtypes))


def _index_rows(kernel: ClaimedKernel, rng: np.random.Generator, effort: Effort) -> list[tuple[str, ...]]:
    """A row for each type of index."""
    if effort.is_full:
        return list(kernel.rows)
    kinds = {row[1:]: row for row in (kernel.rows[int(n)] for n in rng.permutation(len(kernel.rows)))}
    return list(kinds.values())


def _divided_by_number(row: Row, abi: Abi, kernel: ClaimedKernel, problem: Problem) -> None:
    """The divisor is the number 0: a plugin may refuse it, fail the stream or write anything, but not crash."""
    structure = problem.structure
    args = tuple({"int": 0} if slot == {"tensor": "other"} else slot for slot in structure.args)
    inputs = tuple(tensor for tensor in structure.inputs if tensor.name != "other")
    params = {**structure.params, "other": 0}
    changed = replace(problem, structure=replace(structure, args=args, inputs=inputs, params=params))
    row.case(device=kernel.device, **changed.describe())
    try:
        run_alone(abi.driver, changed, kernel.device)
    except CaseFailed as refusal:
        if refusal.violates[0] != "FL-KERNEL-009":  # a stray write is no refusal
            row.fail(refusal.message)
        row.note(f"{kernel.name} by the number 0: {refusal.message}")
    row.label("number 0")
