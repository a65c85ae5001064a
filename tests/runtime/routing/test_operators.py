"""Every operator of the registry, in every dtype row, by a native kernel, against the CPU."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch
from torch_fl import routing

from .check import agree, natively, steps
from .samples import CPU_IS_OFF, OPERATORS, ROWS, is_exact, moved, overload, sample

INLINE, ASYNC = "fl:2", "fl:0"
pytestmark = pytest.mark.usefixtures("devices")


def expected_of(name: str, row: tuple[str, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """On the CPU; in f64 and cast where it hasn't got the row."""
    if name == "aten::sqrt" and row[0] in CPU_IS_OFF[name]:
        return torch.from_numpy(np.sqrt(arguments[0].numpy()))
    with contextlib.suppress(NotImplementedError, RuntimeError):
        return overload(name)(*arguments, **keywords)
    wide = {torch.float16: torch.float64, torch.bfloat16: torch.float64}
    widened = tuple(
        each.to(wide.get(each.dtype, each.dtype)) if isinstance(each, torch.Tensor) else each for each in arguments
    )
    return overload(name)(*widened, **keywords).to(arguments[0].dtype)


@pytest.mark.parametrize(
    ("name", "row"), ROWS, ids=lambda part: part.removeprefix("aten::") if isinstance(part, str) else "-".join(part)
)
def test_row(name: str, row: tuple[str, ...]) -> None:
    arguments, keywords = sample(name, row)
    expected = expected_of(name, row, arguments, keywords)
    there = {"device": INLINE} if name == "aten::arange.start_step" else {}
    given = moved(arguments, INLINE)
    before = routing.counters()
    got = natively(lambda: overload(name)(*given, **keywords, **there))
    counted = routing.counters()
    if name == "aten::native_layer_norm":  # torch on the CPU rounds statistics of halves to halves, others don't
        expected = (expected[0], *(each.to(got[1].dtype) for each in expected[1:]))
        agree(got[0], expected[0])
        torch.testing.assert_close(got[1].cpu(), expected[1], rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(got[2].cpu(), expected[2], rtol=1e-2, atol=1e-2)
    else:
        exact = is_exact(OPERATORS[name], row) or name in CPU_IS_OFF  # which is not what these are compared with
        agree(got, expected, exact, (name, row))
    same_dtype_copy = name == "aten::_to_copy" and row[0] == row[1]  # bytes that need no kernel
    own = counted[INLINE].get(name, {}).get("native", 0) - before[INLINE].get(name, {}).get("native", 0)
    assert own == (0 if same_dtype_copy else 1)
    assert steps(before, counted, "relayout", "generic", "cpu", "errors") == 0


@pytest.mark.parametrize("name", OPERATORS)
def test_asynchronous_device(name: str) -> None:
    row = next((row for row in OPERATORS[name].rows if "f32" in row), OPERATORS[name].rows[0])
    arguments, keywords = sample(name, row)
    expected = overload(name)(*arguments, **keywords)
    there = {"device": ASYNC} if name == "aten::arange.start_step" else {}
    got = natively(lambda: overload(name)(*moved(arguments, ASYNC), **keywords, **there))
    agree(got, expected, is_exact(OPERATORS[name], row), name)


def test_a_product_of_batches_takes_no_matrices() -> None:
    with pytest.raises(RuntimeError, match="batch1 must be a 3D tensor"):
        torch.bmm(torch.ones(2, 3, device="fl:2"), torch.ones(3, 2, device="fl:2"))
