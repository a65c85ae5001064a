"""Printing a tensor of `fl` computes on the host.

torch finds the width of a tensor's numbers with operators of the tensor's device, unless that is one of four that it
knows by name (`torch/_tensor_str.py`): those are copied to the CPU first, and so are ours. Else the first print would
warn of tiers, and none would be possible where steps down raise.
"""

from __future__ import annotations

import functools

import torch
from torch import _tensor_str


def register() -> None:
    """Copy tensors of `fl` to the CPU before torch puts their numbers into words; other tensors go on as they are."""
    in_words = _tensor_str._tensor_str

    @functools.wraps(in_words)
    def from_the_host(self: torch.Tensor, indent: int) -> str:
        return in_words(self.cpu() if self.device.type == "fl" else self, indent)  # type: ignore[no-untyped-call, no-any-return]

    _tensor_str._tensor_str = from_the_host
