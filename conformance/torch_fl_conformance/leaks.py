"""What is left behind: slopes of memory, files, threads and mappings over cycles that must leave nothing.

A slope is the median step between windows of many cycles, after a warm-up, seen again in a second and a third batch
of windows, so that caches which fill once and pages that come and go are no leaks. Loops run in the driver's C helper.
What malloc has given out is known to a few bytes, so that one lost piece per cycle shows; a process grows by pages,
and only once the holes in its heap are full, but also where a plugin has an allocator of its own.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct
from torch_fl_conformance.effort import Effort
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.fixtures import FreshDriver
from torch_fl_conformance.ordering import eventually
from torch_fl_conformance.row import Row

WINDOWS = 7  # the first is the warm-up
BATCHES = 3
NOISE = {  # per cycle
    "device bytes": 0.0,
    "files": 0.0,
    "resident bytes": 16.0,
    "heap bytes": 8.0,
    # What is mapped and never touched shows here alone. The kernel joins neighbours that are alike into one mapping.
    "mappings": 0.5,
    "mapped bytes": 2048.0,
}
PAGES = 8 * 4096  # bytes by which resident memory may grow all in all: it comes in pages, and allocators keep some
BYTES = 4096
ATTEMPTS = 3


def memory_taken(abi: Abi, device: str, work: Callable[[], int | None]) -> dict[str, int]:
    """Free bytes before, during and after `work`, where they fell in each of some attempts; else nothing.

    work: returns the least that was free meanwhile, if it looked. Other processes may use the device too, and what
    they take looks like a leak; so one attempt without a loss acquits.
    """
    for _ in range(ATTEMPTS):
        before = abi.mem_info(device)[0]
        meanwhile = work()
        after = abi.mem_info(device)[0]
        least = after if meanwhile is None else min(meanwhile, after)
        if least >= before:
            return {}
    return {"before": before, "least": least, "after": after}


def check_leaks(row: Row, abi: Abi, effort: Effort) -> None:
    """Objects, memory, work, failures: none of them leaves anything."""
    few, many = effort.pick(100, 600), effort.pick(2000, 20_000)
    cycle: dict[str, Any] = {"name": "cycle", "threads": 1, "bytes": BYTES}
    work: dict[str, Any] = {"name": "work_cycle", "bytes": BYTES}
    timed = {name: abi.event(timing=True).ref for name in ("start", "end")}
    held = abi.alloc("d0", BYTES)
    total = abi.mem_info("d0")[1]
    loops: dict[str, tuple[int, dict[str, Any]]] = {
        "streams": (few, {**cycle, "what": "stream"}),
        "events": (many, {**cycle, "what": "event"}),
        "blocks": (many, {**cycle, "what": "alloc"}),
        "blocks of any size": (many, {"name": "alloc_storm", "threads": 1, "max_bytes": 100_000, "seed": 1}),
        "requests above every bound": (many, {**cycle, "what": "failed_alloc", "bytes": 1 << 62}),
        "requests that a device in use cannot meet": (many, {**cycle, "what": "failed_alloc", "bytes": total}),
        "records": (many, {"name": "elapsed_storm", "stream": abi.stream().ref, **timed}),
        "completed work": (effort.pick(500, 5000), {**work, "what": "completed"}),
        "streams destroyed with work pending": (few, {**work, "what": "destroyed"}),
        "refused calls": (effort.pick(300, 3000), {**work, "what": "refused"}),
    }
    whole = _largest(abi)
    for what, (count, command) in loops.items():
        noise = dict(NOISE)
        if command["name"] == "alloc_storm":
            # Where device memory is host memory, blocks of all sizes fragment its heap.
            del noise["resident bytes"], noise["mapped bytes"]
        _slope(row, abi, what, count, {"do": "loop", "device": 0, **command}, noise)
    if "fl.fault" in abi.driver.describe()["extensions"]:
        _refused_by_a_failed_stream(row, abi, effort.pick(40, 400))
    row.case(what="the largest block after all others were freed", bytes=whole)
    again = abi.call("memory.alloc", "d0", struct("fl_mem_alloc_args", {"bytes": whole}), out("uint64_t", save="whole"))
    row.check(again.ok, "freed memory is not there for a large block: pieces of it are lost or never joined")
    abi.ok("memory.free", "d0", "whole", whole)
    abi.free(held)


def _largest(abi: Abi) -> int:
    """Bytes of a block, as large a part of the free memory as can be had, that has just been taken and freed."""
    free, _ = abi.mem_info("d0")
    for parts in (15, 12, 8, 4, 2, 1):
        size = free // 16 * parts
        args = struct("fl_mem_alloc_args", {"bytes": size})
        result = abi.call("memory.alloc", "d0", args, out("uint64_t", save="whole"))
        if result.ok:
            abi.ok("memory.free", "d0", "whole", size)
            return size
    return BYTES


def _slope(row: Row, abi: Abi, what: str, count: int, command: dict[str, Any], noise: dict[str, float] = NOISE) -> None:
    """Windows of cycles; where one batch grows the next ones must grow too: a leak goes on, a cache fills."""
    for batch in range(BATCHES):
        samples: list[dict[str, int]] = []
        for window in range(WINDOWS):
            row.case(cycles=count, what=what, batch=batch, window=window)
            outcome = abi.driver.execute({**command, "count": count}, timeout=120.0)
            row.count(count)
            row.check(not outcome["failures"] and not outcome["wrong"], f"a cycle failed: {what}", **outcome)
            if window >= 1:
                samples.append(_resources(abi))
        # Threads of destroyed streams may take a moment to end.
        settled = eventually(_threads_within(abi, samples[0]["threads"] + 2), 5.0)
        row.check(settled, f"threads pile up over cycles: {what}", cycles=count, samples=samples)
        if not growing(count, samples, noise):
            return
    judge_steps(row, what, count, samples, noise)


def _threads_within(abi: Abi, most: int) -> Callable[[], bool]:
    return lambda: _resources(abi)["threads"] <= most


def growing(count: int, samples: list[dict[str, int]], noise: dict[str, float]) -> dict[str, list[int]]:
    """The steps of each resource that grows by more than its noise per cycle, in most windows and all in all."""
    found = {}
    for resource, most in noise.items():
        steps = [later[resource] - earlier[resource] for earlier, later in itertools.pairwise(samples)]
        enough = sum(steps) > (PAGES if resource == "resident bytes" else 0)
        if enough and statistics.median(steps) / count > most:
            found[resource] = steps
    return found


def _refused_by_a_failed_stream(row: Row, abi: Abi, count: int) -> None:
    """Copies of 16 KiB from the host that a poisoned stream refuses."""
    size = 4 * BYTES
    stream, block, buffer = abi.stream(), abi.alloc("d0", size), abi.host_buffer(size)
    abi.ok("fault.fail_next", stream, header.FL_ASYNC_FAILURE)
    abi.call("memory.fill", stream, block, 0, 0, 1, size)
    abi.call("stream.sync", stream, 20_000_000_000, timeout=20.0)
    samples = []
    for window in range(WINDOWS):
        row.case(cycles=count, what="copies refused by a failed stream", window=window)
        for _ in range(count):
            abi.expect(header.FL_ASYNC_FAILURE, "memory.copy", stream, abi.copy_args(block, buffer))
        if window >= 1:
            samples.append(_resources(abi))
    # The driver's own memory moves a little with every command.
    noise = {**NOISE, "resident bytes": float(BYTES), "mapped bytes": float(BYTES), "heap bytes": 512.0}
    judge_steps(row, "copies refused by a failed stream", count, samples, noise)
    abi.destroy(stream)
    abi.free(block)
    abi.release_host(buffer)


def judge_steps(row: Row, what: str, count: int, samples: list[dict[str, int]], noise: dict[str, float]) -> None:
    """Fail the row where a resource is `growing`."""
    for resource, steps in growing(count, samples, noise).items():
        per_cycle = statistics.median(steps) / count
        row.fail(f"{resource} leak over cycles: {what}", per_cycle=per_cycle, cycles=count, steps=steps)


def _resources(abi: Abi, device: str = "d0") -> dict[str, int]:
    proc = Path("/proc") / str(abi.driver.pid)
    free, total = abi.mem_info(device)
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    return {
        "device bytes": total - free,
        "files": len(list((proc / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "mappings": len((proc / "maps").read_text().splitlines()),
        "mapped bytes": int(status["VmSize"].split()[0]) * 1024,
        "resident bytes": int(status["RssAnon"].split()[0]) * 1024,
        "heap bytes": abi.driver.execute({"do": "resources"})["heap"],
    }


def check_reopening(row: Row, fresh_driver: FreshDriver, effort: Effort) -> None:
    """A closed device opens again, as good as new, however often; nothing of the earlier ones is left."""
    abi = Abi(fresh_driver())
    device = f"d{len(abi.devices) - 1}"
    index = int(device[1:])
    count_before = abi.ok("device.count", out("int32_t")).value
    samples: list[dict[str, int]] = []
    for cycle in range(effort.pick(24, 100)):
        row.case(what="close and open again", device=device, cycle=cycle)
        stream, block = abi.stream(device), abi.alloc(device, BYTES)
        abi.fill(stream, block, cycle % 256)
        row.check(abi.download(stream, block) == bytes([cycle % 256]) * BYTES, "a reopened device does not do its work")
        abi.destroy(stream)
        abi.free(block)
        abi.ok("device.close", device)
        opened = abi.call("device.open", index, struct("fl_device_open_args"), out("fl_device", save=device))
        row.check(opened.ok, f"{opened} for a device that was closed, expected OK")
        if cycle >= 3:
            samples.append(_resources(abi, device))
    row.check(abi.ok("device.count", out("int32_t")).value == count_before, "device_count has changed")
    noise = {"device bytes": 0.0, "files": 0.0, "threads": 0.0, "mappings": 0.0, "resident bytes": 4096.0}
    noise["heap bytes"] = 2048.0  # the driver notes the new handles
    judge_steps(row, "a device opened and closed", 1, samples, noise)
    second = abi.call("device.open", index, struct("fl_device_open_args"), out("fl_device"))
    refused = second.status == header.FL_FAILED_PRECONDITION
    row.check(refused, f"{second} for a second open, expected FAILED_PRECONDITION")
