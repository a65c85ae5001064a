"""Chapter kernel, what plan and run promise (FL-KERNEL-007 to 009)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch_fl_spec import abi as header

from torch_fl_conformance.case_drivers import GatedDriver, WorkspaceDriver
from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.kernel_samples import ClaimedKernel, claimed, drawn, one_row, per_class, plain
from torch_fl_conformance.layout_blocks import Layout, contiguous_strides
from torch_fl_conformance.leaks import memory_taken
from torch_fl_conformance.ordering import gates_work
from torch_fl_conformance.payload import WORD, Affine
from torch_fl_conformance.problem import Problem, Tensor
from torch_fl_conformance.raw_calls import RawCall, answer
from torch_fl_conformance.row import Row
from torch_fl_conformance.rule import rule
from torch_fl_conformance.rule_cases import judge_case
from torch_fl_conformance.shapes import dense_strides
from torch_fl_conformance.strategies import drawer

THREADS = 8


@rule("FL-KERNEL-007")
def test_plan_is_pure(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """The same answers in any order, from eight threads at once and behind a gate; what plan admits, run takes."""
    kernels = claimed(declarations)
    calls = []
    for kernel in kernels:
        dtypes = one_row(kernel, rng) or kernel.rows[0]
        calls.append(RawCall(abi, kernel, plain(kernel, dtypes)))
    row.require("repeated", "threads")
    first = [answer(call.plan()) for call in calls]
    for place in rng.permutation(len(calls)):
        call = calls[int(place)]
        row.case(kernel=call.kernel.name, what="plan again after plans of all kernels, in another order")
        _same_answer(row, call, first[int(place)], answer(call.plan()), "after plans of other kernels")
    for place, call in enumerate(calls):
        row.case(kernel=call.kernel.name, what="plan again after a plan of a larger call")
        _larger(abi, call, rng).plan()
        _same_answer(row, call, first[place], answer(call.plan()), "after a larger call")
    row.label("repeated")
    _from_threads(row, abi, calls, first, effort.pick(1, 5))
    if gates_work(abi):
        row.require("gated")
        stream = abi.stream()
        gate = abi.gate(stream)
        row.label("gated")
        try:
            _from_threads(row, abi, calls[:: effort.pick(4, 1)], first[:: effort.pick(4, 1)], 1)
        finally:
            gate.open()
        abi.sync(stream)
    row.require("run")
    for kernel in per_class(kernels, rng, effort.pick(4, len(kernels))):
        _run_takes_what_plan_admits(row, abi, kernel, rng)


def _larger(abi: Abi, call: RawCall, rng: np.random.Generator) -> RawCall:
    """A call of the same kernel and row with more elements."""
    shapes = drawer(call.kernel.operator).shapes(call.kernel.operator, call.problem.claim)
    wanted = ("blocks", "long_k", "past_1024", "past_power", "square")
    shape = next((word for word in wanted if word in shapes), shapes[0])
    return RawCall(abi, call.kernel, drawn(call.kernel, call.problem.claim.dtypes, rng, shape=shape))


def _same_answer(row: Row, call: RawCall, expected: Any, got: Any, when: str) -> None:
    row.check(
        got == expected,
        f"plan of {call.kernel.name} gave another answer {when}",
        first=_told(expected),
        now=_told(got),
    )


def _told(given: tuple[int, tuple[int, ...]]) -> str:
    return f"{header.status_name(given[0])} {given[1]}"


def _from_threads(row: Row, abi: Abi, calls: list[RawCall], expected: list[Any], rounds: int) -> None:
    """Each of eight threads plans every call, each beginning with another one."""
    order = [
        [(n + len(calls) * thread // THREADS) % len(calls) for n in range(len(calls))] for thread in range(THREADS)
    ]
    share = max(len(calls) // 4, 1)
    for _ in range(rounds):
        row.case(what=f"plans from {THREADS} threads at once", calls=share)
        for n in range(share):
            for thread in range(THREADS):
                abi.queue(f"planner{thread}", "kernel.plan", *calls[order[thread][n]].plan_arguments())
        for thread in range(THREADS):
            results, pending = abi.join(f"planner{thread}", 10.0)
            row.check(not pending, "plan does not return when called from several threads, or behind a stalled stream")
            for n, result in zip(order[thread][:share], results, strict=True):
                _same_answer(row, calls[n], expected[n], answer(result), "when eight threads plan at once")
    row.label("threads")


def _run_takes_what_plan_admits(row: Row, abi: Abi, kernel: ClaimedKernel, rng: np.random.Generator) -> None:
    """Drawn shapes and layouts; only FL_UNIMPLEMENTED from run, and a plan that changes, count here."""
    dtypes = one_row(kernel, rng) or kernel.rows[0]
    source, claim = drawer(kernel.operator), kernel.claim(dtypes)
    shape, argument = (
        str(rng.choice(words))
        for words in (source.shapes(kernel.operator, claim), source.arguments(kernel.operator, claim))
    )
    layout = str(rng.choice(source.layouts(kernel.operator, claim)))
    if argument.startswith("alias="):
        layout = "contiguous"
    problem = drawn(kernel, dtypes, rng, shape=shape, layout=layout, argument=argument)
    judge_case(row, abi.driver, kernel, problem, easier=problem, labels=("run",))


@rule("FL-KERNEL-008", exclusive=True)
def test_run_enqueues_and_allocates_nothing(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """Runs behind a gate, with exact workspaces full of garbage, and with an eye on the device's free memory."""
    kernels = claimed(declarations)
    row.require("run")
    for kernel in per_class(kernels, rng, effort.pick(2, len(kernels))):
        dtypes = one_row(kernel, rng) or kernel.rows[0]
        problem = drawn(kernel, dtypes, rng, shape="tail")
        if gates_work(abi):
            row.require("gated")
            gated = GatedDriver(abi.driver)
            right = judge_case(row, abi.driver, kernel, problem, easier=problem, hard=gated, labels=("run",))
            row.check(not gated.waited, f"run of {kernel.name} did not return while its stream was stalled")
            row.label(*(["gated"] if right else []))
        else:
            judge_case(row, abi.driver, kernel, problem, easier=problem, labels=("run",))
    for kernel in claimed(declarations, ("contraction", "normalisation", "reduction", "pooling", "index", "loss")):
        _workspace(row, abi, kernel, rng)
    _free_memory(row, abi, kernels, rng, effort)


def _workspace(row: Row, abi: Abi, kernel: ClaimedKernel, rng: np.random.Generator) -> None:
    """Kernels of these classes are asked whether they need workspace; those that do run with garbage in it."""
    for halves in (False, True):
        dtypes = one_row(kernel, rng, among=("f16", "bf16") if halves else ())
        if dtypes is None:
            continue
        problem = drawn(kernel, dtypes, rng, shape="primes")
        planned = RawCall(abi, kernel, problem).plan()
        if planned.ok and planned.value["workspace_bytes"]:
            garbage, clean = WorkspaceDriver(abi.driver), WorkspaceDriver(abi.driver, clean=True)
            judge_case(row, clean, kernel, problem, easier=problem, hard=garbage, labels=("workspace",))


def _free_memory(row: Row, abi: Abi, kernels: list[ClaimedKernel], rng: np.random.Generator, effort: Effort) -> None:
    """Free memory neither falls while runs are pending nor after many of them. The first run may load things."""
    row.require("many runs")
    payload = Affine.of(abi)
    if payload is not None:
        words, count = 256, effort.pick(300, 10_000)
        target, x, b = (abi.alloc("d0", words * WORD) for _ in range(3))
        stream = abi.stream()
        for block in (target, x, b):
            abi.fill(stream, block, 1)
        payload.run(stream, target, x, b, 3, words)
        abi.sync(stream)

        def many_runs() -> int:
            least = []
            for start in range(0, count, 100):
                gate = abi.gate(stream) if gates_work(abi) and start == 0 else None
                for _ in range(100):
                    payload.run(stream, target, x, b, 3, words)
                least.append(abi.mem_info("d0")[0])
                if gate is not None:
                    gate.open()
            abi.sync(stream)
            return min(least)

        row.case(what="free memory over many runs", runs=count)
        taken = memory_taken(abi, "d0", many_runs)
        row.check(not taken, "run takes device memory, while runs are pending or for good", **taken, runs=count)
    for kernel in per_class(kernels, rng, effort.pick(2, len(kernels))):
        row.case(kernel=kernel.name, what="free memory over runs of one kernel")
        _runs_of(row, abi, kernel, rng, effort.pick(20, 200))
    row.label("many runs")


def _runs_of(row: Row, abi: Abi, kernel: ClaimedKernel, rng: np.random.Generator, count: int) -> None:
    raw = RawCall(abi, kernel, plain(kernel, one_row(kernel, rng) or kernel.rows[0]))
    stream = abi.stream(kernel.device)
    abi.fill(stream, raw.scratch(), 0)  # zeros are good numbers and good indices
    if not raw.plan().ok or not raw.run(stream).ok:
        row.note(f"{kernel.name}: a canonical call is refused, which FL-KERNEL-009 judges")
        return
    abi.sync(stream)

    def runs() -> int:
        gate = abi.gate(stream) if gates_work(abi) else None
        for _ in range(count):
            raw.run(stream)
        pending = abi.mem_info(kernel.device)[0]
        if gate is not None:
            gate.open()
        abi.sync(stream)
        return pending

    taken = memory_taken(abi, kernel.device, runs)
    row.check(not taken, f"run of {kernel.name} takes device memory", **taken, runs=count)
    abi.destroy(stream)
    raw.release()


@rule("FL-KERNEL-009")
def test_claims_are_kept_and_nothing_else(
    row: Row, abi: Abi, declarations: dict[str, Any], rng: np.random.Generator, effort: Effort
) -> None:
    """plan admits claimed rows, layouts and ranks of every kernel, and refuses those that are not claimed.

    Quick effort looks at one row of each kernel; its operator rows plan, and run, all of them.
    """
    row.require("claimed row", "max_ndim", "unclaimed dtype", "unclaimed rank")
    for kernel in claimed(declarations):
        drawn_row = one_row(kernel, rng) or kernel.rows[0]
        for dtypes in kernel.rows if effort.is_full else (drawn_row,):
            raw = RawCall(abi, kernel, plain(kernel, dtypes))
            row.case(kernel=kernel.name, dtypes=",".join(dtypes))
            planned = raw.plan()
            row.check(planned.ok, f"{planned} of {kernel.name} for the claimed row {','.join(dtypes)}, expected OK")
            row.label("claimed row")
        _ranks(row, abi, kernel, plain(kernel, drawn_row))
        _unclaimed_dtypes(row, abi, kernel, plain(kernel, drawn_row))


def _ranks(row: Row, abi: Abi, kernel: ClaimedKernel, problem: Problem) -> None:
    """Pointwise kernels, whose every rank is canonical, at 0 to max_ndim dimensions in each layout, and at one more."""
    if kernel.operator.op_class != "pointwise":
        return
    most = kernel.entry["max_ndim"]
    for ndim in sorted({0, 1, most - 1, most, most + 1}):
        shape = (2,) * ndim
        layouts = {"contiguous": contiguous_strides(shape)}
        if ndim > 1 and {"STRIDED", "PERMUTED"} & set(kernel.entry["layouts"]):
            layouts["permuted"] = dense_strides(shape, tuple(reversed(range(ndim))))
        if "STRIDED" in kernel.entry["layouts"]:
            layouts["holes"] = tuple(3 * stride for stride in contiguous_strides(shape))
        for word, strides in layouts.items():
            row.case(kernel=kernel.name, dtypes=",".join(problem.claim.dtypes), ndim=ndim, layout=word)
            planned = RawCall(abi, kernel, _reshaped(problem, shape, Layout(strides))).plan()
            expected = header.FL_OK if ndim <= most else header.FL_UNIMPLEMENTED
            row.check(
                planned.status == expected,
                f"{planned} of {kernel.name} for {ndim} of at most {most} dimensions, {word}, "
                f"expected {header.status_name(expected)}",
            )
            row.label(*(["max_ndim"] if ndim == most else ["unclaimed rank"] if ndim > most else []))
    if not {"STRIDED"} & set(kernel.entry["layouts"]) and most >= 1:
        row.case(kernel=kernel.name, layout="holes, not claimed")
        planned = RawCall(abi, kernel, _reshaped(problem, (5,), Layout((3,)))).plan()
        row.check(
            planned.status == header.FL_UNIMPLEMENTED,
            f"{planned} of {kernel.name} for a stepped tensor, which its layouts leave out, expected UNIMPLEMENTED",
        )


def _reshaped(problem: Problem, shape: tuple[int, ...], layout: Layout) -> Problem:
    """A pointwise problem with another shape and layout throughout."""
    structure = problem.structure

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(tensor, shape=shape, repeat=()) for tensor in tensors)

    layouts = {tensor.name: layout for tensor in (*structure.inputs, *structure.outs)}
    changed = replace(structure, inputs=moved(structure.inputs), outs=moved(structure.outs))
    return replace(problem, structure=changed, layouts=layouts)


_OUTSIDE = {"u16": header.FL_DTYPE_U16, "u32": header.FL_DTYPE_U32, "f8e4m3fn": header.FL_DTYPE_F8E4M3FN, "200": 200}


def _unclaimed_dtypes(row: Row, abi: Abi, kernel: ClaimedKernel, problem: Problem) -> None:
    """The same call in rows that the kernel does not list: dtypes beyond the registry, and the registry's others."""
    operator, claim = kernel.operator, problem.claim
    typed = [slot for slot in operator.slots if slot.kind == "scalar" and slot.type]
    tensors = {slot.name: slot.type for slot in operator.slots if slot.kind in ("tensor", "tensor_list")}
    tensors |= {out.name: out.type for out in operator.outs}
    variable = operator.types[0]
    if variable not in tensors.values():
        return
    known = {tuple(declared["dtypes"]) for declared in kernel.entry["rows"]}
    others = {name: DTYPES[name].number for name in DTYPES if (name, *claim.dtypes[1:]) not in known}
    for name, number in {**_OUTSIDE, **others}.items():
        if typed and not _same_kind(name, claim.dtypes[0]):
            continue  # a number's tag would contradict the dtype as well
        raw = RawCall(abi, kernel, problem)

        def of(tensor: str, raw: RawCall = raw, number: int = number) -> dict[str, Any]:
            exchanged = tensors.get(tensor.partition(".")[0]) == variable
            return raw.tensor(tensor, planned=True, dtype=number if exchanged else None)

        args = raw.arguments(planned=True)
        for place, slot in enumerate(problem.structure.args):
            if "tensor" in slot:
                args[place] = {**args[place], "value": {"tensor": of(slot["tensor"])}}
            elif "tensors" in slot:
                listed = {"array": [of(entry) for entry in slot["tensors"]], "ctype": "const fl_tensor*"}
                args[place] = {**args[place], "value": {"tensors": listed}}
        row.case(kernel=kernel.name, unclaimed=name)
        planned = raw.plan(args, [of(out) for out in raw.outs])
        row.check(
            planned.status == header.FL_UNIMPLEMENTED,
            f"{planned} of {kernel.name} for dtype {name}, which it does not list, expected UNIMPLEMENTED",
        )
        row.label("unclaimed dtype")


def _same_kind(name: str, other: str) -> bool:
    integers = ("u8", "i8", "i16", "i32", "i64", "u16", "u32")
    return (name in integers) == (other in integers) and (name == "bool") == (other == "bool")
