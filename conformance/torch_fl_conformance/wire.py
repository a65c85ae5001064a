"""Length-prefixed JSON messages over a pipe: the one format that judge and driver share.

A plugin lives beside the driver's end of both pipes and can write into them or close them, by accident (a number
guessed, a loop over all descriptors) or on purpose; each message therefore carries its question's token.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable
from typing import Any

_PREFIX = struct.Struct("<Q")  # bytes of the JSON text that follows
_MOST_BYTES = 1 << 28  # of one message; bulk bytes travel in shared memory
_PART = 1 << 18  # bytes read at once: nearly every message whole

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

DESCRIPTORS_GONE = 119
"""Exit code of a driver whose pipes were closed from inside its own process."""


class Closed(Exception):
    """The other end is gone."""


class Garbled(Exception):
    """Bytes that are no message of ours: somebody else has written into the pipe."""


class TimedOut(Exception):
    """The message was not complete in time."""


def send(fd: int, message: Any) -> None:
    """Write one message; raises Closed when nobody reads, OSError when `fd` is open no more."""
    send_within(fd, message, None, lambda: True)


def send_within(fd: int, message: Any, seconds: float | None, alive: Callable[[], bool]) -> None:
    """Write one message within `seconds`: a stopped reader must not stop a writer whose `fd` does not block.

    Raises TimedOut, Closed, or OSError when `fd` is open no more.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    body = _encode(message).encode()
    view = memoryview(_PREFIX.pack(len(body)) + body)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BrokenPipeError as error:
            raise Closed from error
        except BlockingIOError:
            _wait(fd, select.POLLOUT, deadline, alive)


def receive(fd: int) -> Any:
    """Block for one message; raises Closed at the end of the stream."""
    return receive_within(fd, None, lambda: True)


def receive_within(fd: int, seconds: float | None, alive: Callable[[], bool]) -> Any:
    """One message within `seconds`.

    `alive` is asked every 50 ms without data, since a forked child of a dead process can keep the pipe open.
    Raises TimedOut, Closed, Garbled, or OSError when `fd` is open no more.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    message = _more(fd, b"", _PREFIX.size, deadline, alive)
    (length,) = _PREFIX.unpack_from(message)
    if length > _MOST_BYTES:
        raise Garbled(f"a message of {length} bytes")
    message = _more(fd, message, _PREFIX.size + length, deadline, alive)
    if len(message) > _PREFIX.size + length:
        raise Garbled("bytes behind a message")
    try:
        return json.loads(message[_PREFIX.size :])
    except ValueError as error:
        raise Garbled(str(error)) from None


def _more(fd: int, have: bytes, count: int, deadline: float | None, alive: Callable[[], bool]) -> bytes:
    """What there is of a message: `have` and what comes, at least `count` bytes."""
    parts = [have]
    got = len(have)
    while got < count:
        if deadline is not None:
            _wait(fd, select.POLLIN, deadline, alive)
        part = os.read(fd, _PART)
        if not part:
            raise Closed
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _wait(fd: int, event: int, deadline: float | None, alive: Callable[[], bool]) -> None:
    poller = select.poll()
    poller.register(fd, event)
    while not poller.poll(50):
        if not alive() and not poller.poll(0):
            raise Closed
        if deadline is not None and time.monotonic() > deadline:
            raise TimedOut
