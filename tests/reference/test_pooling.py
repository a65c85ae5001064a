"""Pooling of the reference library, forward and backward, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .kernel_runner import DTYPES, NAMES, KernelError, KernelRunner, Out, spread_strides
from .tensors import FLOATS, LAYOUTS, accumulator, assert_within, draw

# sizes, kernel_size, stride, padding, dilation, ceil_mode; what is left out is as in torch
WINDOWS: list[dict[str, Any]] = [
    {"x": (2, 3, 8, 12), "kernel_size": (2, 2)},
    {"x": (3, 28, 28), "kernel_size": (2, 2)},
    {"x": (0, 3, 8, 8), "kernel_size": (2, 2)},
    {"x": (1, 1, 1, 1), "kernel_size": (1, 1)},
    {"x": (2, 2, 9, 300), "kernel_size": (3, 2), "stride": (2, 1)},
    {"x": (2, 5, 17, 13), "kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)},
    {"x": (1, 4, 11, 7), "kernel_size": (5, 2), "stride": (1, 3), "padding": (2, 0)},
    {"x": (2, 3, 10, 9), "kernel_size": (3, 2), "stride": (2, 3), "ceil_mode": True},
    {"x": (1, 2, 6, 9), "kernel_size": (3, 4), "stride": (2, 2), "padding": (1, 2), "ceil_mode": True},
    {"x": (2, 3, 14, 16), "kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0), "dilation": (3, 2)},
    {"x": (4, 5, 6), "kernel_size": (1, 2), "stride": (3, 4)},
]
_NUMBERS = range(len(WINDOWS))


def _parameters(case: dict[str, Any], *names: str) -> list[list[int]]:
    """The lists of a case by name, in full length."""
    whole = {"stride": case["kernel_size"], "padding": (0, 0), "dilation": (1, 1), **case}
    return [list(whole[name]) for name in names]


def _slots(lists: list[list[int]]) -> list[dict[str, Any]]:
    return [{"ints": values} for values in lists]


_MAX = ("kernel_size", "stride", "padding", "dilation")


def _max_pool(kernels: KernelRunner, x: torch.Tensor, case: dict[str, Any], seed: int) -> list[torch.Tensor]:
    """(kernel's values, kernel's indices, torch's values, torch's indices)."""
    lists = _parameters(case, *_MAX)
    values, indices = torch.ops.aten.max_pool2d_with_indices(x, *lists, case.get("ceil_mode", False))
    shape = tuple(values.shape)
    strides = spread_strides(shape) if seed % 2 else None
    outs = [Out(NAMES[x.dtype], shape, strides), Out("i64", shape, spread_strides(shape) if seed % 3 else None)]
    return [*kernels.run("max_pool2d_with_indices", [x, *_slots(lists)], outs), values, indices]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", _NUMBERS)
def test_max_pool(kernels: KernelRunner, number: int, dtype: str) -> None:
    for seed, layout in enumerate(LAYOUTS[:3]):
        case = WINDOWS[number]
        x = draw(dtype, case["x"], layout, seed)
        got, indices, expected, places = _max_pool(kernels, x, case, seed + number)
        assert torch.equal(got, expected)
        assert torch.equal(indices, places)


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool_hands_nan_and_infinities_on(kernels: KernelRunner, dtype: str) -> None:
    for seed, case in enumerate(WINDOWS[4:]):
        x = draw(dtype, case["x"], "contiguous", seed)
        x.view(-1)[::7] = float("nan")
        x.view(-1)[1 : x.numel() // 2] = float("-inf")
        got, indices, expected, _ = _max_pool(kernels, x, case, seed)
        assert torch.equal(got.nan_to_num(nan=77.0), expected.nan_to_num(nan=77.0))
        named = x.flatten(-2).gather(-1, indices.flatten(-2)).view(got.shape)
        assert torch.equal(named.nan_to_num(nan=77.0), expected.nan_to_num(nan=77.0))


def test_max_pool_names_the_first_of_equals(kernels: KernelRunner) -> None:
    for seed, case in enumerate(WINDOWS):
        x = draw("f32", case["x"], "contiguous", seed).sign()
        got, indices, expected, places = _max_pool(kernels, x, case, seed)
        assert torch.equal(got, expected)
        assert torch.equal(indices, places)


def test_max_pool_of_a_window_without_elements_names_none(kernels: KernelRunner) -> None:
    """Taps at -1 and 2 of two columns: torch has an index out of range there."""
    slots = _slots([[1, 2], [1, 1], [0, 1], [1, 3]])
    outs = [Out("f32", (1, 1, 1)), Out("i64", (1, 1, 1))]
    got, indices = kernels.run("max_pool2d_with_indices", [torch.ones(1, 1, 2), *slots], outs)
    assert got.item() == float("-inf")
    assert indices.item() == -1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", _NUMBERS)
def test_max_pool_backward(kernels: KernelRunner, number: int, dtype: str) -> None:
    case = WINDOWS[number]
    lists = _parameters(case, *_MAX)
    for seed, layout in enumerate(LAYOUTS[:3]):
        x = draw(dtype, case["x"], layout, seed)
        ceil_mode = case.get("ceil_mode", False)
        values, indices = torch.ops.aten.max_pool2d_with_indices(x, *lists, ceil_mode)
        gradient = draw(dtype, values.shape, layout, seed + 30)
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        exact = backward(gradient.double(), x.double(), *lists, ceil_mode, indices)
        size = backward(gradient.double().abs(), x.double(), *lists, ceil_mode, indices)
        strides = spread_strides(case["x"]) if (seed + number) % 2 else None
        args = [gradient, x, *_slots(lists), indices]
        got = kernels.run("max_pool2d_with_indices_backward", args, [Out(dtype, case["x"], strides)])[0]
        # as many gradients meet as there are elements in a window, at most
        assert_within(got, exact, accumulator(dtype) * lists[0][0] * lists[0][1] * size, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_gradients_are_summed_in_f32(kernels: KernelRunner, dtype: str) -> None:
    """One element is the largest of 2100 windows: halves would stop at 2048 or 256."""
    x = torch.zeros(1, 1, 2100, dtype=DTYPES[dtype])
    places = torch.full((1, 1, 1100), 1000)
    gradient = torch.ones(places.shape, dtype=DTYPES[dtype])
    slots = _slots([[1, 1001], [1, 1], [0, 0], [1, 1]])
    args = [gradient, x, *slots, places]
    got = kernels.run("max_pool2d_with_indices_backward", args, [Out(dtype, (1, 1, 2100))])[0]
    assert got.sum().item() == got[0, 0, 1000].item() == torch.tensor(1100.0).to(DTYPES[dtype]).item()


def test_indices_out_of_the_plane_add_nothing(kernels: KernelRunner) -> None:
    x = torch.zeros(1, 1, 4, 4)
    indices = torch.tensor([[[[5, -1], [16, 2**62]]]])
    args = [torch.ones(1, 1, 2, 2), x, *_slots([[2, 2], [2, 2], [0, 0], [1, 1]]), indices]
    got = kernels.run("max_pool2d_with_indices_backward", args, [Out("f32", (1, 1, 4, 4))])[0]
    assert got.flatten().nonzero().flatten().tolist() == [5]


# What is divided by besides: count_include_pad, divisor_override.
_DIVIDED = [(True, None), (False, None), (True, 5), (False, -3)]
_AVERAGE = ("kernel_size", "stride", "padding")
_NOT_DILATED = [number for number in _NUMBERS if "dilation" not in WINDOWS[number]]


def _averages(case: dict[str, Any], counted: bool, divisor: int | None) -> tuple[list[Any], list[Any]]:
    """The arguments of avg_pool2d behind its tensors, for torch and as slots."""
    lists = _parameters(case, *_AVERAGE)
    slots = [*_slots(lists), {"bool": counted}, None if divisor is None else {"int": divisor}]
    return [*lists, case.get("ceil_mode", False), counted, divisor], slots


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", _NOT_DILATED)
def test_average_pool(kernels: KernelRunner, number: int, dtype: str) -> None:
    case = WINDOWS[number]
    for seed, (counted, divisor) in enumerate(_DIVIDED):
        x = draw(dtype, case["x"], LAYOUTS[seed % 3], seed)
        plain, slots = _averages(case, counted, divisor)
        exact = torch.ops.aten.avg_pool2d(x.double(), *plain)
        size = torch.ops.aten.avg_pool2d(x.double().abs(), *plain).abs()
        shape = tuple(exact.shape)
        out = Out(dtype, shape, spread_strides(shape) if (seed + number) % 2 else None)
        got = kernels.run("avg_pool2d", [x, *slots], [out])[0]
        assert_within(got, exact, accumulator(dtype) * (plain[0][0] * plain[0][1] + 1) * size, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", _NOT_DILATED)
def test_average_pool_backward(kernels: KernelRunner, number: int, dtype: str) -> None:
    case = WINDOWS[number]
    backward = torch.ops.aten.avg_pool2d_backward
    for seed, (counted, divisor) in enumerate(_DIVIDED):
        x = draw(dtype, case["x"], LAYOUTS[seed % 3], seed)
        plain, slots = _averages(case, counted, divisor)
        gradient = draw(dtype, torch.ops.aten.avg_pool2d(x, *plain).shape, LAYOUTS[seed % 3], seed + 30)
        exact = backward(gradient.double(), x.double(), *plain)
        size = backward(gradient.double().abs(), x.double(), *plain).abs()
        out = Out(dtype, case["x"], spread_strides(case["x"]) if (seed + number) % 2 else None)
        got = kernels.run("avg_pool2d_backward", [gradient, x, *slots], [out])[0]
        assert_within(got, exact, accumulator(dtype) * (plain[0][0] * plain[0][1] + 2) * size, dtype)


# sizes of the input and of a plane of outputs
_ADAPTIVE: list[tuple[tuple[int, ...], tuple[int, int]]] = [
    ((2, 3, 8, 12), (4, 3)),
    ((3, 7, 11), (3, 5)),
    ((2, 5, 7, 7), (1, 1)),
    ((1, 2, 3, 4), (7, 9)),
    ((0, 3, 8, 8), (2, 3)),
    ((2, 1, 5, 300), (5, 7)),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("sizes", "outputs"), _ADAPTIVE)
def test_adaptive_average_pool(
    kernels: KernelRunner, sizes: tuple[int, ...], outputs: tuple[int, int], dtype: str
) -> None:
    shape = (*sizes[:-2], *outputs)
    terms = sizes[-2] * sizes[-1]
    for seed, layout in enumerate(LAYOUTS[:3]):
        x = draw(dtype, sizes, layout, seed)
        exact = torch.ops.aten._adaptive_avg_pool2d(x.double(), outputs)
        size = torch.ops.aten._adaptive_avg_pool2d(x.double().abs(), outputs)
        out = Out(dtype, shape, spread_strides(shape) if seed == 1 else None)
        got = kernels.run("_adaptive_avg_pool2d", [x], [out])[0]
        assert_within(got, exact, accumulator(dtype) * (terms + 1) * size, dtype)
        gradient = draw(dtype, shape, layout, seed + 30)
        exact = torch.ops.aten._adaptive_avg_pool2d_backward(gradient.double(), x.double())
        size = torch.ops.aten._adaptive_avg_pool2d_backward(gradient.double().abs(), x.double())
        out = Out(dtype, sizes, spread_strides(sizes) if seed == 2 else None)
        got = kernels.run("_adaptive_avg_pool2d_backward", [gradient, x], [out])[0]
        # one element is in every window where there are more outputs than places, at most
        assert_within(got, exact, accumulator(dtype) * (outputs[0] * outputs[1] + 2) * size, dtype)


def test_half_averages_are_summed_in_f32(kernels: KernelRunner) -> None:
    x = torch.full((1, 70, 70), 2.0, dtype=torch.float16)  # 9800: halves would stop at 4096
    assert kernels.run("_adaptive_avg_pool2d", [x], [Out("f16", (1, 1, 1))])[0].item() == 2


def test_averages_of_infinities_and_nan_are_those_of_torch(kernels: KernelRunner) -> None:
    case = WINDOWS[5]
    x = draw("f32", case["x"], "contiguous", 1)
    x.view(-1)[::9] = float("inf")
    x.view(-1)[5::31] = float("-inf")
    x.view(-1)[7::43] = float("nan")
    plain, slots = _averages(case, False, None)
    exact = torch.ops.aten.avg_pool2d(x, *plain)
    got = kernels.run("avg_pool2d", [x, *slots], [Out("f32", tuple(exact.shape))])[0]
    torch.testing.assert_close(got, exact, equal_nan=True)


def test_wrong_averages_are_refused(kernels: KernelRunner) -> None:
    x, slots = torch.ones(1, 4, 4), _slots([[2, 2], [2, 2], [0, 0]])
    wrong: list[tuple[str, list[Any], tuple[int, ...]]] = [
        ("avg_pool2d", [x, *slots, {"bool": True}, {"int": 0}], (1, 2, 2)),
        ("avg_pool2d", [x, *slots, {"bool": True}, None], (1, 3, 2)),
        ("avg_pool2d", [x, *slots, {"int": 1}, None], (1, 2, 2)),
        ("_adaptive_avg_pool2d", [x], (2, 2, 2)),
        ("_adaptive_avg_pool2d", [x], (1, 0, 2)),
        ("_adaptive_avg_pool2d_backward", [torch.ones(1, 2, 2), x], (1, 4, 5)),
    ]
    for op, args, shape in wrong:
        with pytest.raises(KernelError) as refused:
            kernels.run(op, args, [Out("f32", shape)])
        assert (refused.value.step, refused.value.status) == ("plan", 2)


_WRONG: list[tuple[tuple[int, ...], list[list[int]], tuple[int, ...], int]] = [
    ((1, 4, 4), [[2, 2], [2, 2], [0, 0], [1, 1]], (1, 2, 3), 2),
    ((1, 4, 4), [[2, 2], [2, 2], [0, 0], [1, 1]], (2, 2, 2), 2),
    ((1, 4, 4), [[2, 2], [2, 2], [0, 0], [1, 1]], (1, 1, 2, 2), 2),
    ((4, 4), [[2, 2], [2, 2], [0, 0], [1, 1]], (2, 2), 2),
    ((1, 4, 4), [[2], [2, 2], [0, 0], [1, 1]], (1, 2, 2), 2),
    ((1, 4, 4), [[2, 2], [0, 2], [0, 0], [1, 1]], (1, 2, 2), 2),
    ((1, 4, 4), [[2, 2], [2, 2], [2, 0], [1, 1]], (1, 4, 2), 2),
    ((1, 4, 4), [[2, 2], [2, 2], [0, -1], [1, 1]], (1, 2, 1), 2),
    ((1, 4, 4), [[2, 2], [2, 2], [0, 0], [1, 0]], (1, 2, 2), 2),
    ((1, 4, 0), [[2, 2], [2, 2], [0, 0], [1, 1]], (1, 2, 0), 2),
    ((1, 4, 4), [[2, 2], [2, 2**40], [0, 0], [1, 1]], (1, 2, 1), 7),
]


@pytest.mark.parametrize(("sizes", "lists", "shape", "status"), _WRONG)
def test_wrong_windows_are_refused(
    kernels: KernelRunner, sizes: tuple[int, ...], lists: list[list[int]], shape: tuple[int, ...], status: int
) -> None:
    args = [torch.ones(sizes), *_slots(lists)]
    with pytest.raises(KernelError) as refused:
        kernels.run("max_pool2d_with_indices", args, [Out("f32", shape), Out("i64", shape)])
    assert (refused.value.step, refused.value.status) == ("plan", status)
