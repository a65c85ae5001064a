"""Makes a device's work wait, or fail, when a test wants it to."""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import Any

import torch
from torch_fl.devices import list_devices
from torch_fl_spec import abi, loader

ffi = abi.ffi


@functools.cache
def plugin_of(device: int) -> loader.Plugin:
    """The plugin behind fl:`device`: the very library that the bridge calls."""
    return loader.load(list_devices()[device].plugin.library)


def handle(stream: torch.Stream) -> Any:
    """The vendor's handle of the stream."""
    import torch_fl._bridge as bridge

    return ffi.cast("fl_stream", bridge.stream_handle(stream.device_index, stream.stream_id))


class Gate:
    """Holds all later work of a stream until opened; leaving the context opens it. For asynchronous devices.

    The vendor's thread that waits at the gate needs the GIL to notice that it is open: whoever waits for the stream
    and keeps the GIL never returns.
    """

    def __init__(self, stream: torch.Stream) -> None:
        self._opened = threading.Event()
        self.passed = threading.Event()
        self._task = ffi.callback("fl_host_fn", self._hold)
        status = plugin_of(stream.device_index).table["stream.host_task"](
            handle(stream), self._task, ffi.NULL, ffi.NULL
        )
        assert status == abi.FL_OK

    def _hold(self, argument: Any, status: int) -> None:
        self._opened.wait()
        self.passed.set()

    def open(self) -> None:
        self._opened.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        # The callback must outlive its call.
        assert self.passed.wait(60)


def fail_next(stream: torch.Stream) -> None:
    """Let the next kernel, copy or fill on the stream fail when it is executed."""
    fault = plugin_of(stream.device_index).extension("fl.fault")
    assert fault is not None
    assert fault["fail_next"](handle(stream), abi.FL_ASYNC_FAILURE, ffi.NULL) == abi.FL_OK
