"""Overloads that take a number where the operator takes a tensor: in every form, by the operator's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_fl import routing

from .check import agree, natively, steps
from .samples import OPERATORS, is_exact, moved, overload, sample
from .test_forms import identifier, row_of

DEVICE = "fl:2"
pytestmark = pytest.mark.usefixtures("devices")


def _numbers(form: Any, functional: Any) -> tuple[int, ...]:
    """The places of the arguments that are numbers in this form; none where it is no such overload."""
    arguments, wanted = form._schema.arguments, functional._schema.arguments
    others = [argument for argument in arguments if not argument.is_out]
    if len(others) != len(wanted):
        return ()
    places = []
    for place, (mine, theirs) in enumerate(zip(others, wanted, strict=True)):
        if str(mine.type) == str(theirs.type):
            continue
        if (str(mine.type), str(theirs.type)) not in (("number", "Tensor"), ("Scalar", "Tensor")):
            return ()
        places.append(place)
    is_left = any(str(argument.type) == "Tensor" for argument in others)
    return tuple(places) if is_left else ()


def overloads() -> list[tuple[str, Any, tuple[int, ...]]]:
    """Operator of the registry, overload, places of numbers; for all that this torch has."""
    found = []
    for name in OPERATORS:
        functional = overload(name)
        base = name.removeprefix("aten::").partition(".")[0]
        for packet_name in (base, base + "_"):
            packet = getattr(torch.ops.aten, packet_name, None)
            for each in packet.overloads() if packet is not None else ():
                form = getattr(packet, each)
                places = _numbers(form, functional)
                if places:
                    found.append((name, form, places))
    return found


OVERLOADS = overloads()


def test_there_are_overloads() -> None:
    assert len(OVERLOADS) > 50, len(OVERLOADS)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize(("name", "form", "places"), OVERLOADS, ids=identifier)
def test_overload(name: str, form: Any, places: tuple[int, ...], dtype: str) -> None:
    row = next((row for row in OPERATORS[name].rows if row[0] == dtype), row_of(name))
    arguments, keywords = sample(name, row)
    with_numbers = tuple(
        argument.flatten()[0].item() if place in places else argument for place, argument in enumerate(arguments)
    )
    outs = [argument.name for argument in form._schema.arguments if argument.is_out]
    as_tensors = (torch.tensor(each) if place in places else each for place, each in enumerate(with_numbers))
    dtype_of_out = overload(name)(*as_tensors, **keywords).dtype
    given = moved(with_numbers, DEVICE)
    on_cpu = form(*with_numbers, **keywords, **{out: torch.empty(0, dtype=dtype_of_out) for out in outs})
    before = routing.counters()
    there = {out: torch.empty(0, dtype=dtype_of_out, device=DEVICE) for out in outs}
    got = natively(lambda: form(*given, **keywords, **there))
    agree(got, on_cpu, is_exact(OPERATORS[name], row), (name, form))
    assert steps(before, routing.counters(), "native") > 0
    assert steps(before, routing.counters(), "generic", "cpu", "errors") == 0
