"""The bridge's part in discovery, in Python: opens devices by their tables as the compiled one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch_fl import devices
from torch_fl_spec import abi
from torch_fl_spec.loader import error_text, new_error

ffi = abi.ffi


@dataclass
class Opened:
    """A place of the list with a device."""

    vendor: Any
    handle: Any


@dataclass
class FakeBridge:
    """discoveries: how often discovery began. places: an opened device, or why there is none."""

    limit: int = 64
    discoveries: int = 0
    done: bool = False
    operators: list[str] = field(default_factory=list)
    vendors: list[Any] = field(default_factory=list)
    extensions: list[tuple[int, int]] = field(default_factory=list)
    places: list[Opened | str] = field(default_factory=list)
    fractions: dict[int, float] = field(default_factory=dict)
    policy: dict[str, object] = field(default_factory=dict)

    def device_count(self) -> int:
        """Discovers first; undone where that raises."""
        if not self.done:
            self.discoveries += 1
            try:
                devices._discover()
            except BaseException:
                self.close()
                raise
            self.done = True
        return len(self.places)

    def close(self) -> None:
        """Undo, and let the devices be opened by others."""
        for place in self.places:
            if isinstance(place, Opened):
                place.vendor.device.close(place.handle, ffi.NULL)
        self.places.clear()
        self.done = False

    def add_operator(self, name: str, *_: Any) -> int:
        """The id; a bridge takes each operator once, before the first device."""
        assert name not in self.operators
        assert not self.places
        self.operators.append(name)
        return len(self.operators) - 1

    def add_general_kernel(self, name: str, replace: bool) -> str:
        """Every operator has a place in this torch."""
        return ""

    def add_vendor(self, root: int, pinned: int, fault: int) -> int:
        """The index."""
        self.vendors.append(ffi.cast("const fl_plugin*", root))
        self.extensions.append((pinned, fault))
        return len(self.vendors) - 1

    def add_device(
        self, vendor: int, vendor_index: int, options: str, inspect: Callable[[int], None]
    ) -> dict[str, Any]:
        """What module.cpp's describe() gives, as far as it is used."""
        self._check_room()
        table = self.vendors[vendor]
        text = ffi.new("char[]", options.encode())
        args = ffi.new(
            "fl_device_open_args*",
            {
                "struct_size": ffi.sizeof("fl_device_open_args"),
                "kind": abi.FL_KIND_DEVICE_OPEN_ARGS,
                "options": text,
            },
        )
        out = ffi.new("fl_device*")
        error, message = new_error()
        status = table.device.open(vendor_index, args, out, error)
        if status != abi.FL_OK:
            name = f"fl:{len(self.places)} ({ffi.string(table.name).decode()})"
            text = error_text(error, message)
            raise RuntimeError(f"{name}: device_open({vendor_index}): {abi.status_name(status)}: {text}")
        try:
            inspect(int(ffi.cast("uintptr_t", out[0])))
        except BaseException:
            table.device.close(out[0], ffi.NULL)
            raise
        info = ffi.new("fl_device_info*", {"struct_size": 96, "kind": abi.FL_KIND_DEVICE_INFO})
        assert table.device.info(out[0], info, ffi.NULL) == abi.FL_OK
        self.places.append(Opened(table, out[0]))
        return {
            "index": len(self.places) - 1,
            "name": None if info.name == ffi.NULL else ffi.string(info.name).decode(),
            "uuid": bytes(info.uuid).hex(),
            "execution_model": "inline" if info.execution_model == abi.FL_EXEC_INLINE else "async",
            "total_memory": int(info.total_bytes),
        }

    def add_unusable(self, reason: str) -> int:
        """The index."""
        self._check_room()
        self.places.append(reason)
        return len(self.places) - 1

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """(free, total) bytes."""
        place = self.places[device]
        if isinstance(place, str):
            raise RuntimeError(place)
        out = ffi.new("uint64_t[2]")
        error, message = new_error()
        status = place.vendor.memory.info(place.handle, out, out + 1, error)
        if status != abi.FL_OK:
            raise RuntimeError(f"fl:{device}: {abi.status_name(status)}: {error_text(error, message)}")
        return int(out[0]), int(out[1])

    def set_memory_fraction(self, fraction: float, device: int) -> None:
        """Noted in `fractions`."""
        self.fractions[device] = fraction

    def set_policy(self, name: str, value: bool) -> None:
        """Noted in `policy`, as the next."""
        self.policy[name] = value

    def set_on_fallback(self, name: str) -> None:
        """What a step down does besides."""
        self.policy["on_fallback"] = name

    def _check_room(self) -> None:
        if len(self.places) >= self.limit:
            raise RuntimeError(f"there are more than {self.limit} devices")
