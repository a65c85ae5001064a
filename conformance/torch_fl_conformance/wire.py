"""Length-prefixed JSON messages over a pipe: the one format that judge and driver share."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable
from typing import Any

_PREFIX = struct.Struct("<Q")  # bytes of the JSON text that follows


class Closed(Exception):
    """The other end is gone."""


class TimedOut(Exception):
    """The message was not complete in time."""


def send(fd: int, message: Any) -> None:
    """Write one message; raises Closed when nobody reads."""
    body = json.dumps(message, separators=(",", ":")).encode()
    view = memoryview(_PREFIX.pack(len(body)) + body)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except (BrokenPipeError, OSError) as error:
        raise Closed from error


def receive(fd: int) -> Any:
    """Block for one message; raises Closed at the end of the stream."""
    return receive_within(fd, None, lambda: True)


def receive_within(fd: int, seconds: float | None, alive: Callable[[], bool]) -> Any:
    """One message within `seconds`.

    `alive` is asked every 50 ms without data, since a forked child of a dead process can keep the pipe open.
    Raises TimedOut or Closed.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    (length,) = _PREFIX.unpack(_exactly(fd, _PREFIX.size, deadline, alive))
    return json.loads(_exactly(fd, length, deadline, alive))


def _exactly(fd: int, count: int, deadline: float | None, alive: Callable[[], bool]) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            _wait_readable(fd, deadline, alive)
        part = os.read(fd, min(count - len(parts), 1 << 20))
        if not part:
            raise Closed
        parts += part
    return bytes(parts)


def _wait_readable(fd: int, deadline: float, alive: Callable[[], bool]) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while not poller.poll(50):
        if not alive() and not poller.poll(0):
            raise Closed
        if time.monotonic() > deadline:
            raise TimedOut
