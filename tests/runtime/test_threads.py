"""Many Python threads on several devices at once: right values, and nothing is left over."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_fl import fl

pytestmark = pytest.mark.usefixtures("devices")

THREADS = 8
OPERATIONS = 10_000  # of each thread on each device
PER_STEP = 5
CHECKED = 100  # steps between two looks at the values
MODULUS = 2**16


def held(devices: tuple[str, str]) -> dict[str, Any]:
    """What a leak would add to; memory that is kept for later goes back first."""
    gc.collect()
    for device in devices:
        fl.synchronize(device)
    fl.empty_cache()
    return {
        "allocated": [fl.memory_allocated(device) for device in devices],
        "reserved": [fl.memory_reserved(device) for device in devices],
        "blocks": [fl.memory_stats(device)["allocation.all.current"] for device in devices],
        "segments": [fl.memory_stats(device)["segment.all.current"] for device in devices],
        "of the vendor": [total - free for free, total in map(fl.mem_get_info, devices)],
        "threads": len(list(Path("/proc/self/task").iterdir())),  # a vendor's stream has one
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


class Counting:
    """A number per device that changes step by step, by operations with known results."""

    def __init__(self, number: int, devices: tuple[str, str]) -> None:
        self._number = number
        self._expected = number
        self._states = [torch.full((3 + number,), number, device=device) for device in devices]

    def step(self, turn: int) -> None:
        """PER_STEP operations on each device, of every kind: new results, in place, broadcast, by views."""
        self._expected = (self._expected * 3 + turn + self._number) % MODULUS
        for place, state in enumerate(self._states):
            changed = state * 3
            changed.add_(turn)
            changed[1:].add_(self._number)
            changed[:1].add_(self._number)
            self._states[place] = changed & (MODULUS - 1)

    def is_right(self) -> bool:
        return all(state.tolist() == [self._expected] * (3 + self._number) for state in self._states)


def run(devices: tuple[str, str], streams: list[list[fl.Stream]], steps: int) -> list[str]:
    """What was wrong in any of the threads, which work on a stream of each device."""
    wrong: list[str] = []
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        try:
            with fl.stream(streams[number][0]), fl.stream(streams[number][1]):
                counting = Counting(number, devices)
                start.wait()
                for turn in range(steps):
                    counting.step(turn)
                    if turn % CHECKED == CHECKED - 1 and not counting.is_right():
                        wrong.append(f"thread {number}, step {turn}")
                        return
        except Exception as error:
            start.abort()
            wrong.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@pytest.mark.parametrize("pair", [("fl:0", "fl:1"), ("fl:2", "fl:3"), ("fl:1", "fl:2")], ids="-".join)
def test_many_operations(pair: tuple[str, str]) -> None:
    # Every second thread has streams of its own, the others share the default ones.
    streams = [
        [fl.Stream(device) if number % 2 else fl.default_stream(device) for device in pair] for number in range(THREADS)
    ]
    assert run(pair, streams, CHECKED) == []  # streams and caches come into being
    before = held(pair)
    assert run(pair, streams, OPERATIONS // PER_STEP) == []
    after = held(pair)
    for ends_by_itself in ("threads", "files"):  # those of an earlier test may do so meanwhile
        assert after.pop(ends_by_itself) <= before.pop(ends_by_itself)
    assert after == before
