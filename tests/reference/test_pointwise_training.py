"""Backward operators, optimiser steps and interpolation of the reference vendor against torch, in every layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from .kernel_runner import KernelError, KernelRunner, Out
from .pointwise_values import FLOATS, INTEGERS, NUMBERS, Function, agree, layouts, number, values

THRESHOLDS = (0.0, 1.0, -2.5, 0.75)  # of which the values hold all but the last
NUMBERS_OF = {"addcmul": (1, 0, -3, 0.625), "addcdiv": (1, 0, -3, 0.625), "lerp.Scalar": (0, 0.25, 0.5, 1, -0.4, 3)}


def drawn(dtype: str, count: int) -> list[tuple[list[torch.Tensor], Out]]:
    """`count` inputs in every layout, and the output."""
    series = [list(layouts(dtype, 1 + 50 * place)) for place in range(count)]
    return [
        ([one[0] for one in group], Out(dtype, tuple(group[0][0].shape), group[0][1]))
        for group in zip(*series, strict=True)
    ]


def near(got: torch.Tensor, exact: torch.Tensor, terms: torch.Tensor) -> None:
    """Within one rounding of the result and two units of the terms it is made from; equal classes."""
    info = torch.finfo(got.dtype)
    bound = info.eps * (exact.abs() + 2 * terms.double().abs()) + info.smallest_normal * info.eps
    rounded = exact.to(got.dtype)
    close = (got.double() - exact).abs() <= bound
    right = close | (got == rounded) | (got.isnan() & exact.isnan())
    assert right.all(), (got[~right][:5], exact[~right][:5])


@pytest.mark.parametrize("dtype", FLOATS)
def test_threshold_backward(kernels: KernelRunner, dtype: str) -> None:
    for (grad, a), out in drawn(dtype, 2):
        for threshold in THRESHOLDS:
            (got,) = kernels.run("threshold_backward", [grad, a, number(dtype, threshold)], [out])
            agree(got, torch.ops.aten.threshold_backward(grad, a, threshold))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_threshold_itself_stops_the_gradient(kernels: KernelRunner, dtype: str) -> None:
    grad, a = values(dtype, 1, (4,)), values(dtype, 2, (4,))
    a[:] = torch.tensor([1.0, 1.5, float("nan"), 0.5], dtype=a.dtype)
    grad[:] = torch.tensor([float("nan"), 2.0, -3.0, float("inf")], dtype=a.dtype)
    (got,) = kernels.run("threshold_backward", [grad, a, number(dtype, 1)], [Out(dtype, (4,))])
    assert got.tolist() == [0.0, 2.0, -3.0, 0.0]


BACKWARD: dict[str, Function] = {
    "sigmoid_backward": torch.ops.aten.sigmoid_backward,
    "tanh_backward": torch.ops.aten.tanh_backward,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", BACKWARD)
def test_backward_of_an_activation(kernels: KernelRunner, op: str, dtype: str) -> None:
    for (grad, y), out in drawn(dtype, 2):
        (got,) = kernels.run(op, [grad, y], [out])
        exact = BACKWARD[op](grad.double(), y.double())
        near(got, exact, grad.double() * (y.double() ** 2 if op == "tanh_backward" else exact))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_addcmul(kernels: KernelRunner, dtype: str) -> None:
    for (base, a, b), out in drawn(dtype, 3):
        for value in NUMBERS_OF["addcmul"][: 3 if dtype in INTEGERS else 4]:
            (got,) = kernels.run("addcmul", [base, a, b, number(dtype, value)], [out])
            if dtype in INTEGERS:
                agree(got, (base.long() + int(value) * a.long() * b.long()).to(base.dtype))
                continue
            product = value * a.double() * b.double()
            near(got, base.double() + product, product)


@pytest.mark.parametrize("dtype", FLOATS)
def test_addcdiv(kernels: KernelRunner, dtype: str) -> None:
    for (base, a, b), out in drawn(dtype, 3):
        for value in NUMBERS_OF["addcdiv"]:
            (got,) = kernels.run("addcdiv", [base, a, b, number(dtype, value)], [out])
            quotient = value * a.double() / b.double()
            near(got, base.double() + quotient, quotient)


def lerped(start: torch.Tensor, end: torch.Tensor, weight: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's own interpolation in double, and the longest way that its two forms go."""
    start, end = start.double(), end.double()
    weight = weight.double() if isinstance(weight, torch.Tensor) else torch.tensor(float(weight), dtype=torch.float64)
    longest = torch.maximum(weight.abs(), 1.5 * (1 - weight).abs())
    return torch.lerp(start, end, weight.expand(start.shape)), longest * (end - start)


@pytest.mark.parametrize("dtype", FLOATS)
def test_lerp_by_a_number(kernels: KernelRunner, dtype: str) -> None:
    for (start, end), out in drawn(dtype, 2):
        for weight in NUMBERS_OF["lerp.Scalar"]:
            (got,) = kernels.run("lerp.Scalar", [start, end, number(dtype, weight)], [out])
            near(got, *lerped(start, end, torch.tensor(weight, dtype=start.dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_lerp_by_a_tensor(kernels: KernelRunner, dtype: str) -> None:
    for (start, end, weight), out in drawn(dtype, 3):
        (got,) = kernels.run("lerp.Tensor", [start, end, weight], [out])
        near(got, *lerped(start, end, weight))


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_lerp_ends_where_it_should(kernels: KernelRunner, weight: float) -> None:
    start, end = torch.tensor([1e8, -3.0, 0.1]), torch.tensor([1.0, 1e-8, 1e9])
    (got,) = kernels.run("lerp.Scalar", [start, end, number("f32", weight)], [Out("f32", (3,))])
    assert torch.equal(got, end if weight else start)


@pytest.mark.parametrize("dtype", FLOATS)
def test_native_dropout_backward(kernels: KernelRunner, dtype: str) -> None:
    for ((grad,), out), (mask, _) in zip(drawn(dtype, 1), layouts("bool", 9), strict=True):
        for scale in (1.0, 0.0, 1 / 0.7):
            (got,) = kernels.run("native_dropout_backward", [grad, mask, {"float": scale}], [out])
            near(got, grad.double() * mask * scale, grad * scale)


@pytest.mark.parametrize(("op", "slots"), [("sigmoid_backward", 2), ("lerp.Tensor", 3), ("addcdiv", 3)])
def test_integers_have_no_row(kernels: KernelRunner, op: str, slots: int) -> None:
    arguments: Sequence[Any] = [values("i32", place, (4,)) for place in range(slots)]
    with pytest.raises(KernelError) as caught:
        kernels.run(op, [*arguments, *([number("i32", 1)] if op == "addcdiv" else [])], [Out("i32", (4,))])
    assert caught.value.step == "plan"
