"""In-place and out= forms of every operator, against the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch_fl import routing

from .check import agree, natively, outcome, steps
from .samples import OPERATORS, is_exact, moved, overload, sample

DEVICE = "fl:2"
pytestmark = pytest.mark.usefixtures("devices")


def _begins_like(form: Any, functional: Any) -> bool:
    pairs = zip(form._schema.arguments, functional._schema.arguments, strict=False)
    return all(mine.name == theirs.name and str(mine.type) == str(theirs.type) for mine, theirs in pairs)


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def forms(name: str) -> tuple[list[Any], list[Any]]:
    """The in-place and the out= overloads that this torch has."""
    functional = overload(name)
    count = len(functional._schema.arguments)
    base = name.removeprefix("aten::").partition(".")[0]
    inplace, out = [], []
    for packet_name in (base, base + "_"):
        packet = getattr(torch.ops.aten, packet_name, None)
        for each in packet.overloads() if packet is not None else []:
            form = getattr(packet, each)
            written = [_writes(argument) for argument in form._schema.arguments]
            if not _begins_like(form, functional) or not any(written):
                continue
            if written == [True] + [False] * (count - 1):
                inplace.append(form)
            elif written == [False] * count + [True] * len(functional._schema.returns):
                out.append(form)
    return inplace, out


INPLACE = [(name, form) for name in OPERATORS for form in forms(name)[0]]
OUT = [
    (name, form)
    for name in OPERATORS
    for form in forms(name)[1]
    if name != "aten::native_batch_norm"  # its out= form has no kernel: torch's layers don't use it
]


def row_of(name: str) -> tuple[str, ...]:
    """A row of one dtype, f32 where there is one."""
    rows = [row for row in OPERATORS[name].rows if len({dtype for dtype in row if dtype not in ("bool", "i32")}) <= 1]
    return next((row for row in rows if row[0] == "f32"), OPERATORS[name].rows[0])


def inplace_sample(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keywords of row_of(name), of which the first tensor can hold the result."""
    arguments, keywords = sample(name, row_of(name))
    if name == "aten::addmm":
        arguments = (torch.ones(4, 3), *arguments[1:])
    return arguments, keywords


def out_sample(name: str, form: Any) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """Arguments and keywords of row_of(name), as the form takes them, and what its outputs get, by their names."""
    arguments, keywords = sample(name, row_of(name))
    results = overload(name)(*arguments, **keywords)
    results = results if isinstance(results, tuple) else (results,)
    taken = {key: value for key, value in keywords.items() if key != "dtype" or "dtype" in str(form._schema)}
    names = [argument.name for argument in form._schema.arguments if _writes(argument)]
    return arguments, taken, dict(zip(names, results, strict=True))


def identifier(part: Any) -> str:
    return str(part)


def test_there_are_forms() -> None:
    assert len(INPLACE) >= 45
    assert len(OUT) >= 69


@pytest.mark.parametrize(("name", "form"), INPLACE, ids=identifier)
def test_inplace(name: str, form: Any) -> None:
    arguments, keywords = inplace_sample(name)
    given = moved(arguments, DEVICE)
    expected = form(*arguments, **keywords)
    before = routing.counters()
    got = natively(lambda: form(*given, **keywords))
    assert got is given[0]
    agree(got, expected, is_exact(OPERATORS[name], row_of(name)), name)
    assert steps(before, routing.counters(), "generic", "cpu", "errors") == 0


@pytest.mark.parametrize(("name", "form"), OUT, ids=identifier)
@pytest.mark.parametrize("kind", ["fitting", "empty", "gaps", "too large"])
def test_out(name: str, form: Any, kind: str) -> None:
    arguments, keywords, results = out_sample(name, form)

    def outs(device: str) -> dict[str, torch.Tensor]:
        made = {}
        for key, result in results.items():
            shape = {"fitting": result.shape, "empty": (0,), "too large": (3, *result.shape), "gaps": result.shape}[
                kind
            ]
            made[key] = torch.zeros(shape, dtype=result.dtype, device=device)
            if kind == "gaps":
                made[key] = torch.zeros((*result.shape, 2), dtype=result.dtype, device=device)[..., 0]
        return made

    expected_outs, given_outs = outs("cpu"), outs(DEVICE)
    addresses = [out.data_ptr() for out in given_outs.values()]
    with warnings.catch_warnings(record=True) as expected_warnings:
        warnings.simplefilter("always")
        expected = outcome(form, *arguments, **keywords, **expected_outs)
    with warnings.catch_warnings(record=True) as got_warnings:
        warnings.simplefilter("always")
        got = natively(lambda: outcome(form, *moved(arguments, DEVICE), **keywords, **given_outs))
    if isinstance(expected, type):
        assert got is expected
        return
    got = got if isinstance(got, tuple) else (got,)
    # The CPU's own kernels do not all write to outputs with gaps.
    expected = tuple(results.values()) if kind == "gaps" else expected if isinstance(expected, tuple) else (expected,)
    for mine, theirs, out, address in zip(got, expected, given_outs.values(), addresses, strict=True):
        assert mine is out
        exact = is_exact(OPERATORS[name], row_of(name))
        agree(mine.contiguous() if kind == "gaps" else mine, theirs, exact, (name, kind))
        if kind in ("fitting", "gaps"):
            assert mine.data_ptr() == address
    assert [str(w.message)[:60] for w in got_warnings] == [str(w.message)[:60] for w in expected_warnings]
