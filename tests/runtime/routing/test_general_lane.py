"""The general lane: all of the registry through it, and operators that nothing here was written for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_fl import routing

from . import apart
from .edited_reference import build
from .numbers import values

DEVICE = "fl:2"
HERE = Path(__file__).parent


def test_everything_else_of_this_folder_in_the_general_lane(lane: str) -> None:
    if lane == "general":
        pytest.skip("this is it")
    files = [str(HERE / f"test_{name}.py") for name in ("operators", "forms", "numbers")]
    output = apart.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", *files, ROUTING_LANE="general")
    assert "failed" not in output


def test_shapes_are_asked_for_once() -> None:
    counted = []
    tensor, out = values(torch.float32, 3, 4).to(DEVICE), torch.empty(0, device=DEVICE)
    routing.reset_counters()
    for _ in range(3):
        torch.ops.aten.flip.out(tensor, [1], out=out.resize_(0))
        counted.append(routing.counters()[DEVICE]["aten::flip"])
    assert [each["shape_misses"] for each in counted] == [1, 1, 1]
    assert [each["shape_hits"] for each in counted] == [0, 1, 2]
    torch.ops.aten.flip.out(tensor[:2], [1], out=out.resize_(0))
    assert routing.counters()[DEVICE]["aten::flip"]["shape_misses"] == 2


# ---- Operators that the registry has not got -------------------------------------------------------------------------

PROGRAM = """
import dataclasses, torch, torch_fl
from torch_fl import routing
from torch_fl_spec import registry

known = {operator.op: operator for operator in registry.load_registry()}

def like(name, new):
    return dataclasses.replace(known[name], op=new, inplace=())

added = [
    like("aten::maximum", "aten::fmax"),
    like("aten::sum.dim_IntList", "aten::nansum"),
    like("aten::exp", "aten::expm1"),
]
routing.load_registry = lambda: [*known.values(), *added]

a, b = torch.randn(4, 1, 5), torch.randn(3, 5)
c, d = a.to("fl:0"), b.to("fl:0")
with routing.wishes(generic=False, cpu=False):
    for function, host, device in [
        (torch.fmax, (a, b), (c, d)),
        (torch.fmax, (a.double(), b), (c.double(), d)),
        (torch.nansum, (a, (0, -1)), (c, (0, -1))),
        (torch.nansum, (a.long(), 1, True), (c.long(), 1, True)),
        (torch.nansum, (a,), (c,)),
    ]:
        expected, got = function(*host), function(*device)
        assert got.dtype == expected.dtype and got.stride() == expected.stride(), (function, host)
        torch.testing.assert_close(got.cpu(), expected)
    out = torch.empty(0, device="fl:0")
    assert torch.fmax(c, d, out=out) is out
    torch.testing.assert_close(out.cpu(), torch.fmax(a, b))
    # The kernel called expm1 is exp's, so that the numbers say who computed them.
    torch.testing.assert_close(c.clone().expm1_().cpu(), a.exp())
counted = routing.counters()["fl:0"]
assert [counted[f"aten::{name}"]["native"] for name in ("fmax", "nansum", "expm1")] == [3, 3, 1], counted
assert not any(each.get(name) for each in counted.values() for name in ("generic", "cpu", "errors")), counted
print("done")
"""

KERNELS = {
    "kernels/pointwise_binary.c": [
        (
            '    REF_POINTWISE("minimum",',
            '    REF_POINTWISE("fmax", ref_rows_all, FL_TIER_EXACT, 0, &maximum_op),\n    REF_POINTWISE("minimum",',
        )
    ],
    "kernels/pointwise_unary.c": [
        ('    ACCURATE("exp",', '    ACCURATE("expm1", ref_rows_floats, &exp_op),\n    ACCURATE("exp",')
    ],
    "kernels/reduction.c": [
        (
            '    REF_KERNEL("mean.dim",',
            '    REF_KERNEL("nansum", 2, rows_widening, FL_TIER_ACCURATE, 0, &op_sum, reduction_plan, reduction_run),\n'
            '    REF_KERNEL("mean.dim",',
        )
    ],
}


def test_an_entry_and_a_kernel_are_all_that_an_operator_takes(tmp_path: Path) -> None:
    plugin = build(tmp_path, "wider", KERNELS)
    assert "done" in apart.script(PROGRAM, TORCH_FL_VENDORS=str(plugin))
