"""Type promotion: all pairs of dtypes, numbers, 0-dimensional tensors on either device, against the CPU."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_fl.dtypes import TORCH_DTYPES

from .check import agree, natively, outcome, same
from .numbers import values
from .samples import moved

DEVICE = "fl:2"
NAMES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
DTYPES = [TORCH_DTYPES[name] for name in NAMES]
pytestmark = pytest.mark.usefixtures("devices")

BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "eq": torch.eq,
    "lt": torch.lt,
    "logical_and": torch.logical_and,
    "bitwise_xor": torch.bitwise_xor,
    "where": lambda a, b: torch.where(a > b, a, b),
}


def compare(function: Callable[..., Any], *arguments: Any, exact: bool = False, native: bool = True) -> None:
    """Equal results, by native kernels alone unless there are none, or an exception of the same class."""
    expected = outcome(function, *arguments)
    if expected is NotImplementedError:  # a gap of the CPU's, which a device need not have
        return
    if isinstance(expected, type):
        got = outcome(function, *moved(arguments, DEVICE))
        assert got is expected, (arguments, got)
        return
    got = natively(lambda: function(*moved(arguments, DEVICE))) if native else function(*moved(arguments, DEVICE))
    agree(got, expected, exact, arguments)


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_dtypes(name: str) -> None:
    for left, right in itertools.product(DTYPES, DTYPES):
        a, b = values(left, 4, 5, positive=True), values(right, 4, 5, seed=1, positive=True)
        if name == "pow":
            b = b % 4 if right is not torch.bool else b
        if right is torch.bool and name in ("floor_divide", "remainder", "div"):
            b = torch.ones_like(b)
        compare(BINARY[name], a, b)


@pytest.mark.parametrize("name", BINARY)
def test_scalar_tensors(name: str) -> None:
    for left, right in itertools.product(DTYPES, DTYPES):
        a, b = values(left, 4, positive=True), torch.ones((), dtype=right) * 2
        if right is torch.bool:
            b = torch.tensor(True)
        expected = outcome(BINARY[name], a, b)
        for left_place, right_place in ((DEVICE, "cpu"), (DEVICE, DEVICE)):
            got = outcome(natively, BINARY[name], a.to(left_place), b.to(right_place))
            if isinstance(expected, type):
                assert got is expected, (left, right)
            else:
                agree(got, expected, context=(left, right, right_place))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "maximum"])
def test_scalar_tensor_first(name: str) -> None:
    for left, right in itertools.product((torch.int8, torch.int64, torch.float32, torch.float64), DTYPES[1:]):
        a, b = torch.ones((), dtype=left) * 3, values(right, 4, positive=True)
        expected = BINARY[name](a, b)
        for place in ("cpu", DEVICE):
            got = natively(BINARY[name], a.to(place), b.to(DEVICE))
            agree(got, expected, context=(left, right, place))


NUMBERS = (True, 3, -2, 2.5)
OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_python_numbers(name: str, number: float) -> None:
    for dtype, shape in itertools.product(DTYPES, [(4,), ()]):
        tensor = values(dtype, *shape, positive=True) if dtype is not torch.bool else torch.ones(shape, dtype=dtype)
        if name == "pow" and dtype is torch.bool and number is True:
            continue  # no row
        compare(OPERATORS[name], tensor, number)
        compare(lambda a, b: OPERATORS[name](b, a), tensor, number)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_bits_with_numbers(name: str) -> None:
    for dtype, number in itertools.product(DTYPES, (True, 5, 2.5)):
        compare(getattr(operator, name), values(dtype, 4, positive=True), number)


UNARY = ("exp", "sqrt", "sigmoid", "reciprocal", "sin", "relu", "neg", "abs", "sign", "floor", "isnan", "logical_not")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    for dtype in DTYPES:
        compare(getattr(torch, name), values(dtype, 4, 5, positive=True))


@pytest.mark.parametrize(
    "name", ["cos", "erf", "exp", "log", "reciprocal", "rsqrt", "sigmoid", "sqrt", "tanh", "isnan"]
)
def test_unary_without_elements(name: str) -> None:
    for dtype, sizes in itertools.product(DTYPES, ((0,), (2, 0), (3, 0, 2))):
        compare(getattr(torch, name), torch.empty(sizes, dtype=dtype))


@pytest.mark.parametrize("name", ["div", "eq", "pow", "atan2"])
def test_pairs_without_elements(name: str) -> None:
    for first, second in itertools.product(DTYPES[1:], DTYPES[1:]):
        compare(getattr(torch, name), torch.empty(2, 0, dtype=first), torch.empty(2, 0, dtype=second), native=False)
        compare(getattr(torch, name), torch.empty(2, 0, dtype=first), torch.ones((), dtype=second), native=False)


def test_powers_of_bools() -> None:
    bools = torch.tensor([True, False])
    for exponent in (True, False, bools):
        compare(torch.pow, bools, exponent, native=False)
    compare(lambda t: True**t, bools, native=False)
    compare(torch.pow, bools, 2, native=False)


def test_clamp_with_numbers_of_other_kinds() -> None:
    for dtype, low, high in itertools.product(DTYPES[1:], (None, 2, 1.5), (None, 5, 4.25)):
        compare(torch.clamp, values(dtype, 4, 5, positive=True), low, high)


@pytest.mark.parametrize("name", ["add_", "mul_", "div_", "eq_", "logical_and_", "remainder_"])
def test_inplace_keeps_the_dtype_or_refuses(name: str) -> None:
    for left, right in itertools.product(DTYPES, DTYPES):
        a, b = values(left, 4, positive=True), values(right, 4, seed=1, positive=True)
        if right is torch.bool and name in ("div_", "remainder_"):
            b = torch.ones_like(b)
        compare(lambda x, y: getattr(x.clone(), name)(y), a, b)


@pytest.mark.parametrize("out", DTYPES, ids=NAMES)
def test_out_of_another_dtype(out: torch.dtype) -> None:
    a, b = values(torch.int16, 4, 5, positive=True), values(torch.float32, 4, 5, positive=True)
    for function, arguments in ((torch.add, (a, a)), (torch.add, (a, b)), (torch.eq, (a, b)), (torch.exp, (b,))):
        expected = outcome(function, *arguments, out=torch.empty(4, 5, dtype=out))
        got = outcome(function, *moved(arguments, DEVICE), out=torch.empty(4, 5, dtype=out, device=DEVICE))
        if isinstance(expected, type):
            assert got is expected
        else:
            agree(got, expected, context=(function, out))


@pytest.mark.parametrize("dtype", [None, *DTYPES], ids=str)
def test_reductions_with_a_dtype(dtype: torch.dtype | None) -> None:
    native = dtype is None or dtype is torch.int64 or dtype.is_floating_point  # no row gives others
    for source in DTYPES:
        tensor = values(source, 3, 4, positive=True)
        compare(lambda t: torch.sum(t, 1, dtype=dtype), tensor, native=native)
        compare(lambda t: torch.cumsum(t, 0, dtype=dtype), tensor, native=native)
        compare(lambda t: torch.prod(t, 1, dtype=dtype), tensor, native=native)
        if dtype is None or dtype.is_floating_point:
            compare(lambda t: torch.mean(t, 1, dtype=dtype), tensor)


# ---- Integers stay exact; numbers outside a dtype are what they are on the CPU ---------------------------------------


def test_integers_beyond_doubles() -> None:
    big = 2**53 + 1
    tensor = torch.tensor([0, 1, -1, big])
    for function in (
        lambda t: t + big,
        lambda t: torch.add(t, t, alpha=big),
        lambda t: t == big,
        lambda t: torch.clamp(t, max=big),
        lambda t: torch.full_like(t, big),
        lambda t: t * big,
        lambda t: torch.nn.functional.pad(t, (1, 1), value=big),
        lambda t: t.clone().fill_(big),
    ):
        same(function, tensor, device=DEVICE, exact=True)


def test_numbers_outside_the_dtype() -> None:
    small, byte, real = values(torch.int8, 4), values(torch.uint8, 4), values(torch.float32, 4)
    for function, tensor in (
        (lambda t: t + 300, small),
        (lambda t: t == 300, small),
        (lambda t: t - (-1), byte),
        (lambda t: t > -1, byte),
        (lambda t: torch.add(t, t, alpha=300), small),
        (lambda t: torch.clamp(t, max=300), small),
        (lambda t: t.clone().fill_(300), small),
        (lambda t: t.clone().fill_(2.7), small),
        (lambda t: t + 1e300, real),
        (lambda t: torch.clamp(t, max=1e300), real),
        (lambda t: t.clone().fill_(1e300), real),
        (lambda t: t + float("inf"), real),
        (lambda t: t * float("nan"), real),
        (lambda t: torch.add(t, t, alpha=2.5), small),
        (lambda t: torch.add(t, t, alpha=True), real),
        (lambda t: t**-1, small),
    ):
        compare(function, tensor, exact=True)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_ranges_up_to_the_end_of_the_dtype(dtype: torch.dtype) -> None:
    bounds: list[tuple[float, ...]] = [(5,), (1, 4), (2, -2, -1), (0.5, 3.5)]
    if dtype.is_floating_point:
        bounds += [(0, 1, 0.25)]  # integers: torch's own kernels disagree
    else:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        last = min(most + 1, 2**63 - 1)
        bounds += [(last - 3, last), (least, least + 3), (least + 3, least, -1), (last - 40, last, 20)]
        if dtype.itemsize == 1:
            bounds += [(last,), (least, last), (most, least - 1, -1), (least, last, 200)]
    for each in bounds:
        for function in (
            lambda t, each=each: torch.arange(*each, dtype=dtype, device=t.device),
            lambda t, each=each: torch.arange(*each, out=torch.empty(3, 2, dtype=dtype, device=t.device)[:0]),
        ):
            expected = outcome(function, torch.empty(0))
            got = outcome(function, torch.empty(0, device=DEVICE))
            assert isinstance(got, type) == isinstance(expected, type), (each, got, expected)
            if not isinstance(expected, type):
                agree(got, expected, context=(dtype, each))


def test_a_dtype_that_is_the_tensors_own_is_no_cast() -> None:
    tensor = values(torch.float64, 3, 4)
    for function in (torch.sum, torch.prod, torch.mean, torch.cumsum):
        compare(lambda t, function=function: function(t, 1, dtype=torch.float64), tensor)
