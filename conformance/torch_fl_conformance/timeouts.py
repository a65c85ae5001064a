"""What a timeout means: nanoseconds, 0 polls, UINT64_MAX has no limit, and never FL_TIMEOUT before its time.

Source: SPEC.md, section 5, "Precisely".
"""

from __future__ import annotations

import time
from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.facade import Abi
from torch_fl_conformance.row import Row

NO_LIMIT = 2**64 - 1
# Long ones: no limit, what looks negative in 64 bits, what is 0 or short in 32 bits of nanoseconds, and 20 s.
LONG = (NO_LIMIT, 2**63, 2**63 - 1, 10_000_000_000_000_000, 5 * 2**32, 20_000_000_000)
SHORT_NS = 30_000_000
PATIENCE = 0.3  # seconds after which none of the long waits may have returned
SLOW = 1.5  # seconds: what a loaded machine may add to a short timeout before it counts as another unit


def check_timeouts(row: Row, abi: Abi) -> None:
    """stream_sync, event_sync and device_sync on pending work, short timeouts and long ones."""
    stream, event = abi.stream(), abi.event()
    gate = abi.gate(stream)
    abi.record(event, stream)
    waits: tuple[tuple[str, Any], ...] = (("stream.sync", stream), ("event.sync", event), ("device.sync", "d0"))
    for function, handle in waits:
        for timeout in (0, 1_000_000, SHORT_NS):
            row.case(function=function, timeout_ns=timeout)
            abi.queue("poller", function, handle, timeout)
            results, pending = abi.join("poller", 10.0)
            if pending:
                gate.open()
                row.fail(f"{function} with a timeout of {timeout} ns was still waiting after 10 s")
            result = results[-1]
            row.check(result.status_name == "TIMEOUT", f"{result} on pending work, expected TIMEOUT")
            row.check(
                timeout / 1e9 <= result.seconds + 0.001, f"{function} gave up early", seconds=round(result.seconds, 6)
            )
            quickest = result.seconds
            for _ in range(2):  # a loaded machine holds up single calls
                if quickest >= timeout / 1e9 + SLOW:
                    quickest = min(quickest, abi.call(function, handle, timeout).seconds)
            row.check(quickest < timeout / 1e9 + SLOW, f"{function} gave up late", seconds=round(quickest, 3))
    threads = []
    for function, handle in waits:
        for timeout in LONG:
            threads.append((f"{function} {timeout}", function, timeout))
            abi.queue(threads[-1][0], function, handle, timeout)
    row.case(what="long timeouts, all at once")
    time.sleep(PATIENCE)
    early = []
    for thread, _, _ in threads:
        results, pending = abi.join(thread, 0.0)
        if not pending:
            early.append((thread, results[-1].status_name))
    row.check(not early, "a wait of seconds or without limit returned at once", returned=early[:3])
    gate.open()
    for thread, function, timeout in threads:
        row.case(function=function, timeout_ns=timeout)
        results, pending = abi.join(thread, 20.0)
        row.check(not pending, f"one of several threads that wait by {function} was never woken")
        row.check(results[-1].status == header.FL_OK, f"{results[-1]} after the work had completed, expected OK")
    for function, handle in waits:
        row.case(function=function, timeout_ns=0)
        row.check(abi.call(function, handle, 0).ok, f"{function} with timeout 0 on completed work is not OK")
