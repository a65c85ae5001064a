"""What an fl device gives against what the CPU gives."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_fl import routing

from .samples import moved

#: How far results may lie apart that the registry doesn't want exact: roundings of one dtype, in another order.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 4e-6, torch.float64: 1e-14}


def agree(got: Any, expected: Any, exact: bool = False, context: object = "") -> None:
    """Equal dtype, sizes, strides and values; NaN equals NaN. Tuples one by one."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected), context
        for mine, theirs in zip(got, expected, strict=True):
            agree(mine, theirs, exact, context)
        return
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype, context)
    assert got.shape == expected.shape, (got.shape, expected.shape, context)
    assert got.stride() == expected.stride(), (got.stride(), expected.stride(), context)
    tolerance = 0.0 if exact else TOLERANCE.get(expected.dtype, 0.0)
    torch.testing.assert_close(
        got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text: f"{context}: {text}"
    )


def steps(before: dict[str, Any], after: dict[str, Any], *names: str) -> int:
    """How often any operator took one of the named ways in between."""

    def total(counters: dict[str, Any]) -> int:
        return sum(values.get(name, 0) for each in counters.values() for values in each.values() for name in names)

    return total(after) - total(before)


def natively(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The call's result, which kernels of the devices gave alone."""
    with routing.wishes(generic=False, cpu=False):
        return call(*arguments, **keywords)


@contextlib.contextmanager
def without(operator: str) -> Iterator[None]:
    """The devices' kernels for one operator are switched off."""
    routing.disable(operator)
    try:
        yield
    finally:
        routing.disable(operator, disabled=False)


def same(function: Callable[..., Any], *arguments: Any, device: str, exact: bool = False, **keywords: Any) -> Any:
    """Call it with CPU tensors and with the same on the device, by native kernels alone; both must agree."""
    expected = function(*arguments, **keywords)
    got = natively(function, *moved(arguments, device), **moved(keywords, device))
    agree(got, expected, exact, (arguments, keywords))
    return got


def outcome(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The result, or the class of what is raised."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        return type(error)


def refusal(function: Callable[..., Any], *arguments: Any) -> tuple[type[BaseException], str]:
    """The class of what must be raised, and what it says. A CPU tensor's class counts as the name of its dtype."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever torch raises
        function(*arguments)
    return raised.type, re.sub(r"torch\.(\w+)Tensor", r"\1", str(raised.value))
