"""With ROUTING_LANE=general in the environment, the tests of this folder go through the general lane."""

from __future__ import annotations

import os

import pytest
from torch_fl import _bridge as bridge

from .samples import OPERATORS

LANE = "ROUTING_LANE"

#: Their schema has an argument that no slot takes, or is silent on what it writes: kernels of the bridge serve them.
FAST_ALONE = {
    *("aten::convolution_backward", "aten::native_batch_norm", "aten::native_batch_norm_backward"),
    *("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"),
}


@pytest.fixture(scope="session", autouse=True)
def lane(devices: tuple[str, ...]) -> str:
    """The lane that serves the operators of samples.OPERATORS."""
    chosen = os.environ.get(LANE, "fast")
    if chosen == "general":
        for name in OPERATORS:
            if name != "aten::_to_copy":  # copies are no operator's business
                assert (bridge.add_general_kernel(name, True) != "") == (name in FAST_ALONE)
    return chosen
