"""What the pool of a device holds, and how to bound and empty it. All sizes are in bytes."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch.types import Device

from torch_fl import _bridge

from .devices import _get_device_index, init, is_initialized


def memory_stats(device: Device = None) -> OrderedDict[str, int]:
    """Counters of the device's pool, under the names of torch.accelerator.memory_stats.

    Besides, num_allocations counts all allocations and num_cache_hits those that needed nothing of the vendor.
    """
    init()
    index = _get_device_index(device)
    stats: OrderedDict[str, int] = OrderedDict(torch.accelerator.memory_stats(index))
    stats["num_allocations"], stats["num_cache_hits"] = _bridge.cache_use(index)
    return stats


def _stat(device: Device, name: str) -> int:
    """0 where nobody has looked for devices: asking is no use of one."""
    return memory_stats(device)[name] if is_initialized() else 0


def memory_allocated(device: Device = None) -> int:
    """Memory of live tensors."""
    return _stat(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Device = None) -> int:
    """The most there was of it since the process began or reset_peak_memory_stats was called."""
    return _stat(device, "allocated_bytes.all.peak")


def memory_reserved(device: Device = None) -> int:
    """Memory that the pool has from the vendor, in use or not."""
    return _stat(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Device = None) -> int:
    """The most there was of it since the process began or reset_peak_memory_stats was called."""
    return _stat(device, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let peaks start again from what is in use now."""
    _bridge.reset_peak_memory_stats(_get_device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let the sums of memory_stats (`allocated`, `freed`, counts of retries) start again from 0."""
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device))


def empty_cache() -> None:
    """Give what no tensor uses back to the vendors, on all devices. Waits for streams that still use some of it."""
    if is_initialized():
        _bridge.empty_cache()


def empty_host_cache() -> None:
    """Give pinned host memory that no tensor uses back."""
    _bridge.empty_host_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) memory of the device, as its vendor says."""
    return _bridge.mem_get_info(_get_device_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process use no more than this part of the device's memory, (0, 1]; more raises OutOfMemoryError."""
    _bridge.set_memory_fraction(fraction, _get_device_index(device))


def memory_snapshot(device: Device = None) -> list[_bridge.BlockInfo]:
    """Every block of the device's pool, free ones included, by segment and offset."""
    return _bridge.memory_snapshot(_get_device_index(device))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of memory_stats for people. abbreviated: without what was allocated and freed in sum."""
    index = _get_device_index(device)
    stats, (free, total) = memory_stats(index), mem_get_info(index)
    columns = ("current", "peak") if abbreviated else ("current", "peak", "allocated", "freed")
    lines = [f"fl:{index}: {_size(free)} of {_size(total)} free", f"{'':18}" + "".join(f"{c:>14}" for c in columns)]
    for name in ("allocated_bytes", "requested_bytes", "reserved_bytes", "allocation", "segment"):
        show = _size if name.endswith("_bytes") else str
        lines.append(f"{name:18}" + "".join(f"{show(stats[f'{name}.all.{c}']):>14}" for c in columns))
    lines.append(
        f"{stats['num_cache_hits']} of {stats['num_allocations']} allocations from the cache, "
        f"{stats['num_alloc_retries']} after a flush, {stats['num_ooms']} out of memory"
    )
    return "\n".join(lines)


def _size(count: int) -> str:
    value, units = float(count), iter(("KiB", "MiB", "GiB"))
    unit = "bytes"
    while value >= 1024 and (larger := next(units, None)) is not None:
        value, unit = value / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.2f} {unit}"
