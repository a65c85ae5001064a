"""What torch.nn.DataParallel moves between devices: torch compiles these functions for CUDA alone.

The names and arguments are those of torch._C. Devices are indices of fl devices, of one vendor or several; -1 is the
CPU. Results are in the order of the devices; a tensor that is there already is not copied. Copies wait for the work of
both devices, so that no stream of its own is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def register() -> None:
    """Give them to torch._C where this torch has none of its own."""
    for function in (
        _broadcast,
        _broadcast_out,
        _broadcast_coalesced,
        _scatter,
        _scatter_out,
        _gather,
        _gather_out,
    ):
        if not hasattr(torch._C, function.__name__):
            setattr(torch._C, function.__name__, function)


def _device(index: int | None) -> torch.device:
    if index is None:
        return torch.device("fl")
    return torch.device("cpu") if index < 0 else torch.device("fl", index)


def _moved(tensor: Tensor, index: int | None) -> Tensor:
    device = _device(index)
    return tensor.to(device, non_blocking=device.type == "fl")  # whoever reads host memory does not wait


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    return [_moved(tensor, device) for device in devices]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> Sequence[Tensor]:
    for target in out:
        _fill(target, tensor)
    return out


def _fill(target: Tensor, value: Tensor) -> None:
    """Copy between equal shapes; copy_ by itself would broadcast."""
    if target.shape != value.shape:
        raise RuntimeError(f"an output has shape {list(target.shape)}, where {list(value.shape)} is needed")
    target.copy_(value)


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    return [[_moved(tensor, device) for tensor in tensors] for device in devices]


def _scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> list[Tensor]:
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split_with_sizes(list(chunk_sizes), dim)
    if chunk_sizes is not None and len(chunks) != len(devices):
        raise RuntimeError(f"scatter: {len(chunks)} chunk_sizes for {len(devices)} devices; give each device one")
    # Without sizes, a short tensor makes fewer chunks than there are devices.
    return [_moved(chunk.contiguous(), device) for chunk, device in zip(chunks, devices, strict=False)]


def _scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Any) -> Sequence[Tensor]:
    for target, chunk in zip(out, tensor.split_with_sizes([target.size(dim) for target in out], dim), strict=True):
        _fill(target, chunk)
    return out


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    return torch.cat([_moved(tensor, destination) for tensor in tensors], dim)


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    _fill(out, torch.cat([tensor.to(out.device) for tensor in tensors], dim))
    return out
