"""Which devices there are, and which one is the calling thread's current one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.types import Device

from torch_fl import _bridge
from torch_fl.cuda_code.names import on_fl


@dataclass(frozen=True)
class DeviceProperties:
    """What a vendor says of a device. Sizes are in bytes; uuid is 32 hexadecimal digits; numa_node -1 means unknown."""

    index: int
    vendor: str
    vendor_version: str
    name: str
    uuid: str
    numa_node: int
    execution_model: str
    independent_streams: bool
    priority_least: int
    priority_greatest: int
    address_model: str
    alloc_align: int
    max_align: int
    alloc_may_wait: bool
    host_accessible: bool
    total_memory: int
    timer_resolution_ns: int
    pinned_memory: bool


def _get_device_index(device: Device, optional: bool = True) -> int:
    """N of fl:N; None and "fl" mean the current device where `optional`. Does not ask whether fl:N exists."""
    if isinstance(device, int):
        return device
    if device is not None:
        device = torch.device(on_fl(device))
        if device.type != "fl":
            raise ValueError(f'expected an fl device ("fl:0", torch.device("fl", 0), 0), got {str(device)!r}')
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(f'expected an fl device with an index ("fl:0"), got {str(device)!r}')
    return _bridge.current_device()


def init() -> None:
    """Look for devices now, where nobody has. Raises what is wrong with the configuration, and in a forked child."""
    _bridge.ensure_discovered()


def is_initialized() -> bool:
    """Whether devices have been looked for, and one can be used."""
    return _bridge.any_device_open() and not _bridge.in_bad_fork()


def device_count() -> int:
    """Number of devices, usable or not. 0 in a forked child, which may use none."""
    return 0 if _bridge.in_bad_fork() else _bridge.device_count()


def is_available() -> bool:
    """Whether there is a device. False in a forked child, which may use none."""
    return device_count() > 0


def current_device() -> int:
    """Index of the calling thread's current device: the one that "fl" stands for."""
    init()
    return _bridge.current_device()


def set_device(device: Device) -> None:
    """Make it the calling thread's current device; a negative index does nothing."""
    index = _get_device_index(device)
    if index >= 0:
        _bridge.set_device(index)


def synchronize(device: Device = None) -> None:
    """Wait for all work on all streams of the device; raises what a stream failed with since the last time."""
    _bridge.synchronize(_get_device_index(device))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """What its vendor says of the device."""
    return DeviceProperties(**_bridge.device_info(_get_device_index(device)))


def get_device_name(device: Device = None) -> str:
    """The product name that its vendor gives the device."""
    return get_device_properties(device).name


class device:
    """Context in which `device` is the calling thread's current one; None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.index = -1 if device is None else _get_device_index(device)
        self._former = -1

    def __enter__(self) -> device:
        if self.index >= 0:
            self._former = _bridge.exchange_device(self.index)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.index >= 0:
            _bridge.exchange_device(self._former)


class device_of(device):
    """Context in which the device of a tensor or storage is the current one; one that is not on fl changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "fl" else None)
