"""Judges an opened device before the bridge relies on what it says: its info, and every row of its kernel table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_fl_spec import abi
from torch_fl_spec.kernel_table import KernelTable
from torch_fl_spec.loader import Plugin, PluginRefused, error_text, new_error
from torch_fl_spec.registry import load_registry

ffi = abi.ffi


class Kernels:
    """What a device has kernels for, as far as this host knows the operators.

    operators: names of the registry's. dtypes: short names that occur in their rows, in the interface's order.
    """

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        registry = load_registry()
        known = [entry for entry in entries if entry["rows"] and registry.get(entry["op"], entry["revision"])]
        seen = {dtype for entry in known for row in entry["rows"] for dtype in row["dtypes"]}
        self.operators = frozenset(entry["op"] for entry in known)
        self.dtypes = tuple(name for name in abi.DTYPES if name in seen)


class Inspector:
    """Of one plugin's devices. A table that several share is read once."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._read: dict[int, Kernels] = {}

    def inspect(self, index: int, handle: int) -> Kernels:
        """Judge the opened device; raises PluginRefused with every reason against it. index: the vendor's."""
        device = ffi.cast("fl_device", handle)
        self._check_info(device)
        out = ffi.new("const fl_kernel_table**")
        self._call("kernel.kernels", device, out)
        address = int(ffi.cast("uintptr_t", out[0]))
        if address not in self._read:
            self._read[address] = Kernels(KernelTable(out[0], index).entries)
        return self._read[address]

    def _check_info(self, device: Any) -> None:
        info = ffi.new(
            "fl_device_info*", {"struct_size": ffi.sizeof("fl_device_info"), "kind": abi.FL_KIND_DEVICE_INFO}
        )
        self._call("device.info", device, info)
        reasons = _reasons(info)
        if reasons:
            raise PluginRefused(reasons)

    def _call(self, name: str, device: Any, out: Any) -> None:
        error, message = new_error()
        status = self._plugin.table[name](device, out, error)
        if status != abi.FL_OK:
            raise PluginRefused([f"{name} returned {abi.status_name(status)}: {error_text(error, message)}"])


def _reasons(info: Any) -> list[str]:
    """What the pool, the streams and whoever prints the name could not live with."""
    reasons = []
    if info.name != ffi.NULL:
        try:
            ffi.string(info.name).decode("utf-8")
        except UnicodeDecodeError:
            reasons.append("FL-LAYOUT-009: the device's name is not UTF-8")
    if info.execution_model not in (abi.FL_EXEC_ASYNC, abi.FL_EXEC_INLINE):
        reasons.append(f"FL-STREAM-008: execution_model is {info.execution_model}; FL_EXEC_ASYNC or _INLINE is needed")
    if info.address_model not in (abi.FL_ADDRESS_LINEAR, abi.FL_ADDRESS_HANDLE):
        reasons.append(f"address_model is {info.address_model}; FL_ADDRESS_LINEAR or _HANDLE is needed")
    if not (_is_power(info.alloc_align) and 64 <= info.alloc_align <= 65536):
        reasons.append(f"FL-MEM-003: alloc_align is {info.alloc_align}, no power of two from 64 to 65536")
    if not (_is_power(info.max_align) and info.max_align >= info.alloc_align):
        reasons.append(f"FL-MEM-003: max_align is {info.max_align}, no power of two from alloc_align on")
    if not info.priority_greatest <= 0 <= info.priority_least:
        reasons.append(
            f"FL-STREAM-011: priorities reach from {info.priority_greatest} to {info.priority_least} without 0"
        )
    return reasons


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
