"""How a coverage reads: as a record, as text, as JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch_fl
from torch_fl import Coverage, CoverageRow

ROWS = (
    CoverageRow("aten::sort", (torch.float32,), "cpu", 1, 0, "the device has no [kernel]"),
    CoverageRow("aten::silu", (torch.float32,), "generic", 0, 2, "it is not an operator"),
    CoverageRow("aten::mm", (torch.float32,), "native", 2, 3),
)
COVERAGE = Coverage("fl:0", True, ROWS)


def test_numbers() -> None:
    assert COVERAGE.calls == 8
    assert COVERAGE.missing == ROWS[:2]
    assert COVERAGE.native_share == 5 / 8
    assert not COVERAGE.stays_on_device
    assert Coverage("fl:0", True, ROWS[1:]).stays_on_device
    assert (Coverage("fl:0", True, ()).native_share, str(Coverage("fl:0", True, ()))) == (
        1.0,
        "0 calls on fl:0, forward and backward: 0 native (100% native)",
    )


def test_text_keeps_its_columns() -> None:
    assert str(COVERAGE).splitlines() == [
        "8 calls on fl:0, forward and backward: 5 native, 2 generic, 1 cpu (62% native)",
        "operator    dtypes  tier     forward  backward  why not native",
        "aten::sort  f32     cpu            1         0  the device has no [kernel]",
        "aten::silu  f32     generic        0         2  it is not an operator",
        "aten::mm    f32     native         2         3",
    ]


def test_json_has_all_of_it() -> None:
    plain = json.loads(COVERAGE.to_json())
    assert (plain["device"], plain["backward"], plain["calls"], plain["native_share"]) == ("fl:0", True, 8, 0.625)
    assert plain["rows"][2] == {
        "operator": "aten::mm",
        "dtypes": ["f32"],
        "tier": "native",
        "forward": 2,
        "backward": 3,
        "reason": None,
    }


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        COVERAGE.device = "fl:1"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROWS[0].forward = 2  # type: ignore[misc]


@pytest.mark.usefixtures("devices")
def test_what_cannot_be_followed_is_said_in_one_line() -> None:
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    x = torch.rand(3)
    for model, words in (
        (reads, "depends on values of tensors"),
        (lambda x: x[x > 0], "depends on values of tensors"),
        (torch.nn.LazyLinear(3), "lazy parameters"),
    ):
        with pytest.raises(torch_fl.CoverageError, match=words) as failure:
            torch_fl.coverage(model, x, backward=False)
        assert "\n" not in str(failure.value)
    with pytest.raises(torch_fl.CoverageError, match="requires a gradient"):
        torch_fl.coverage(torch.nn.ReLU(), x)
    with pytest.raises(ValueError, match="name fl:0"):
        torch_fl.coverage(torch.nn.ReLU(), x, "cpu")
    with pytest.raises(RuntimeError, match="99"):
        torch_fl.coverage(torch.nn.ReLU(), x, "fl:99")


@pytest.mark.usefixtures("devices")
def test_supports_takes_what_torch_calls_an_operator() -> None:
    f32, i32, i64 = torch.float32, torch.int32, torch.int64
    assert torch_fl.supports("mm", f32)
    assert torch_fl.supports(torch.ops.aten.add_.Tensor, [f32], "fl:1")
    assert torch_fl.supports("aten::eq.Scalar", f32, torch.device("fl:0"))
    assert torch_fl.supports("aten::embedding", f32)
    assert torch_fl.supports("aten::embedding", [f32, i64])
    assert not torch_fl.supports("aten::embedding", i32)
    assert not torch_fl.supports("aten::mm", torch.complex64)
    assert not torch_fl.supports("aten::mm", [torch.quint8])
    assert not torch_fl.supports("aten::sort", f32)
    with torch_fl.routing.wishes(native=False):
        assert not torch_fl.supports("mm", f32)
    with pytest.raises(ValueError, match="takes 2 dtypes"):
        torch_fl.supports("aten::embedding", [f32])
    with pytest.raises(ValueError, match="no operator of this torch"):
        torch_fl.supports("aten::multiply_matrices", f32)
