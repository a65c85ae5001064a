"""What a thread's calls of torch go through: CUDA devices among their arguments become fl devices."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from . import names

#: Where a device may be given by place; everywhere else it has the name `device`.
_BY_PLACE = (Tensor.to, Tensor.pin_memory, Tensor.is_pinned)


class CudaCodeMode(TorchFunctionMode):
    """In force in the thread that enters it, and in the backward passes that this thread begins."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if names.in_force:
            if func is Tensor.cuda:
                return _cuda(*args, **kwargs)
            if func is Tensor.type:
                args = tuple(_type_on_fl(value) for value in args)
            elif func in _BY_PLACE:
                args = tuple(names.on_fl(value) for value in args)
            if "device" in kwargs:
                kwargs = {**kwargs, "device": names.on_fl(kwargs["device"])}
        return func(*args, **kwargs)


def _cuda(
    tensor: Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Tensor:
    where = torch.device("fl", device) if isinstance(device, int) else torch.device(names.on_fl(device or "cuda"))
    if where.type != "fl":
        raise RuntimeError(f"Invalid device, must be cuda device: {device}")
    return tensor.to(where, non_blocking=non_blocking, memory_format=memory_format)


def _type_on_fl(value: Any) -> Any:
    return value.replace("torch.cuda.", "torch.fl.") if isinstance(value, str) else value


def within(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the mode in force while it runs."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with CudaCodeMode():
            return function(*args, **kwargs)

    return run


def start_within(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """threading.Thread.start, for threads that are to see the mode from their first call on."""

    @functools.wraps(start)
    def start_thread(thread: threading.Thread) -> None:
        run = thread.run

        def run_within() -> None:
            del thread.run  # which holds the thread
            with CudaCodeMode():
                run()

        thread.run = run_within  # type: ignore[method-assign]
        try:
            start(thread)
        except BaseException:
            vars(thread).pop("run", None)  # it may be started again
            raise

    return start_thread
