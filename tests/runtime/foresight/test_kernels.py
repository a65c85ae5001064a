"""Each kernel that the bridge has registered with torch is one that coverage knows the ways of."""

from __future__ import annotations

import pytest
import torch
from torch_fl.foresight import rows

pytestmark = pytest.mark.usefixtures("devices")


def _registered() -> set[str]:
    return {
        name
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
        if name.startswith("aten::")
    }


def _overload(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.removeprefix("aten::").partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, base), overload or "default")
    return found


def test_every_kernel_is_known() -> None:
    known = {*rows.OWN, *rows.COPIES, *rows.FORWARDS}
    unknown = {name for name in _registered() - known if rows.operator_of(_overload(name)) is None}
    assert not unknown, "say in torch_fl/foresight/rows.py what these kernels of the bridge do"


def test_no_kernel_is_known_that_is_not_there() -> None:
    assert {*rows.OWN, *rows.COPIES, *rows.FORWARDS} <= _registered()
