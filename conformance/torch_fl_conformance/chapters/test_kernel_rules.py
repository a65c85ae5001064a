"""Chapter kernel, the call: slots, tags, tensors, outputs (FL-KERNEL-003 to 006)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from torch_fl_spec import abi as header
from torch_fl_spec.registry import Slot

from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.handles import CallResult, Stream
from torch_fl_conformance.kernel_samples import ClaimedKernel, claimed, drawn, one_row, per_class, plain
from torch_fl_conformance.layout_blocks import PLACEMENTS, Layout
from torch_fl_conformance.problem import Problem, Structure, Tensor
from torch_fl_conformance.raw_calls import RawCall
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.rule_cases import contiguous, judge_case
from torch_fl_conformance.strategies import drawer
from torch_fl_conformance.values import Draw as Values

TAGS = {name.removeprefix("FL_TAG_"): number for name, number in header.CONSTANTS.items() if name.startswith("FL_TAG_")}
UNKNOWN_TAG = 4095


@rule("FL-KERNEL-003")
def test_calls_have_all_slots(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Too few and too many slots or outputs are refused by plan and run of every kernel; a call is only read."""
    row.require("plan", "run")
    kernels = claimed(declarations)
    streams = _streams(abi, kernels)
    for kernel in kernels:
        for dtypes in _rows(kernel, rng, effort):
            row.case(kernel=kernel.name, dtypes=",".join(dtypes))
            raw = _planned(row, abi, kernel, plain(kernel, dtypes))
            if raw is None:
                continue
            stream = streams[kernel.device]
            for what, counts in _wrong_counts(raw):
                _refused(row, raw.plan(counts=counts), f"plan of {kernel.name} with {what}")
                _refused(row, raw.run(stream, counts=counts), f"run of {kernel.name} with {what}")
            row.label("plan", "run")
            again = raw.plan()
            row.check(again.ok, f"{again} of {kernel.name} after refused calls, expected OK")
            row.check(again.intact, f"plan of {kernel.name} has written to the call")
            raw.release()


def _streams(abi: Abi, kernels: list[ClaimedKernel]) -> dict[str, Stream]:
    """One stream for each device that these kernels run on."""
    return {device: abi.stream(device) for device in sorted({kernel.device for kernel in kernels})}


def _rows(kernel: ClaimedKernel, rng: np.random.Generator, effort: Effort) -> tuple[tuple[str, ...], ...]:
    one = one_row(kernel, rng)
    return kernel.rows if effort.is_full or one is None else (one,)


def _planned(row: Row, abi: Abi, kernel: ClaimedKernel, problem: Problem) -> RawCall | None:
    """The problem's call; None, with a note, where plan refuses even that, which FL-KERNEL-009 judges."""
    raw = RawCall(abi, kernel, problem)
    planned = raw.plan()
    if planned.ok:
        return raw
    row.note(f"{kernel.name}: {planned} for a canonical call, which FL-KERNEL-009 judges")
    return None


def _wrong_counts(raw: RawCall) -> Iterator[tuple[str, dict[str, int]]]:
    """Counts that differ from the registry's. The arrays behind them hold what they should, and more than stated."""
    slots, outs = len(raw.problem.structure.args), len(raw.outs)
    yield "no slot", {"n_args": 0}
    if slots > 1:
        yield f"{slots - 1} of {slots} slots", {"n_args": slots - 1}
    yield f"{slots + 1} instead of {slots} slots", {"n_args": slots + 1}
    yield "no output", {"n_outs": 0}
    yield f"{outs + 1} instead of {outs} outputs", {"n_outs": outs + 1}


def _refused(row: Row, result: CallResult, what: str) -> None:
    row.check(
        result.status == header.FL_INVALID_ARGUMENT,
        f"{what} returned {result.status_name}, expected INVALID_ARGUMENT",
        error=result.message,
    )
    row.check(result.intact, f"{what}: the call block, a tensor or a list was written to")


@rule("FL-KERNEL-004")
def test_slots_have_their_tags(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Each wrong tag in each slot of every kernel is refused; numbers are exact; NONE and lists mean what they say."""
    kernels = claimed(declarations)
    row.require("wrong tag", *_labels_possible(kernels))
    streams = _streams(abi, kernels)
    for kernel in kernels:
        for dtypes in _rows(kernel, rng, effort):
            row.case(kernel=kernel.name, dtypes=",".join(dtypes))
            raw = _planned(row, abi, kernel, plain(kernel, dtypes))
            if raw is not None:
                _wrong_tags(row, raw, streams[kernel.device], rng, effort.pick(4, len(TAGS)))
                raw.release()
    for kernel in kernels:
        _arguments_mean_themselves(row, abi, kernel, rng)


def _labels_possible(kernels: list[ClaimedKernel]) -> list[str]:
    """Which of the further labels the claimed kernels can meet at all."""
    optional = any(slot.optional for kernel in kernels for slot in kernel.operator.slots)
    large = any(_large_words(kernel, row) for kernel in kernels for row in kernel.rows if row[0] == "i64")
    return [*(["exact integer"] if large else []), *(["absent"] if optional else [])]


def _large_words(kernel: ClaimedKernel, dtypes: tuple[str, ...]) -> list[str]:
    """Argument words that put a number beyond 2^53 into a slot."""
    words = drawer(kernel.operator).arguments(kernel.operator, kernel.claim(dtypes))
    return [word for word in words if word.endswith("=large")]


def _wrong_tags(row: Row, raw: RawCall, stream: Stream, rng: np.random.Generator, count: int) -> None:
    """Each slot with `count` tags it may not carry, by plan; with one of them by run."""
    for place, slot in enumerate(raw.kernel.operator.slots):
        wrong = _tags_refused_in(raw, slot)
        chosen = [wrong[int(n)] for n in rng.permutation(len(wrong))[:count]]
        for tag in chosen:
            name = next((known for known, number in TAGS.items() if number == tag), str(tag))
            what = f"{raw.kernel.name} with tag {name} in slot {slot.name}"
            _refused(row, raw.plan(_with_tag(raw, place, tag, planned=True)), f"plan of {what}")
            if tag == chosen[0]:
                _refused(row, raw.run(stream, _with_tag(raw, place, tag, planned=False)), f"run of {what}")
            row.label("wrong tag")


def _tags_refused_in(raw: RawCall, slot: Slot) -> list[int]:
    """Tags that the slot may not carry in this row; what a kernel without TAKES_SCALAR says to a number is open."""
    dtype = DTYPES[raw.kernel.operator.dtype_of(slot.type, raw.problem.claim.dtypes)] if slot.type else None
    number = "FLOAT" if dtype is None or dtype.is_float else "BOOL" if dtype.kind == "bool" else "INT"
    by_kind = {"tensor": "TENSOR", "tensor_list": "TENSOR_LIST", "scalar": number}
    permitted = {by_kind.get(slot.kind, slot.kind.upper())}
    if slot.scalar or (slot.kind == "scalar" and number == "INT"):
        permitted |= {number, "UINT"} if number == "INT" else {number}
    if slot.optional:
        permitted.add("NONE")
    return [tag for name, tag in TAGS.items() if name not in permitted] + [UNKNOWN_TAG]


def _with_tag(raw: RawCall, place: int, tag: int, *, planned: bool) -> list[dict[str, Any]]:
    """The problem's arguments with another tag in one slot.

    Where the tag calls for a pointer the value is a good one; else it stays, so that a plugin which doesn't look at
    tags computes the right thing instead of crashing.
    """
    args = raw.arguments(planned=planned)
    tensor = raw.tensor(raw.outs[0], planned=planned)
    ints, floats, bools = ({"array": [1], "ctype": ctype} for ctype in ("int64_t", "double", "uint8_t"))
    values: dict[int, dict[str, Any]] = {
        header.FL_TAG_TENSOR: {"value": {"tensor": tensor}},
        header.FL_TAG_TENSOR_LIST: {"value": {"tensors": {"array": [tensor], "ctype": "const fl_tensor*"}}, "count": 1},
        header.FL_TAG_INT_LIST: {"value": {"ints": ints}, "count": 1},
        header.FL_TAG_FLOAT_LIST: {"value": {"floats": floats}, "count": 1},
        header.FL_TAG_BOOL_LIST: {"value": {"bools": bools}, "count": 1},
        header.FL_TAG_STRING: {"value": {"string": {"string": "trunc"}}, "count": 5},
    }
    args[place] = {**args[place], **values.get(tag, {}), "tag": tag}
    return args


def _arguments_mean_themselves(row: Row, abi: Abi, kernel: ClaimedKernel, rng: np.random.Generator) -> None:
    """Integers beyond 2^53 (i64) arrive exactly; NONE is no zero; lists may have one entry or none."""
    integer, first = one_row(kernel, rng, among=("i64",)), one_row(kernel, rng) or kernel.rows[0]
    slots = kernel.operator.slots
    words = drawer(kernel.operator).arguments(kernel.operator, kernel.claim(first))
    hard: list[tuple[str, str, tuple[str, ...]]] = []
    if integer is not None:
        hard += [(word, "exact integer", integer) for word in _large_words(kernel, integer)]
    absent = {"bounds=max", "bounds=min", "bias", "none", "bias_absent"} & set(words)
    if any(slot.optional for slot in slots):
        hard += [(word, "absent", first) for word in sorted(absent)]
    hard += [(word, "list of one", first) for word in words if word == "single"]
    for word, label, dtypes in hard:
        problem = drawn(kernel, dtypes, rng, argument=word)
        easier = None if label == "list of one" else drawn(kernel, dtypes, rng, argument=_easier(word, words))
        judge_case(row, abi.driver, kernel, problem, easier=easier, labels=(label,))
    if kernel.operator.short_name == "constant_pad_nd":
        judge_case(row, abi.driver, kernel, _padded_number(plain(kernel, first)), easier=None, labels=("empty list",))


def _easier(word: str, words: list[str]) -> str:
    """A word for the same operator without what makes `word` hard."""
    slot = word.partition("=")[0]
    easy = (f"{slot}=one", "bounds=both", "affine", "plain")
    return next((candidate for candidate in easy if candidate in words), words[0])


def _padded_number(problem: Problem) -> Problem:
    """constant_pad_nd of a tensor of no dimension: its list of widths is empty."""
    dtype = problem.structure.inputs[0].dtype
    x = Tensor("self", dtype, (), Values(problem.recipe.regime, elementwise=False))
    args: tuple[dict[str, Any], ...] = ({"tensor": "self"}, {"ints": []}, problem.structure.args[2])
    params = {**problem.structure.params, "pad": ()}
    layouts = {"self": Layout(()), "out": Layout(())}
    return replace(problem, structure=Structure((x,), (Tensor("out", dtype, ()),), args, params), layouts=layouts)


@rule("FL-KERNEL-005")
def test_tensors_are_read_as_they_stand(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Every layout word on kernels of every class, ranks 0 and max_ndim, and tensors without elements or address."""
    kernels = claimed(declarations)
    strided = [kernel for kernel in kernels if "STRIDED" in kernel.entry["layouts"]]
    row.require("no elements", "max_ndim", *(["strided", "stride_zero", "strided_out"] if strided else []))
    row.require(*(["ndim 0"] if _pointwise(kernels, rng, 1) else []))
    words = ("permuted", "holes", "padded_rows", "odd_ones", "stride_zero", "strided_out")
    for word in words:
        for kernel in strided if effort.is_full else per_class(strided, rng, 3 if word == "stride_zero" else 1):
            dtypes = one_row(kernel, rng) or kernel.rows[0]
            if word in drawer(kernel.operator).layouts(kernel.operator, kernel.claim(dtypes)):
                shape = "size_one" if word == "odd_ones" else "square"
                problem = drawn(kernel, dtypes, rng, layout=word, shape=shape, regime=_exact(kernel, dtypes))
                judge_case(row, abi.driver, kernel, problem, easier=contiguous(problem), labels=(word,))
    for shape, label, chosen in (
        ("max_ndim", "max_ndim", kernels if effort.is_full else per_class(kernels, rng, 1)),
        ("scalar_shape", "ndim 0", _pointwise(kernels, rng, effort.pick(4, len(kernels)))),
    ):
        for kernel in chosen:
            dtypes = one_row(kernel, rng) or kernel.rows[0]
            problem = drawn(kernel, dtypes, rng, shape=shape)
            judge_case(row, abi.driver, kernel, problem, easier=plain(kernel, dtypes), labels=(label,))
    for kernel in kernels:
        dtypes = one_row(kernel, rng) or kernel.rows[0]
        problem = drawn(kernel, dtypes, rng, shape="zero_size", placement="page")
        judge_case(row, abi.driver, kernel, problem, easier=plain(kernel, dtypes), labels=("no elements",))


def _exact(kernel: ClaimedKernel, dtypes: tuple[str, ...]) -> str:
    """The regime in which two right answers are equal bit by bit, where the operator has it."""
    regimes = kernel.operator.regimes_for(dtypes)
    return "exact_integer" if "exact_integer" in regimes else regimes[0]


def _pointwise(kernels: list[ClaimedKernel], rng: np.random.Generator, count: int) -> list[ClaimedKernel]:
    return per_class([kernel for kernel in kernels if kernel.operator.op_class == "pointwise"], rng, count)


@rule("FL-KERNEL-006")
def test_outputs_are_written_and_nothing_else(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Outputs with holes, frames and neighbours around them, and exact aliases, in all placements."""
    kernels = claimed(declarations)
    row.require("output written")
    for kernel in kernels:
        problem = plain(kernel, one_row(kernel, rng) or kernel.rows[0])
        judge_case(row, abi.driver, kernel, problem, easier=problem, labels=("output written",))
    count = effort.pick(3, len(kernels))
    for number, kernel in enumerate(per_class(kernels, rng, count)):
        dtypes = one_row(kernel, rng) or kernel.rows[0]
        words = drawer(kernel.operator).layouts(kernel.operator, kernel.claim(dtypes))
        layout = ("holes", "padded_rows", "strided_out")[number % 3]
        placement = PLACEMENTS[number % len(PLACEMENTS)]
        problem = drawn(kernel, dtypes, rng, layout=layout if layout in words else "contiguous", placement=placement)
        easier = contiguous(problem)
        judge_case(row, abi.driver, kernel, problem, easier=easier, labels=("output written", placement))
    aliasing = [kernel for kernel in kernels if kernel.has("INPLACE_OK") and kernel.operator.inplace]
    if aliasing:
        row.require("alias")
    for kernel in per_class(aliasing, rng, effort.pick(8, len(aliasing))):
        dtypes = one_row(kernel, rng) or kernel.rows[0]
        for slot in kernel.operator.inplace:
            problem = drawn(kernel, dtypes, rng, argument=f"alias={slot}", shape="past_power")
            if problem.alias:
                judge_case(row, abi.driver, kernel, problem, easier=contiguous(problem), labels=("alias",))
