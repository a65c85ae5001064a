"""Complex numbers, of which no operator of the registry has a row: every call steps down, and none fails on its way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .check import agree, outcome
from .samples import moved
from .test_forms import identifier
from .test_numbers import OVERLOADS

DEVICE = "fl:2"
pytestmark = pytest.mark.usefixtures("devices")

KINDS = (torch.complex64, torch.complex128, torch.float32, torch.int64, torch.bool)
NUMBERS = (1j, 0j, 2 + 0j, 1.5)


def compare(function: Any, *arguments: Any, context: object) -> None:
    """What the CPU gives, or an exception of its class."""
    there = moved(arguments, DEVICE)  # first: the function may change its arguments
    expected = outcome(function, *arguments)
    got = outcome(function, *there)
    if isinstance(expected, type) or isinstance(got, type):
        assert got is expected, (context, got, expected)
    else:
        agree(got, expected, context=context)


def values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    numel = torch.Size(sizes).numel()
    real = (torch.arange(numel) % 5 - 1).view(sizes)
    return (real + 0.5j * real.flip(0)).to(dtype) if dtype.is_complex else real.to(dtype)


@pytest.mark.parametrize(("name", "form", "places"), OVERLOADS, ids=identifier)
def test_overloads_that_take_numbers(name: str, form: Any, places: tuple[int, ...]) -> None:
    schema = [argument for argument in form._schema.arguments if not argument.is_out]
    outs = [argument.name for argument in form._schema.arguments if argument.is_out]
    for dtype in KINDS:
        for number in NUMBERS:
            arguments = [
                number if place in places else values(dtype, 2, 3) if str(argument.type) == "Tensor" else None
                for place, argument in enumerate(schema)
            ]
            while arguments and arguments[-1] is None:
                arguments.pop()

            def call(*given: Any) -> Any:
                tensor = next(each for each in given if isinstance(each, torch.Tensor))
                return form(*given, **{out: tensor.new_empty(0) for out in outs})

            compare(call, *arguments, context=(name, form, dtype, number))


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_numbers_beside_tensors(dtype: torch.dtype, number: complex) -> None:
    x = values(dtype, 2, 2)
    for each in (
        lambda t: t + number,
        lambda t: number - t,
        lambda t: t * number,
        lambda t: t / number,
        lambda t: t == number,
        lambda t: t != number,
        lambda t: number**t,
        lambda t: torch.add(t, t, alpha=number),
        lambda t: torch.sub(t, t, alpha=number),
        lambda t: t.clone().add_(t, alpha=number),
        lambda t: torch.addmm(t, t, t, alpha=number),
        lambda t: torch.addmm(t, t, t, beta=number),
        lambda t: t.clone().addmm_(t, t, beta=number, alpha=number),
        lambda t: torch.constant_pad_nd(t, [1, 1], number),
        lambda t: torch.constant_pad_nd(t, [-1, 1], number),
        lambda t: torch.full_like(t, number),
        lambda t: t.clone().fill_(number),
        lambda t: torch.where(t != 1, t, number),
        lambda t: torch.where(t != 1, number, t),
        lambda t: torch.where(t != 1, t, torch.tensor(number)),
        lambda t: torch.where(t != 1, t, torch.tensor(number, dtype=torch.complex128)),
        lambda t: torch.maximum(t, torch.tensor(number)),
        lambda t: t + torch.tensor(number, dtype=torch.complex128),
        lambda t: t.sum(0, dtype=torch.complex64) + number,
        lambda t: t.masked_fill(t != 1, number),
        lambda t: t.index_fill(0, torch.tensor([1], device=t.device), number),
        lambda t: torch.lerp(t, t, number),
        lambda t: torch.addcmul(t, t, t, value=number),
    ):
        compare(each, x, context=(dtype, number))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_tensors_of_every_shape(dtype: torch.dtype) -> None:
    for sizes in ((), (0,), (0, 3), (1,), (3, 4)):
        x = values(dtype, *sizes)
        for function in (torch.add, torch.mul, torch.eq, torch.where):
            arguments = (x == 1, x, x) if function is torch.where else (x, x)
            compare(function, *arguments, context=(function, sizes))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_absolute_values_are_real(dtype: torch.dtype) -> None:
    for sizes in ((), (0,), (1,), (3, 4)):
        x = values(dtype, *sizes)
        for function in (
            torch.abs,
            lambda t: t.t().abs() if t.dim() == 2 else t.conj().abs(),
            lambda t: torch.abs(t, out=torch.empty(0, dtype=t.real.dtype, device=t.device)),
            lambda t: torch.abs(t, out=torch.empty(0, dtype=torch.float16, device=t.device)),
            lambda t: torch.abs(t, out=torch.empty(0, dtype=dtype, device=t.device)),
            lambda t: torch.abs(t, out=torch.empty(0, dtype=torch.int64, device=t.device)),
            lambda t: torch.isclose(t, t),
            lambda t: torch.nn.functional.l1_loss(t, t * 2),
        ):
            compare(function, x, context=(function, sizes))
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        values(dtype, 3, 4).to(DEVICE).abs_()
