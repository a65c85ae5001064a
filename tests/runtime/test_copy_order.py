"""Copies in the order of streams: after what was there, before what comes, and waiting for nothing that can wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch_fl import _bridge as bridge
from torch_fl import fl

from .stalling import Gate, fail_next

pytestmark = pytest.mark.usefixtures("devices")

STREAMS = ("default", "side")


@contextlib.contextmanager
def on(kind: str, device: str) -> Iterator[torch.Stream]:
    """The device's default stream or a side stream as current stream."""
    stream = fl.Stream(device) if kind == "side" else fl.default_stream(device)
    with fl.stream(stream):
        yield stream


class Task:
    """A function in a thread, which must not be done before somebody lets it."""

    def __init__(self, function: object) -> None:
        self.done = threading.Event()
        self._function = function
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function()  # type: ignore[operator]
        except BaseException as error:
            self._error = error
        self.done.set()

    def finish(self) -> None:
        """Wait for its end; raises what it raised."""
        assert self.done.wait(60)
        self._thread.join()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("first", ["source", "target"])
@pytest.mark.parametrize("streams", [(a, b) for a in STREAMS for b in STREAMS], ids="-".join)
def test_between_devices_of_one_vendor(streams: tuple[str, str], first: str) -> None:
    with on(streams[0], "fl:0") as source_stream, on(streams[1], "fl:1") as target_stream:
        source = torch.zeros(1000, device="fl:0")
        target = torch.zeros(1000, device="fl:1")
        after = torch.zeros(1000, device="fl:1")
        with Gate(source_stream) as source_gate, Gate(target_stream) as target_gate:
            source.fill_(5)  # the copy reads this
            target.fill_(7)  # and is not overwritten by this
            target.copy_(source)
            source.fill_(6)  # too late
            after.copy_(target)  # reads the copy
            # Time for what does not wait for the other stream, as it should.
            (source_gate if first == "source" else target_gate).open()
            time.sleep(0.05)
        assert after.cpu().eq(5).all()
        assert target.cpu().eq(5).all()
        assert source.cpu().eq(6).all()


@pytest.mark.parametrize("streams", [(a, b) for a in STREAMS for b in STREAMS], ids="-".join)
@pytest.mark.parametrize("pair", [("fl:0", "fl:2"), ("fl:2", "fl:0")], ids="-".join)
def test_between_vendors(pair: tuple[str, str], streams: tuple[str, str]) -> None:
    with on(streams[0], pair[0]) as source_stream, on(streams[1], pair[1]) as target_stream:
        stalled = source_stream if pair[0] == "fl:0" else target_stream
        source = torch.zeros(1000, device=pair[0])
        target = torch.zeros(1000, device=pair[1])

        def work() -> None:
            with fl.stream(source_stream), fl.stream(target_stream):
                source.fill_(5)
                target.fill_(7)
                target.copy_(source)
                source.fill_(6)

        waits = bridge.host_waits()
        with Gate(stalled) as gate:
            task = Task(work)
            if stalled is source_stream:
                assert not task.done.wait(0.1)  # the host waits for the source
                gate.open()
                task.finish()
                assert bridge.host_waits() == waits + 1
            else:
                assert task.done.wait(60)  # and not for the target
                task.finish()
        assert target.cpu().eq(5).all()
        assert source.cpu().eq(6).all()


@pytest.mark.parametrize("stream", STREAMS)
def test_ordinary_host_memory_is_captured(stream: str) -> None:
    host = torch.full((1000,), 5.0)
    with on(stream, "fl:0") as current:
        with Gate(current):
            targets = [host.to("fl:0", non_blocking=non_blocking) for non_blocking in (False, True)]
            targets.append(torch.empty(1000, dtype=torch.float64, device="fl:0").copy_(host, non_blocking=True))
            targets.append(torch.empty(2000, device="fl:0")[::2].copy_(host, non_blocking=True))
            host.fill_(6)
        assert all(target.cpu().eq(5).all() for target in targets)


@pytest.mark.parametrize("stream", STREAMS)
def test_pinned_memory_is_read_when_the_stream_comes_to_it(stream: str) -> None:
    pinned = torch.full((1000,), 5.0).pin_memory()
    with on(stream, "fl:0") as current:
        with Gate(current):
            target = pinned.to("fl:0", non_blocking=True)
            pinned.fill_(6)
        assert target.cpu().eq(6).all()


def test_pinned_memory_is_not_reused_while_a_copy_reads_it() -> None:
    sizes = 12345
    targets = []
    with Gate(fl.current_stream(0)):
        for value in range(20):
            pinned = torch.full((sizes,), float(value)).pin_memory()
            targets.append(pinned.to("fl:0", non_blocking=True))
            del pinned
    assert [target[sizes - 1].item() for target in targets] == list(range(20))
    assert all(target.cpu().eq(value).all() for value, target in enumerate(targets))


def test_blocking_copy_from_pinned_memory_waits() -> None:
    pinned = torch.full((1000,), 5.0).pin_memory()
    target = torch.zeros(1000, device="fl:0")
    with Gate(fl.current_stream(0)) as gate:
        task = Task(lambda: target.copy_(pinned))
        assert not task.done.wait(0.1)
        gate.open()
        task.finish()
    pinned.fill_(6)
    assert target.cpu().eq(5).all()


@pytest.mark.parametrize("stream", STREAMS)
def test_reading_waits(stream: str) -> None:
    with on(stream, "fl:0") as current:
        source = torch.zeros(1000, device="fl:0")
        read: list[torch.Tensor] = []

        def reads() -> None:
            with fl.stream(current):
                read.append(source.cpu())
                read.append(torch.empty(1000).copy_(source, non_blocking=True))
                read.append(source[5])
                assert source[5].item() == 5

        with Gate(current) as gate:
            source.fill_(5)
            task = Task(reads)
            assert not task.done.wait(0.1)
            gate.open()
            task.finish()
        assert all(values.eq(5).all() for values in read)


def test_reading_into_pinned_memory_does_not_wait() -> None:
    source = torch.zeros(1000, device="fl:0")
    pinned = torch.zeros(1000).pin_memory()
    with Gate(fl.current_stream(0)):
        source.fill_(5)
        pinned.copy_(source, non_blocking=True)
        assert pinned.eq(0).all()
    fl.synchronize(0)
    assert pinned.eq(5).all()


def test_memory_of_a_copy_is_not_reused_too_early() -> None:
    with on("side", "fl:0") as current, Gate(current):
        targets = []
        for value in range(20):
            source = torch.full((5000,), float(value), device="fl:0")
            targets.append(source.to("fl:1"))
            del source
    for value, target in enumerate(targets):
        assert target.cpu().eq(value).all()


@pytest.mark.parametrize("target", ["cpu", "fl:0", "fl:2"])
def test_a_failed_stream_surfaces_once(target: str) -> None:
    with on("side", "fl:0") as current:
        source = torch.zeros(1000, device="fl:0")
        fail_next(current)
        source.fill_(1)
        with pytest.raises(RuntimeError, match=r"fl:0.*reference"):
            source.to(target, copy=True).cpu()
        assert torch.full((10,), 3.0, device="fl:0").to(target, copy=True).cpu().eq(3).all()


def test_copies_between_vendors_under_load() -> None:
    copies, threads = 10_000, 4
    rounds = copies // threads // 2
    wrong: list[str] = []

    def work(seed: int) -> None:
        source, target = ("fl:0", "fl:2") if seed % 2 else ("fl:3", "fl:1")
        with fl.stream(fl.Stream(source)), fl.stream(fl.Stream(target)):
            values = torch.randint(-(2**31), 2**31 - 1, (1 + 97 * seed,), dtype=torch.int32)
            for turn in range(rounds):
                there = (values + turn).to(source).to(target)
                there.add_(1)
                if not torch.equal(there.to(source).cpu(), values + (turn + 1)):
                    wrong.append(f"{source} to {target}, turn {turn}")

    stop = threading.Event()

    def load() -> None:
        a = torch.randn(64, 64, device="fl:0")
        with fl.stream(fl.Stream("fl:0")):
            while not stop.is_set():
                a = (a @ a).clamp(-1, 1)
                fl.synchronize(0)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    burner = threading.Thread(target=load)
    for thread in (burner, *workers):
        thread.start()
    for worker in workers:
        worker.join()
    stop.set()
    burner.join()
    assert wrong == []
