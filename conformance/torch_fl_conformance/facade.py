"""The interface as a check sees it: `abi.call("memory.alloc", ...)`, and short words for what is common.

`call` returns what happened, whatever it was. Every other method expects FL_OK and fails the row otherwise
(`RuleViolated`, naming function, status and message), since a check that cannot even allocate has no power.
Objects made here are released by `release_all`, which the fixture `abi` calls after each row.

    stream = abi.stream("d0")
    block = abi.alloc("d0", 4096)
    abi.fill(stream, block, 0xA5)
    assert abi.download(stream, block) == b"\\xa5" * 4096
"""

from __future__ import annotations

from typing import Any

from torch_fl_spec import abi as header

from torch_fl_conformance.arguments import out, struct, task
from torch_fl_conformance.calls import Kept, table_of
from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.failures import DriverError
from torch_fl_conformance.handles import Block, Event, Gate, HostBuffer, Stream
from torch_fl_conformance.kernel_calls import KernelCalls
from torch_fl_conformance.moves import SYNC_NS

_RELEASE_ORDER = (Event, Stream, Block, HostBuffer)


class Abi(KernelCalls):
    """The interface through one driver. Devices are named "d0", "d1", ..."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._gates: list[Gate] = []
        self.canaries: dict[str, Any] = {}  # by device; see ordering
        self._uncertain: set[str] = set()

    # -- devices ------------------------------------------------

    def device_info(self, device: str) -> dict[str, Any]:
        """The device's part of `describe`."""
        return self.devices[int(device[1:])]

    def device_sync(self, device: str, timeout_ns: int = SYNC_NS) -> None:
        """Wait for all work of the device."""
        self.ok("device.sync", device, timeout_ns, timeout=timeout_ns / 1e9)

    # -- streams and events ------------------------------------------------

    def stream(self, device: str = "d0", priority: int = 0) -> Stream:
        """Create a stream."""
        name = self.driver.name("s")
        args = struct("fl_stream_create_args", {"priority": priority})
        self.ok("stream.create", device, args, out("fl_stream", save=name))
        return self.keep(Stream(name, device))

    def event(self, device: str = "d0", timing: bool = False) -> Event:
        """Create an event."""
        name = self.driver.name("e")
        args = struct("fl_event_create_args", {"flags": header.FL_EVENT_TIMING if timing else 0})
        self.ok("event.create", device, args, out("fl_event", save=name))
        return self.keep(Event(name, device))

    def destroy(self, handle: Stream | Event) -> None:
        """Destroy a stream or an event."""
        self._live.pop(handle.ref, None)
        self.ok(f"{table_of(handle)}.destroy", handle)

    def record(self, event: Event, stream: Stream) -> None:
        """Start a new generation of the event at the stream's end."""
        self.ok("event.record", event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        """Later work of the stream waits for the event's present generation."""
        self.ok("stream.wait_event", stream, event)

    def elapsed(self, start: Event, end: Event) -> int:
        """Nanoseconds between two completed records."""
        elapsed: int = self.ok("event.elapsed", start, end, out("int64_t")).value
        return elapsed

    # -- host tasks ------------------------------------------------

    def gate(self, stream: Stream, thread: str | None = None) -> Gate:
        """Stall the stream behind a closed gate. Only for ASYNC devices: INLINE ones would wait in this call.

        thread: submit it on the driver's thread of that name, behind the calls queued there.
        """
        gate = Gate(self.driver.name("g"), stream, self.driver, self.driver.starts)
        self.driver.execute({"do": "gate", "name": gate.ref})
        self._gates.append(gate)
        if thread is None:
            self.ok("stream.host_task", stream, task("gate", gate.ref))
        else:
            self.queue(thread, "stream.host_task", stream, task("gate", gate.ref))
        return gate

    def count_task(self, stream: Stream, counter: str) -> None:
        """Submit a host task that counts its calls under the name `counter` (see `driver.name`)."""
        self.ok("stream.host_task", stream, task("count", counter))

    def count(self, counter: str) -> dict[str, Any]:
        """{calls: how often, statuses: what each call was given}."""
        answer: dict[str, Any] = self.driver.execute({"do": "count", "name": counter})
        return answer

    def ticket_task(self, stream: Stream, tickets: str, value: int) -> None:
        """Submit a host task that appends `value` to the list `tickets`."""
        self.ok("stream.host_task", stream, task("ticket", tickets, value=value))

    def sync_storm(self, stream: Stream, record: str) -> None:
        """Wait for a loop's submits, however slow the device, as long as it gets on with their host tasks."""
        run = 0
        while True:
            result = self.call("stream.sync", stream, SYNC_NS, timeout=SYNC_NS / 1e9)
            before, run = run, len(self.tickets(record))
            if result.status != header.FL_TIMEOUT or run == before:
                break
        if not result.ok:
            self.refuse(result)

    def tickets(self, name: str) -> list[int]:
        """The values that ticket tasks have appended, in the order they ran."""
        answer = self.driver.execute({"do": "tickets", "name": name})
        return list(answer["values"] if isinstance(answer, dict) else answer)

    # -- the end of a row ------------------------------------------------

    def may_make(self, handle: Kept) -> str:
        """The ref of an out parameter: what a call leaves there, if it succeeds, is released after the row."""
        self._uncertain.add(handle.ref)
        return self.keep(handle).ref

    def release_all(self) -> None:
        """Open all gates, wait, destroy and free what is left; raises RuleViolated when that fails."""
        for gate in self._gates:
            gate.open()
        if not self._live:
            return
        for index in range(len(self.devices)):
            self.device_sync(f"d{index}", 5_000_000_000)
        for handle in sorted(self._live.values(), key=lambda live: _RELEASE_ORDER.index(type(live))):
            try:
                self._release(handle)
            except DriverError:  # no such object
                if handle.ref not in self._uncertain:
                    raise
        self.canaries.clear()

    def _release(self, handle: Stream | Event | Block | HostBuffer) -> None:
        if isinstance(handle, HostBuffer):
            self.release_host(handle)
        elif isinstance(handle, Block):
            self.free(handle)
        else:
            self.destroy(handle)
