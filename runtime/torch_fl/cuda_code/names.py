"""CUDA's names of devices, and the fl devices that they stand for while code written for CUDA is translated."""

from __future__ import annotations

from typing import Any

import torch

#: Whether torch_fl.cuda_compat is in force, in any thread. Only torch_fl.cuda_code.compat changes it.
in_force = False


def on_fl(value: Any) -> Any:
    """`value`; where it names a CUDA device ("cuda", "cuda:1", torch.device("cuda")), the fl device in its place.

    Nothing changes while torch_fl.cuda_compat is not in force.
    """
    if not in_force:
        return value
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return "fl" + value[len("cuda") :]
    elif isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("fl") if value.index is None else torch.device("fl", value.index)
    return value
