"""Streams and events: torch.Stream and torch.Event of fl devices, so that each works wherever the other does."""

from __future__ import annotations

from typing import Any

import torch
from torch.types import Device

from torch_fl import _bridge

from .devices import _get_device_index

_DEVICE_TYPE: int = torch._C._autograd.DeviceType.PrivateUse1.value


class Stream(torch.Stream):
    """A stream of the device, one of 32 of that priority that take turns; lower priorities are more urgent.

    Priorities outside what the device has are clamped. Streams live until the process ends.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **existing: int) -> Stream:
        """existing: stream_id and device_index of a stream that is there already (device_type, too, is accepted)."""
        if existing:
            existing.setdefault("device_type", _DEVICE_TYPE)
            return super().__new__(cls, **existing)
        where = torch.device("fl", _get_device_index(device))
        return super().__new__(cls, where, priority=priority)

    @property
    def priority(self) -> int:
        return _bridge.stream_priority(self.device_index, self.stream_id)

    @property
    def native_handle(self) -> int:
        """The vendor's fl_stream. It changes when a stream that failed is renewed."""
        return _bridge.stream_handle(self.device_index, self.stream_id)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record the event, or a new one, after all work that the stream has been given so far; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.fl.Stream device=fl:{self.device_index} stream_id={self.stream_id}>"


class _FlEvents(type):
    """isinstance(e, torch.fl.Event): an event of an fl device, however it was made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "fl"


class Event(torch.Event, metaclass=_FlEvents):
    """A mark in a stream's work. It belongs to the device of the stream that it is first recorded on.

    Calling this gives a plain torch.Event: some of torch's functions take no subclass of it.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """blocking is accepted and changes nothing: waiting threads sleep anyway."""
        if interprocess:
            raise NotImplementedError("events of fl devices cannot be shared between processes")
        return torch.Event(torch.device("fl"), enable_timing=enable_timing)


def _stream(device_index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=device_index)


def current_stream(device: Device = None) -> Stream:
    """The stream that the calling thread's work on the device goes to."""
    index = _get_device_index(device)
    return _stream(index, _bridge.current_stream(index))


def default_stream(device: Device = None) -> Stream:
    """The stream that work goes to unless another is set."""
    index = _get_device_index(device)
    _bridge.stream_priority(index, 0)  # raises where there is no such device: torch would cut the number to 8 bits
    return _stream(index, 0)


def set_stream(stream: torch.Stream | None) -> None:
    """Make it the current stream of its device in the calling thread, and its device the current one."""
    if stream is None:
        return
    if stream.device.type != "fl":
        raise ValueError(f"expected a stream of an fl device, got one of {stream.device}")
    _bridge.set_stream(stream.device_index, stream.stream_id)
    _bridge.set_device(stream.device_index)


class StreamContext:
    """Context in which work goes to `stream`, and its device is the current one; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._former: tuple[Stream, int] | None = None

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self._former = current_stream(self.stream.device), _bridge.current_device()
            set_stream(self.stream)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._former is not None:
            stream, device = self._former
            set_stream(stream)
            _bridge.set_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """with torch.fl.stream(s): work of the calling thread goes to s."""
    return StreamContext(stream)
