"""Named driver threads: blocking plugin calls run on them while the judge goes on (cffi drops the GIL)."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any

Job = Callable[[], dict[str, Any]]


class _Worker:
    """One thread and the results that nobody has collected yet."""

    def __init__(self, name: str) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.results: list[dict[str, Any]] = []
        self.queued = 0  # jobs whose results have not been collected
        self.changed = threading.Condition()
        # A daemon: a call that never returns must not keep the driver from ending.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                result = job()
            except Exception as error:  # handed to the judge, whose command it was
                result = {"error": f"{type(error).__name__}: {error}"}
            with self.changed:
                self.results.append(result)
                self.changed.notify_all()

    def queue(self, job: Job) -> int:
        with self.changed:
            self.queued += 1
            self.jobs.put(job)
            return self.queued

    def join(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        with self.changed:
            while len(self.results) < self.queued:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            done, self.results = self.results, []
            self.queued -= len(done)
            pending = self.queued
        return {"done": done, "pending": pending}


class Crew:
    """The threads of a session, and the running command's GREASE generator on each."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._local = threading.local()

    def set_rng(self, seed: str | None) -> None:
        """What seeds the generator for the command that this thread now runs; None: GREASE is off."""
        self._local.seed = seed
        self._local.rng = None  # made when first asked for: many commands draw nothing

    @property
    def rng(self) -> random.Random | None:
        """This thread's generator; None where GREASE is off."""
        local = self._local
        if getattr(local, "seed", None) is None:
            return None
        if local.rng is None:
            local.rng = random.Random(local.seed)
        found: random.Random = local.rng
        return found

    def _worker(self, name: str) -> _Worker:
        if name not in self._workers:
            self._workers[name] = _Worker(name)
        return self._workers[name]

    def queue(self, name: str, job: Job) -> int:
        """Queue a job on a named thread; returns how many of its jobs await a join."""
        return self._worker(name).queue(job)

    def join(self, name: str, timeout: float) -> dict[str, Any]:
        """{"done": results since the last join, in order, "pending": n}, after at most `timeout` seconds."""
        if name not in self._workers:
            return {"done": [], "pending": 0}
        return self._workers[name].join(timeout)

    def stop(self, timeout: float = 5.0) -> None:
        """Let every thread end after its queued jobs; one that is stuck is left behind."""
        for worker in self._workers.values():
            worker.jobs.put(None)
        deadline = time.monotonic() + timeout
        for worker in self._workers.values():
            worker.thread.join(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
