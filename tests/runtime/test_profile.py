"""`torch_fl.profile()`: what it counts is exact, in every thread; and what torch's own profiler shows of fl devices."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_fl
from torch_fl import _bridge, fl
from torch_fl.profiler import OUTSIDE, Measurement, OperatorProfile, Profile

from .processes import prints
from .stalling import Gate, fail_next

pytestmark = pytest.mark.usefixtures("devices")

ASYNC, INLINE = "fl:0", "fl:2"
BOTH = (ASYNC, INLINE)
SQUARE_BYTES = 4 * 4 * 4  # 4 x 4 float32


def square() -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(1))


def row(profile: Profile, operator: str, tier: str, device: str) -> OperatorProfile:
    """The only row of that name."""
    found = [each for each in profile.operators if (each.operator, each.tier, each.device) == (operator, tier, device)]
    assert len(found) == 1, str(profile)
    return found[0]


def counted(profile: Profile) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Operator and tier -> calls, waits, bytes to the device, bytes to the host; leaves out who only makes tensors."""
    return {
        (each.operator, each.tier): (each.calls, each.waits, each.bytes_to_device, each.bytes_to_host)
        for each in profile.operators
        if not each.operator.startswith("aten::empty")
    }


# ---- What is counted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", BOTH)
def test_calls_tiers_bytes_and_waits_of_a_known_program(place: str) -> None:
    fl.synchronize(place)
    with torch_fl.profile() as p:
        x = square().to(place)
        y = torch.mm(x, x)
        torch.mm(x, y, out=y)  # no kernel writes what it reads
        for _ in range(3):
            y = torch.relu(y)
        torch.lgamma(x)
        y.zero_()
        assert y[0, 0].item() == 0.0
        fl.synchronize(place)
    assert counted(p) == {
        ("aten::copy_", "memory"): (1, 0, SQUARE_BYTES, 0),
        ("aten::mm", "native"): (1, 0, 0, 0),
        ("aten::mm.out", "relayout"): (1, 0, 0, 0),
        ("aten::relu", "native"): (3, 0, 0, 0),
        ("aten::lgamma.out", "cpu"): (1, 1, SQUARE_BYTES, SQUARE_BYTES),
        ("aten::zero_", "memory"): (1, 0, 0, 0),
        ("aten::_local_scalar_dense", "memory"): (1, 1, 0, 4),
        (OUTSIDE, "host"): (1, 1, 0, 0),
    }
    assert {each.device for each in p.operators} == {place}


def test_what_an_operator_is_composed_of_has_rows_and_times_of_its_own() -> None:
    x = square().to(INLINE)
    with torch_fl.profile() as p:
        torch.triu(x)
    whole = row(p, "aten::triu.out", "generic", INLINE)
    parts = [each for each in p.operators if each.tier == "native"]
    assert whole.calls == 1
    assert parts
    assert 0 < sum(each.host_s for each in p.operators) <= p.seconds  # nothing twice


def test_what_the_cpu_tier_copies_is_the_operators_own() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        x[1:, ::2].lgamma_()  # six elements, and from the first to the last of them eleven
    assert counted(p) == {("aten::lgamma.out", "cpu"): (1, 1, 6 * 4, 11 * 4)}


def test_operators_on_other_devices_are_not_listed() -> None:
    with torch_fl.profile() as p:
        torch.mm(square(), square()).sum().item()
    assert p.operators == ()


def test_known_shapes() -> None:
    x, out = torch.ones(3, 7, 5, device=INLINE), torch.empty(0, device=INLINE)
    with torch_fl.profile() as p:
        for _ in range(4):
            torch.ops.aten.flip.out(x, [1], out=out.resize_(0))
    flips = row(p, "aten::flip.out", "native", INLINE)
    assert (flips.shape_hits, flips.shape_misses, flips.shape_hit_rate) == (3, 1, 0.75)


def test_waits_are_timed() -> None:
    x = square().to(ASYNC)
    timer = threading.Timer(0.2, lambda: gate.open())
    with Gate(fl.current_stream(ASYNC)) as gate, torch_fl.profile() as p:
        y = torch.relu(x)
        timer.start()
        y.cpu()
    read = row(p, "aten::copy_", "memory", ASYNC)
    assert read.waits == 1
    assert 0 < read.wait_s <= read.host_s
    assert row(p, "aten::relu", "native", ASYNC).wait_s == 0


# ---- Which calls -----------------------------------------------------------------------------------------------------


def test_nothing_is_counted_without_a_profile() -> None:
    x = square().to(ASYNC)
    before = _bridge.profiled()
    torch.mm(x, x).cpu()
    assert _bridge.profiled() == before


def test_profiles_nest() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as outer:
        torch.relu(x)
        with torch_fl.profile() as inner:
            torch.relu(x)
            torch.relu(x)
        torch.relu(x)
    torch.relu(x)
    assert row(inner, "aten::relu", "native", ASYNC).calls == 2
    assert row(outer, "aten::relu", "native", ASYNC).calls == 4


def test_profiles_overlap() -> None:
    x = square().to(ASYNC)
    first, second = torch_fl.profile(), torch_fl.profile()
    early = first.__enter__()
    torch.relu(x)
    late = second.__enter__()
    torch.relu(x)
    first.__exit__(None, None, None)
    torch.relu(x)
    second.__exit__(None, None, None)
    assert row(early, "aten::relu", "native", ASYNC).calls == 2
    assert row(late, "aten::relu", "native", ASYNC).calls == 2


def test_a_profile_shows_what_has_ended_so_far() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        torch.relu(x)
        assert row(p, "aten::relu", "native", ASYNC).calls == 1
        torch.relu(x)
    assert row(p, "aten::relu", "native", ASYNC).calls == 2


def test_code_that_raises_is_profiled_all_the_same() -> None:
    x = square().to(ASYNC)
    other = torch.ones(3, 3, device=ASYNC)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), torch_fl.profile() as p:
        torch.mm(torch.relu(x), other)
    assert row(p, "aten::relu", "native", ASYNC).calls == 1
    before = _bridge.profiled()
    torch.relu(x)
    assert _bridge.profiled() == before


def test_threads() -> None:
    x = {place: square().to(place) for place in BOTH}

    def work(place: str) -> None:
        for _ in range(50):
            torch.relu(x[place])

    with torch_fl.profile() as p:
        threads = [threading.Thread(target=work, args=(place,)) for place in BOTH * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for place in BOTH:
        assert row(p, "aten::relu", "native", place).calls == 150


def test_profiles_of_several_threads() -> None:
    x = square().to(INLINE)
    found: list[int] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        for _ in range(20):
            with torch_fl.profile() as p:
                torch.relu(x)
            found.append(row(p, "aten::relu", "native", INLINE).calls)

    with torch_fl.profile() as whole:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert row(whole, "aten::relu", "native", INLINE).calls == len(found) == 80
    assert min(found) >= 1  # its own, and those of others that ended meanwhile


def test_the_backward_pass_is_profiled() -> None:
    x = square().to(ASYNC).requires_grad_()
    with torch_fl.profile() as p:
        torch.autograd.grad(torch.mm(x, x).sum(), x)
    assert row(p, "aten::mm", "native", ASYNC).calls == 3


# ---- With synchronisation --------------------------------------------------------------------------------------------


def test_with_synchronisation_an_operator_lasts_until_the_device_has_completed_it() -> None:
    x = square().to(ASYNC)
    timer = threading.Timer(0.2, lambda: gate.open())
    with Gate(fl.current_stream(ASYNC)) as gate, torch_fl.profile(synchronize=True) as p:
        timer.start()
        torch.relu(x)
    done = row(p, "aten::relu", "native", ASYNC)
    assert 0 < done.completion_s <= done.host_s
    assert (done.waits, done.wait_s) == (0, 0)  # none of the program's
    assert p.measurement.synchronize


def test_without_it_nothing_waits() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        torch.relu(x)
    assert row(p, "aten::relu", "native", ASYNC).completion_s == 0


def test_synchronisation_leaves_failures_to_the_program() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile(synchronize=True) as p:
        fail_next(fl.current_stream(ASYNC))
        torch.relu(x)
        with pytest.raises(RuntimeError, match="ASYNC_FAILURE"):
            fl.synchronize(ASYNC)
    assert row(p, "aten::relu", "native", ASYNC).calls == 1


# ---- What is shown ---------------------------------------------------------------------------------------------------


def operator(name: str, tier: Any, calls: int, host_s: float) -> OperatorProfile:
    return OperatorProfile(name, ASYNC, tier, calls, host_s, 0.0, 0, 0.0, 0, 0, 0, 0)


def made(*operators: OperatorProfile, seconds: float = 2.0) -> Profile:
    return Profile(Measurement(seconds, False, operators))


def test_a_program_that_is_heavy_on_the_cpu_is_told_whose_fault_it_is() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        torch.relu(x)
        torch.lgamma(x)
    text = str(p)
    assert "CPU fallback: " in text
    assert "50% of the calls, by aten::lgamma.out (" in text
    assert "on_fallback: error" in text


def test_a_program_that_stays_on_the_device_is_told_nothing() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        torch.relu(x).cpu()
    assert p.advice() is None
    assert "CPU fallback" not in str(p)


def test_more_than_a_tenth_is_too_much() -> None:
    native = operator("aten::mm", "native", 90, 0.9)
    assert made(native, operator("aten::lgamma", "cpu", 10, 0.1)).advice() is None
    of_time = made(native, operator("aten::lgamma", "cpu", 1, 0.11)).advice()
    assert of_time is not None
    assert "11% of the time and 1% of the calls, by aten::lgamma (11%)." in of_time
    of_calls = made(native, operator("aten::lgamma", "cpu", 11, 0.01)).advice()
    assert of_calls is not None
    copies = operator("aten::copy_", "memory", 1000, 0.0)  # compute nothing, and are no part of the calls
    assert made(native, copies, operator("aten::lgamma", "cpu", 11, 0.01)).advice() == of_calls


def test_the_worst_are_blamed_first_and_not_all_of_them() -> None:
    names = [f"aten::f{index}" for index in range(8)]
    told = made(*(operator(name, "cpu", 1, 0.1 * (8 - index)) for index, name in enumerate(names))).advice()
    assert told is not None
    assert "by aten::f0 (22%), aten::f1 (19%), aten::f2 (17%), aten::f3 (14%), aten::f4 (11%), 3 more." in told


def test_the_table_is_sorted_by_time() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        for _ in range(3):
            torch.relu(x)
        torch.lgamma(x)
    times = [each.host_s for each in p.operators]
    assert times == sorted(times, reverse=True)
    table = p.table()
    assert list(table.columns[0].cells) == [each.operator for each in p.operators]
    assert p.table(limit=1).row_count == 1
    lines = str(p).splitlines()
    assert lines[0].startswith("profile of ")
    assert lines[1].split() == [
        *("operator", "device", "tier", "calls", "time", "share", "per", "call", "waits", "waiting"),
        *("to", "device", "to", "host", "shapes", "known"),
    ]
    assert [line.split()[0] for line in lines[2 : 2 + len(times)]] == [each.operator for each in p.operators]


def test_long_tables_are_cut() -> None:
    shown = str(made(*(operator(f"aten::f{index}", "native", 1, 1.0) for index in range(33))))
    assert "aten::f29 " in shown
    assert "aten::f30 " not in shown
    assert "and 3 more rows: table() has all" in shown


def test_an_empty_profile_prints() -> None:
    with torch_fl.profile() as p:
        pass
    assert "0 calls" in str(p)
    assert p.advice() is None


def test_json_and_back() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile(synchronize=True) as p:
        torch.relu(x).cpu()
        torch.lgamma(x)
    data = json.loads(p.to_json())
    assert set(data) == {"format", "seconds", "synchronize", "operators"}
    assert (data["format"], data["synchronize"]) == ("torch_fl.profile/1", True)
    for each in data["operators"]:
        assert set(each) == {field.name for field in fields(OperatorProfile)}
    again = Profile.from_json(p.to_json())
    assert again.measurement == p.measurement
    assert str(again) == str(p)


@pytest.mark.parametrize(
    "change", [{"format": "torch_fl.profile/2"}, {"seconds": "long"}, {"operators": [{"operator": "aten::mm"}]}]
)
def test_other_json_is_refused(change: dict[str, Any]) -> None:
    data = json.loads(made().to_json()) | change
    with pytest.raises(ValueError, match=next(iter(change))):
        Profile.from_json(json.dumps(data))


@pytest.mark.parametrize(("name", "begin"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_a_picture(name: str, begin: bytes, tmp_path: Path) -> None:
    profile = made(operator("aten::mm", "native", 9, 0.9), operator("aten::lgamma", "cpu", 1, 0.4))
    path = profile.plot(tmp_path / name)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(begin)
    if name.endswith("svg"):
        text = path.read_text(encoding="utf-8")
        assert "aten::lgamma" in text
        assert "aten::lgamma" not in profile.plot(tmp_path / "one.svg", limit=1).read_text(encoding="utf-8")


def test_an_empty_picture(tmp_path: Path) -> None:
    assert made().plot(str(tmp_path / "p.svg")).stat().st_size > 0


def test_it_is_the_function_whether_its_module_is_imported_or_not() -> None:
    assert prints("import torch_fl; print(torch_fl.profile is torch_fl.profile, callable(torch_fl.profile))") == [
        "True True"
    ]
    assert prints("import torch_fl.profiler, torch_fl; print(callable(torch_fl.profile))") == ["True"]


# ---- torch.profiler --------------------------------------------------------------------------------------------------


def traced(function: Callable[[], Any]) -> list[Any]:
    """The events that torch's profiler has of a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        function()
    return list(profiler.events() or [])


@pytest.mark.parametrize("place", BOTH)
def test_torchs_profiler_shows_operators_and_annotations(place: str) -> None:
    def program() -> None:
        with torch.profiler.record_function("my step"):
            torch.relu(torch.mm(square().to(place), square().to(place)))

    events = traced(program)
    names = [event.name for event in events]
    assert names.count("aten::mm") == 1
    assert names.count("aten::relu") == 1
    assert names.count("my step") == 1
    step = next(event for event in events if event.name == "my step")
    assert {"aten::mm", "aten::relu"} <= {child.name for child in step.cpu_children}


@pytest.mark.parametrize("place", BOTH)
def test_torchs_profiler_shows_tiers_and_copies(place: str) -> None:
    x = square().to(place)
    torch.lgamma(x)  # from its second call on, it is known to have no generic form
    events = traced(lambda: (torch.lgamma(x), torch.triu(x), torch.relu(x)))

    def parents(name: str) -> list[str]:
        return [event.cpu_parent.name for event in events if event.name == name]

    assert parents(f"{place} CPU tier") == ["aten::lgamma"]
    assert parents(f"{place} copy to host") == parents(f"{place} copy from host") == [f"{place} CPU tier"]
    assert parents(f"{place} generic tier") == ["aten::triu"]


def test_both_profilers_at_once() -> None:
    x = square().to(ASYNC)
    with torch_fl.profile() as p:
        events = traced(lambda: torch.relu(x))
    assert [event.name for event in events].count("aten::relu") == 1
    assert row(p, "aten::relu", "native", ASYNC).calls == 1
