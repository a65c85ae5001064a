"""DLPack of `fl` tensors: other libraries use their memory in place, where the host can reach it.

    numpy.from_dlpack(x)       # x on a device that declares host_accessible

Such a tensor is exported as one of the CPU (kDLCPU), after all work that the device had been given: DLPack has no
device type that stands for every vendor, and any library reads host memory. The consumer holds the tensor's memory
until it drops the capsule or what it made of it; what one writes the other sees. Later work of the device is the
consumer's to wait for (`torch.fl.synchronize()`), as the device starts it without looking who else reads.

Memory that the host cannot reach is not exported unless its own device is asked for (kDLExtDev and the index, as
`torch.from_dlpack(x, device=x.device)` does); a consumer that asks for the CPU and allows a copy gets one.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from torch_fl import _bridge

# torch/utils/dlpack.py names them, and is imported with torch; its enumeration is what torch's own methods return.
_CPU, _OWN = 1, 12  # kDLCPU, kDLExtDev

_DlDevice = tuple[Any, int]


def register() -> None:
    """Let `fl` tensors answer both methods of the protocol; other tensors go on as they are."""
    of_torch, device_of_torch = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(of_torch)
    def exported(
        self: torch.Tensor,
        *,
        stream: int | None = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: _DlDevice | None = None,
        copy: bool | None = None,
    ) -> Any:
        how: dict[str, Any] = {"max_version": max_version, "copy": copy}
        if self.device.type != "fl" or has_torch_function_unary(self):
            return of_torch(self, stream=stream, dl_device=dl_device, **how)
        if dl_device is not None and tuple(dl_device) == (_OWN, self.device.index):
            return of_torch(self, dl_device=dl_device, **how)
        return of_torch(_on_host(self, dl_device, copy), stream=None, **how)

    @functools.wraps(device_of_torch)
    def device(self: torch.Tensor) -> _DlDevice:
        if self.device.type != "fl" or has_torch_function_unary(self):
            return device_of_torch(self)
        kinds = torch.utils.dlpack.DLDeviceType
        return (kinds(_CPU), 0) if _accessible(self) else (kinds(_OWN), self.device.index)

    torch.Tensor.__dlpack__ = exported  # type: ignore[method-assign]
    torch.Tensor.__dlpack_device__ = device  # type: ignore[method-assign]


def _accessible(tensor: torch.Tensor) -> bool:
    return _bridge.device_info(tensor.device.index)["host_accessible"]


def _on_host(tensor: torch.Tensor, dl_device: _DlDevice | None, copy: bool | None) -> torch.Tensor:
    """The CPU tensor to export: over the same memory, or a copy where that is what the consumer asked for."""
    if tensor.requires_grad:
        raise BufferError("a tensor that requires a gradient is not exported: use .detach()")
    if tensor.layout != torch.strided:
        raise BufferError(f"a tensor of layout {tensor.layout} is not exported: use .to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        raise BufferError("a lazy conjugate or negative is not exported: use .resolve_conj() and .resolve_neg()")
    if dl_device is not None and tuple(dl_device) != (_CPU, 0):
        raise BufferError(
            f"a tensor on {tensor.device} is not exported to the DLPack device {tuple(map(int, dl_device))}: move it "
            "with .to() first"
        )
    if _accessible(tensor):
        _bridge.synchronize(tensor.device.index)
        return _over(tensor)
    if dl_device is not None and copy is not False:
        return tensor.cpu()
    raise BufferError(
        f"the host cannot reach the memory of {tensor.device}, so it is not shared by DLPack: give the other library a "
        f"copy, .cpu(); torch itself takes torch.from_dlpack(x, device={str(tensor.device)!r})"
    )


def _over(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of the same geometry over the same memory, which it keeps alive."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(_host_address(tensor.device.index, storage.data_ptr()))
    memory.owner = storage  # type: ignore[attr-defined]  # frombuffer holds `memory`
    host = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype)
    return whole.set_(host, tensor.storage_offset(), tensor.size(), tensor.stride())


def _host_address(device: int, address: int) -> int:
    """Where the host finds what torch has at an address, which is a mere token where the vendor's own was taken."""
    for block in _bridge.memory_snapshot(device):
        if block["address"] <= address < block["address"] + block["size"]:
            return block["segment"] + block["offset"] + address - block["address"]
    raise BufferError(f"memory at {address:#x} of fl:{device} did not come from its pool, and is not exported")
