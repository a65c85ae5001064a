"""The attributes of torch that are others while code written for CUDA is translated; `mode` does what it can reach."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.utils._device  # torch imports it at the first use

from torch_fl import fl

from . import mode
from .names import on_fl


class Patch(NamedTuple):
    """`value` takes the place of the attribute `name` of `owner`, a module or a class that has it of its own."""

    owner: Any
    name: str
    value: Any


@contextlib.contextmanager
def applied(patches: list[Patch]) -> Iterator[None]:
    """All of them in force; the former values come back in any case."""
    with contextlib.ExitStack() as former:
        for owner, name, value in patches:
            former.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, value)
        registry = torch.serialization._package_registry
        entry = (0, _no_tag, _restore)
        registry.insert(0, entry)  # before the one of CUDA
        former.callback(registry.remove, entry)
        yield


def patches() -> list[Patch]:
    """All of them. Looks for no device."""
    return [*_cuda_module(), *_devices(), *_autocast(), *_threads()]


# ---- torch.cuda ----------------------------------------------------------------------------------------------------

#: Names of torch.cuda that are none of torch.fl, or have another meaning there.
_OTHERS: dict[str, Callable[..., Any]] = {
    "ipc_collect": lambda: None,  # no memory is shared with other processes
    "is_current_stream_capturing": lambda: False,
    "is_tf32_supported": lambda: False,
    "max_memory_cached": fl.max_memory_reserved,
    "memory_cached": fl.memory_reserved,
    "reset_max_memory_allocated": fl.reset_peak_memory_stats,
    "reset_max_memory_cached": fl.reset_peak_memory_stats,
}
#: Ask about the build of torch, and are answered without CUDA, too.
_LEFT = ("get_arch_list", "get_gencode_flags")


def _cuda_module() -> Iterator[Patch]:
    homes = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams)
    for name in torch.cuda.__all__:
        original = vars(torch.cuda).get(name)
        if original is None or isinstance(original, (ModuleType, tuple)) or name in _LEFT:
            continue
        if name in _OTHERS or name in fl.__all__:
            value = _OTHERS.get(name) or getattr(fl, name)
        elif inspect.isfunction(original):
            value = _refusing(name)
        else:
            continue
        for home in homes:
            if vars(home).get(name) is original:
                yield Patch(home, name, value)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torch.cuda.{name} asks about CUDA hardware, and torch_fl.cuda_compat has nothing to answer for fl "
            "devices: leave the call out, or ask torch.fl.get_device_properties()"
        )

    return refuse


# ---- Where devices are named and no mode sees it -------------------------------------------------------------------


def _translating(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; CUDA devices among its arguments become fl devices."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*map(on_fl, args), **{name: on_fl(value) for name, value in kwargs.items()})

    return run


_Generator = torch.Generator


class _Generators(type):
    """torch.Generator cannot be inherited from: calls make one of it, and its instances are those of this class."""

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return _Generator(on_fl(device))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)


class Generator(metaclass=_Generators):
    """Stands where torch.Generator was."""

    __module__, __qualname__ = "torch", "Generator"  # as pickled generators name it


def _devices() -> Iterator[Patch]:
    yield Patch(torch, "Generator", Generator)
    for owner, name in (
        (torch.utils._device.DeviceContext, "__init__"),  # set_default_device, with torch.device("cuda")
        (torch.storage._StorageBase, "to"),  # and with it .cuda()
    ):
        yield Patch(owner, name, _translating(vars(owner)[name]))


def _no_tag(storage: object) -> None:
    """Saved tensors are tagged as ever."""


def _restore(storage: Any, location: str) -> Any:
    """For torch.load: a storage for a CUDA device, by map_location or as it was saved, comes to the fl device."""
    where = on_fl(location)
    if where == location:
        return None
    return torch.serialization.default_restore_location(storage, where)  # type: ignore[no-untyped-call]


# ---- Autocast ------------------------------------------------------------------------------------------------------


def _autocast() -> Iterator[Patch]:
    for owner, name in (
        (torch.amp.autocast_mode.autocast, "__init__"),
        (torch.amp.autocast_mode, "is_autocast_available"),
        (torch.amp, "is_autocast_available"),
        (torch, "get_autocast_dtype"),
        (torch, "set_autocast_dtype"),
    ):
        yield Patch(owner, name, _translating(vars(owner)[name]))
    yield Patch(torch.amp.grad_scaler.GradScaler, "__init__", _scaler(torch.amp.grad_scaler.GradScaler.__init__))
    yield Patch(torch, "is_autocast_enabled", _for_device(torch.is_autocast_enabled, 0))
    yield Patch(torch, "set_autocast_enabled", _for_device(torch.set_autocast_enabled, 1))
    yield Patch(torch, "get_autocast_gpu_dtype", functools.partial(torch.get_autocast_dtype, "fl"))
    yield Patch(torch, "set_autocast_gpu_dtype", functools.partial(torch.set_autocast_dtype, "fl"))


def _scaler(init: Callable[..., None]) -> Callable[..., None]:
    """GradScaler.__init__, whose default device is CUDA."""

    @functools.wraps(init)
    def run(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        init(self, on_fl(device), *args, **kwargs)

    return run


def _for_device(function: Callable[..., Any], others: int) -> Callable[..., Any]:
    """The function of a device and `others` more; without a device it means CUDA."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        return function(*map(on_fl, args if len(args) > others else ("cuda", *args)))

    return run


# ---- Threads -------------------------------------------------------------------------------------------------------


def _threads() -> Iterator[Patch]:
    yield Patch(threading.Thread, "start", mode.start_within(threading.Thread.start))
    run = mode.within(torch.autograd.graph._engine_run_backward)
    yield Patch(torch.autograd, "_engine_run_backward", run)
    yield Patch(torch.autograd.graph, "_engine_run_backward", run)
