"""Verdicts from outcomes, the closed set of rows, transcripts, locks and order evidence, each by itself."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_fl_conformance import completion, verdicts
from torch_fl_conformance import row as row_module
from torch_fl_conformance.driver_client import DriverConfig
from torch_fl_conformance.effort import Effort, row_seed
from torch_fl_conformance.exclusive import DeviceLock
from torch_fl_conformance.failures import DriverCrashed, DriverHung, NotClaimed, RuleViolated
from torch_fl_conformance.ordering import ROUND_TRIPS, WINDOW_SECONDS, still_pending
from torch_fl_conformance.row import Row
from torch_fl_conformance.settings import RunSettings
from torch_fl_conformance.shared_memory import SharedMemory
from torch_fl_conformance.transcript import Transcript
from torch_fl_conformance.verdicts import Collateral, judge
from torch_fl_spec.loader import PluginRefused

DEVICE = {
    "index": 0, "name": "card", "uuid": "00" * 16, "execution_model": "ASYNC", "independent_streams": 1,
    "priority_least": 0, "priority_greatest": 0, "address_model": "LINEAR", "alloc_align": 64, "max_align": 4096,
    "alloc_may_wait": 0, "host_accessible": 0, "total_bytes": 1 << 30, "timer_resolution_ns": 1, "numa_node": -1,
}  # fmt: skip


def a_row(**more: Any) -> Row:
    return Row("FL-MEM-002", "memory", "rule", **more)


def settings_of(execution_model: str = "ASYNC", library: str = "/x.so", sha256: str = "00" * 32) -> RunSettings:
    description = {
        "name": "fake", "version": "1", "devices": [{**DEVICE, "execution_model": execution_model}],
        "kernels": [[]], "extensions": {},
    }  # fmt: skip
    return RunSettings(
        vendor="fake", profile="core", effort=Effort("quick"), seed=1, in_process=False, report="/r", staging="/s",
        options={}, driver=DriverConfig(library), description=description, libraries=[], healthy=True,
        plugin={"name": "x.so", "sha256": sha256, "size": 1},
    )  # fmt: skip


# -- verdicts ------------------------------------------------


def test_a_check_that_ran_no_case_has_no_power() -> None:
    assert judge(a_row(), None).verdict == "no-power"


def test_a_required_label_that_was_not_met_is_no_power() -> None:
    row = a_row()
    row.case()
    row.require("square", "tail")
    row.label("square")
    judged = judge(row, None)
    assert (judged.verdict, "tail" in str(judged.message), "square" in str(judged.message)) == ("no-power", True, False)
    row.label("tail")
    assert judge(row, None).verdict == "pass"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RuleViolated("wrong"), "fail"),
        (DriverCrashed(-11, {"do": "describe"}, ""), "crash"),
        (DriverHung(30.0, {"do": "describe"}, ""), "hang"),
        (Collateral("broken"), "collateral"),
        (PluginRefused(["no"]), "fail"),
        (AssertionError("a bare assert"), "error"),
        (KeyError("bug"), "error"),
    ],
)
def test_each_ending_has_its_verdict(error: BaseException, verdict: str) -> None:
    assert judge(a_row(), error).verdict == verdict


def test_the_facts_of_the_failing_case_are_kept() -> None:
    row = a_row()
    row.case(shape=(3, 4))
    with pytest.raises(RuleViolated) as caught:
        row.check(False, "wrong", got=1)
    assert judge(row, caught.value).case == {"shape": (3, 4), "got": 1}


def test_not_claimed_needs_permission() -> None:
    permitted, required = a_row(may_be_not_claimed=True), a_row()
    assert judge(permitted, NotClaimed("no fl.fault")).verdict == "not-claimed"
    assert "requires" in str(judge(required, NotClaimed("no fl.fault")).message)


def test_the_worst_error_is_the_largest_and_a_wrong_class_beats_all() -> None:
    row = a_row()
    for ratio in (0.5, math.nan, 3.0):
        row.worst(ratio, {"ratio": str(ratio)})
    assert row.data()["worst"] == {"err_over_t": "nan", "where": {"ratio": "nan"}}


def test_row_data_is_plain() -> None:
    import numpy

    assert row_module.plain({"a": numpy.float32(1.5), "b": (numpy.int64(2), math.inf)}) == {"a": 1.5, "b": [2, "inf"]}


def a_bug() -> None:
    raise RuntimeError("bug\nin two lines")


def test_the_traceback_of_an_error_shows_no_pytest_frames() -> None:
    call = pytest.CallInfo.from_call(a_bug, when="call")
    assert call.excinfo is not None
    assert any("/_pytest/" in str(entry.path) for entry in call.excinfo.traceback)
    judged = verdicts.judge(a_row(), call.excinfo.value)
    assert judged.message == "RuntimeError: in two lines"
    assert "/_pytest/" not in judged.detail
    assert "in a_bug" in judged.detail


# -- the closed set ------------------------------------------------


def passing(settings: RunSettings, **labels: int) -> dict[str, dict[str, Any]]:
    return {
        row.id: {"id": row.id, "kind": "rule", "chapter": row.chapter, "rule": row.id, "verdict": "pass", "cases": 1,
                 "seconds": 0.0, "labels": {"hit": labels, "required": []}}
        for row in settings.rows
        if row.kind == "rule"
    }  # fmt: skip


def verdict_of(rows: list[dict[str, Any]], row_id: str) -> Any:
    (row,) = [row for row in rows if row["id"] == row_id]
    return row["verdict"]


def test_a_row_without_a_verdict_is_an_error_and_an_unclaimed_one_is_not() -> None:
    settings = settings_of()
    came = passing(settings, gated=1)
    del came["FL-MEM-002"]
    rows = completion.complete(came, [], settings, fill=True)
    assert [row["id"] for row in rows] == [row.id for row in settings.rows]
    assert verdict_of(rows, "FL-MEM-002") == "error"
    assert {row["verdict"] for row in rows if row["kind"] == "operator"} == {"not-claimed"}


def test_a_row_that_came_twice_is_an_error() -> None:
    settings = settings_of()
    rows = completion.complete(passing(settings, gated=1), ["FL-MEM-002"], settings, fill=True)
    assert verdict_of(rows, "FL-MEM-002") == "error"


def test_a_run_cut_short_shows_what_it_has_seen() -> None:
    settings = settings_of()
    one = {"FL-MEM-002": passing(settings)["FL-MEM-002"]}
    assert [row["id"] for row in completion.complete(one, [], settings, fill=False)] == ["FL-MEM-002"]


@pytest.mark.parametrize(
    ("model", "labels", "verdict"),
    [("ASYNC", {}, "no-power"), ("ASYNC", {"gated": 2}, "pass"), ("INLINE", {}, "pass")],
)
def test_an_async_device_needs_a_gated_row(model: str, labels: dict[str, int], verdict: str) -> None:
    settings = settings_of(model)
    rows = completion.complete(passing(settings, **labels), [], settings, fill=True)
    assert verdict_of(rows, "FL-STREAM-008") == verdict


def test_settings_reach_workers_unchanged() -> None:
    import json

    settings = settings_of()
    again = RunSettings.from_plain(json.loads(json.dumps(settings.to_plain())))
    assert again == settings
    assert [row.id for row in again.rows] == [row.id for row in settings.rows]


def test_row_seeds_are_stable_and_differ() -> None:
    assert row_seed(1, "FL-MEM-002") == row_seed(1, "FL-MEM-002") == 17769927316579879548
    assert len({row_seed(seed, row) for seed in range(20) for row in ("a", "b")}) == 40


# -- transcripts ------------------------------------------------


def alloc(name: str) -> dict[str, Any]:
    return {"do": "call", "fn": "memory.alloc", "args": [{"ref": "d0"}, {"out": "uint64_t", "save": name}]}


def free(name: str) -> dict[str, Any]:
    return {"do": "call", "fn": "memory.free", "args": [{"ref": "d0"}, {"ref": name}, 64]}


def test_a_case_is_replayed_alone_unless_it_needs_an_earlier_one() -> None:
    memory = SharedMemory(4096)
    transcript = Transcript()
    transcript.add(alloc("shared"), memory)
    transcript.begin_case()
    transcript.add(alloc("first"), memory)
    transcript.begin_case()
    transcript.add(free("shared"), memory)
    assert transcript.commands()[1:] == [alloc("shared"), free("shared")]
    transcript.add(free("first"), memory)
    assert transcript.commands()[1:] == [alloc("shared"), alloc("first"), free("shared"), free("first")]


def test_input_bytes_are_kept_wherever_a_command_names_them() -> None:
    memory = SharedMemory(4096)
    memory.renew()
    transcript = Transcript()
    transcript.begin_case()
    first, second, third = (memory.place(bytes([byte]) * 9) for byte in (1, 2, 3))
    command = {
        "do": "kernel_case", "blocks": [{"name": "x", "bytes": 9, "image": first}, {"name": "y", "bytes": 9}],
        "results": {"x": memory.room(9)}, "again": [{"images": {"x": second}}], "tensors": {"x": {"sizes": [3, 3]}},
        "args": [1, {"struct": "s", "fields": {"p": {"memory": third}}}],
    }  # fmt: skip
    transcript.add(command, memory)
    memory.reset()
    memory.place(bytes(600))
    noted = transcript.commands()[-1]
    named = [
        noted["blocks"][0]["image"], noted["again"][0]["images"]["x"], noted["args"][1]["fields"]["p"]["memory"]
    ]  # fmt: skip
    assert [transcript.blobs[blob["blob"]] for blob in named] == [bytes([byte]) * 9 for byte in (1, 2, 3)]
    assert noted["results"] == command["results"]
    assert command["blocks"] == [{"name": "x", "bytes": 9, "image": first}, {"name": "y", "bytes": 9}]


def test_bytes_of_earlier_cases_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_fl_conformance.transcript.MOST_BYTES", 100)
    memory = SharedMemory(4096)
    memory.renew()
    transcript = Transcript()
    transcript.add({"do": "host_write", "name": "kept", "mem": memory.place(b"k" * 40)}, memory)
    for byte in b"abcd":
        transcript.begin_case()
        transcript.add({"do": "host_write", "name": "case", "mem": memory.place(bytes([byte]) * 40)}, memory)
    assert sorted(transcript.blobs.values()) == [b"c" * 40, b"d" * 40, b"k" * 40]


# -- the lock between rows ------------------------------------------------


def _hold(uuid: str, exclusive: bool, log: Any, seconds: float) -> None:
    with DeviceLock([uuid]).hold(exclusive):
        log.append(("in", exclusive, time.monotonic()))
        time.sleep(seconds)
        log.append(("out", exclusive, time.monotonic()))


def _run_holders(kinds: list[bool], tmp_path: Path) -> list[tuple[str, bool, float]]:
    with multiprocessing.Manager() as manager:
        log: Any = manager.list()
        context = multiprocessing.get_context("fork")
        holders = [context.Process(target=_hold, args=(str(tmp_path), kind, log, 0.3)) for kind in kinds]
        for holder in holders:
            holder.start()
        for holder in holders:
            holder.join()
        return sorted(log, key=lambda entry: entry[2])


def test_ordinary_rows_share_the_device(tmp_path: Path) -> None:
    assert [kind for kind, _, _ in _run_holders([False, False], tmp_path)] == ["in", "in", "out", "out"]


def test_an_exclusive_row_has_it_alone(tmp_path: Path) -> None:
    log = _run_holders([False, True, False], tmp_path)
    place = next(index for index, (kind, exclusive, _) in enumerate(log) if exclusive and kind == "in")
    assert log[place + 1][:2] == ("out", True)
    assert sum(1 if kind == "in" else -1 for kind, _, _ in log[:place]) == 0


# -- order evidence ------------------------------------------------


class _Canaries:
    """A device whose round trips are counted, in place of Abi."""

    def __init__(self) -> None:
        self.driver = self
        self.trips = 0

    def device_info(self, device: str) -> dict[str, Any]:
        return {"independent_streams": 0}

    def execute(self, command: dict[str, Any]) -> None:
        self.trips += 1


def run_pending(happened: Callable[[_Canaries], bool]) -> tuple[Row, _Canaries]:
    row, abi = a_row(), _Canaries()
    still_pending(abi, row, lambda: happened(abi), "it ran early")  # type: ignore[arg-type]
    return row, abi


def test_still_pending_waits_for_window_and_canary() -> None:
    began = time.monotonic()
    row, abi = run_pending(lambda abi: False)
    assert abi.trips >= ROUND_TRIPS
    assert time.monotonic() - began >= WINDOW_SECONDS
    assert row.hit["gated"] == 1


@pytest.mark.parametrize("after", [0, 5, ROUND_TRIPS])
def test_still_pending_notices_what_happens_meanwhile(after: int) -> None:
    with pytest.raises(RuleViolated, match="it ran early"):
        run_pending(lambda abi: abi.trips >= after)
