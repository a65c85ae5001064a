"""What torch_fl.counters() says of operators, of the registry or not: the same keys, so that one loop reads all."""

from __future__ import annotations

import pytest
import torch
from torch_fl import routing

pytestmark = pytest.mark.usefixtures("devices")


def test_operators_outside_the_registry_are_counted_under_the_same_names() -> None:
    routing.reset_counters()
    x = torch.ones(3, 3, device="fl:0")
    torch.relu(x)
    torch.linalg.svd(x)
    counted = routing.counters()["fl:0"]
    svd = counted["aten::_linalg_svd.U"]
    assert svd.keys() == counted["aten::relu"].keys()
    assert (svd["native"], svd["relayout"], svd["cpu"]) == (0, 0, 1)
    assert svd["bytes_moved"] > 0
    assert counted["aten::relu"]["native"] == 1
