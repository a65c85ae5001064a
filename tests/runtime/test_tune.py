"""torch_fl.tune() and `torch-fl tune`: what is measured, in which order, and what is left when something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch_fl
from click.testing import CliRunner, Result
from torch_fl import fl, named_function
from torch_fl.tune_command import tune as command
from torch_fl.tuning import scan, trial, trial_process
from torch_fl.tuning.record import Combination, Trial, TuneError, Tuning

from .processes import LONGEST

SCRIPT = """
import os, sys, time
import torch

def make(batch, streams=1, device="fl"):
    x = torch.ones(batch, 1 << 18, device=device)  # 1 MiB a sample
    def step():
        return x + 1
    return step

def fails(batch):
    if batch == 2:
        print("what was said before", file=sys.stderr)
        raise ValueError("no such batch")
    return lambda: None

def dies(batch):
    os.kill(os.getpid(), 9)

def exits(batch):
    sys.exit(0)

def number(batch):
    return 3

def hangs(batch):
    beside = os.fork()
    if beside == 0:
        time.sleep(10_000)
    with open("pids.part", "w") as file:
        print(os.getpid(), beside, file=file)
    os.rename("pids.part", "pids")
    time.sleep(10_000)

not_one = 5
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "measured.py"
    file.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FL_VENDORS", "reference")
    monkeypatch.setenv("FL_REFERENCE_MEMORY", str(1 << 30))
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


ONCE = ("--rounds", "1", "--repeats", "2", "--warm-up", "1")


# ---- Processes that measure ------------------------------------------------------------------------------------------


def test_the_best_combination_and_one_that_does_not_fit(script: Path) -> None:
    """Of 1 GiB, a hundredth holds no 16 MiB of operands and as much of results."""
    result = run("measured.py", "--batch", "16", "--pool", "0.01,0.5", *ONCE, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["format"], told["best"], told["as_good"]) == ("torch_fl.tuning/1", {"batch": 16, "pool": 0.5}, [])
    fits, not_ = told["trials"]
    assert len(fits["seconds"]) == 2
    assert min(fits["seconds"]) <= fits["median"] <= max(fits["seconds"])
    assert fits["peak_bytes"] >= 16 << 20
    assert not_["combination"] == {"batch": 16, "pool": 0.01}
    assert "memory" in not_["out_of_memory"]
    assert "batch 16, pool 0.01: out of memory" in result.stderr


def test_where_nothing_fits_there_is_no_best(script: Path) -> None:
    result = run("measured.py:make", "--batch", "16", "--pool", "0.01", *ONCE)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("no combination fits into the device's memory: scan smaller")


def test_an_error_names_the_combination_and_ends_with_its_words(script: Path) -> None:
    result = run("measured.py:fails", "--batch", "2", "--streams", "4", *ONCE)
    assert result.exit_code == 2
    assert "measured.py:fails has no parameter 'streams': all of its values would measure the same" in result.stderr
    result = run("measured.py:fails", "--batch", "2", *ONCE)
    assert result.exit_code == 2
    first, *said = result.stderr.splitlines()
    assert first == "Error: batch 2: its process ended with exit code 1 before it was measured"
    assert said[:2] == ["    what was said before", "    Traceback (most recent call last):"]
    assert "measured.py" in said[2]
    assert said[-1] == "    ValueError: no such batch"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("dies", "batch 1: its process was ended by signal SIGKILL before it was measured"),
        ("exits", "batch 1: its process ended with exit code 0 before it was measured"),
        ("number", "measured.py:number returns a int, not the function that does one step"),
        ("absent", "measured.py has no function 'absent'"),
    ],
)
def test_other_ways_to_fail(script: Path, function: str, words: str) -> None:
    with pytest.raises(TuneError) as caught:
        torch_fl.tune(f"measured.py:{function}", batch=[1])
    assert str(caught.value).splitlines()[0] == words


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(script: Path, how: signal.Signals) -> None:
    code = "from torch_fl.tune_command import tune; tune()"
    tuning = subprocess.Popen(
        [sys.executable, "-c", code, "measured.py:hangs", "--batch", "1"], stderr=subprocess.PIPE, text=True
    )
    pids = script.parent / "pids"
    until(pids.exists)
    measuring, beside = map(int, pids.read_text().split())
    tuning.send_signal(how)
    _, said = tuning.communicate(timeout=LONGEST)
    until(lambda: not alive(measuring))
    if how is signal.SIGINT:
        assert (tuning.returncode, said) == (130, "interrupted; nothing is left running\n")
        until(lambda: not alive(beside))
    elif alive(beside):  # nobody was left to end what the function had started itself
        os.kill(beside, signal.SIGKILL)


def until(done: Any) -> None:
    deadline = time.monotonic() + LONGEST
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Neither gone nor dead and waited for by nobody."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_script_that_calls_tune_for_a_function_of_its_own(tmp_path: Path) -> None:
    text = """
import sys, torch, torch_fl
def make(batch):
    return lambda: torch.ones(batch, device="fl") + 1
if {guard}:
    found = torch_fl.tune(make, batch=[4, 8], rounds=1, repeats=1, warm_up=0, seed=5)
    print(sorted(trial.combination.batch for trial in found.trials), found.function == sys.argv[0] + ":make")
"""
    script = tmp_path / "own.py"

    def ran(guard: str) -> subprocess.CompletedProcess[str]:
        script.write_text(text.format(guard=guard))
        return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=LONGEST, check=False)

    done = ran('__name__ == "__main__"')
    assert (done.returncode, done.stdout) == (0, "[4, 8] True\n"), done.stderr
    done = ran("True")
    assert done.returncode == 1
    assert 'put the call below if __name__ == "__main__":' in done.stderr


# ---- What one process does -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("devices")
def test_every_device_is_done_before_time_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    clock = iter([10.0, 12.0, 20.0, 25.0])

    def perf_counter() -> float:
        log.append("clock")
        return next(clock)

    monkeypatch.setattr(fl, "synchronize", lambda device: log.append(f"wait {device}"))
    monkeypatch.setattr(time, "perf_counter", perf_counter)
    made: list[Mapping[str, Any]] = []

    def make(**parameters: Any) -> Any:
        made.append(parameters)
        return lambda: log.append("step")

    monkeypatch.setattr(named_function, "find", lambda where: make)
    task = {"function": "", "device": "fl:1", "combination": {"batch": 3}, "warm_up": 2, "repeats": 2, "seed": 0}
    try:
        assert trial.measure(task)["seconds"] == [2.0, 5.0]
    finally:
        fl.set_device(0)
    waits = ["wait 0", "wait 1", "wait 2", "wait 3"]
    assert log == ["step", "step", *waits, *["clock", "step", *waits, "clock"] * 2]
    ((batch, device),) = [(each["batch"], str(each["device"])) for each in made]
    assert (batch, device) == (3, "fl:1")


# ---- The scan --------------------------------------------------------------------------------------------------------


class Machine:
    """Stands for the processes: seconds by combination; None: out of memory. asked: the combinations, in order."""

    def __init__(self, seconds: Mapping[tuple[int, int], float | None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.asked = seconds, list[tuple[int, int]]()
        monkeypatch.setattr(trial_process, "run", self.run)

    def run(self, task: Mapping[str, Any], name: str) -> dict[str, Any]:
        key = task["combination"]["batch"], task["combination"]["streams"]
        self.asked.append(key)
        assert name == f"batch {key[0]}, streams {key[1]}"
        taken = self.seconds[key]
        if taken is None:
            return {"out_of_memory": "too much"}
        return {"seconds": [taken] * task["repeats"], "peak_bytes": 100 * len(self.asked)}


TAKEN = {(1, 1): 1.0, (1, 2): 0.9, (8, 1): 4.0, (8, 2): 4.1, (64, 1): 50.0, (64, 2): None}


def scanned(machine: Machine, **options: Any) -> Tuning:
    machine.asked.clear()
    return torch_fl.tune("a:b", batch=[1, 8, 64, 8], streams=[1, 2], **options)


def test_batches_are_compared_by_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    found = scanned(Machine(TAKEN, monkeypatch), rounds=2, repeats=3, report=lines.append)
    assert found.best is found.trials[0]
    assert [tuple(each.combination.scanned().values()) for each in found.trials] == [
        (8, 1),
        (8, 2),
        (64, 1),
        (1, 2),
        (1, 1),
        (64, 2),
    ]
    assert all(len(each.seconds) == 6 for each in found.trials[:-1])
    assert found.trials[-1].out_of_memory == "too much"
    assert len(lines) == 11
    assert any(line.endswith("of 12: batch 64, streams 2: out of memory") for line in lines)


def test_each_round_has_all_in_an_order_of_its_own_that_the_seed_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({**TAKEN, (64, 2): 60.0}, monkeypatch)
    scanned(machine, rounds=3, seed=1)
    first = machine.asked.copy()
    assert Counter(first) == dict.fromkeys(TAKEN, 3)
    rounds = [first[:6], first[6:12], first[12:]]
    assert all(sorted(each) == sorted(TAKEN) for each in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    scanned(machine, rounds=3, seed=1)
    assert machine.asked == first
    scanned(machine, rounds=3, seed=2)
    assert machine.asked != first


def test_what_does_not_fit_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(TAKEN, monkeypatch)
    scanned(machine, rounds=3)
    assert Counter(machine.asked) == {**dict.fromkeys(TAKEN, 3), (64, 2): 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing to scan: give values of batch, streams or pool"),
        ({"batch": [0]}, "batch: 0 is not allowed; allowed: whole numbers of at least 1"),
        ({"streams": [1.5]}, "streams: 1.5 is not allowed; allowed: whole numbers of at least 1"),
        ({"pool": [1.5]}, "pool: 1.5 is not allowed; allowed: numbers above 0 and of at most 1"),
        ({"batch": [1], "rounds": 0}, "rounds=0: at least 1"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words below are the whole text
        torch_fl.tune("a:b", **options)
    assert str(caught.value) == words


def test_a_function_that_no_other_process_finds() -> None:
    with pytest.raises(ValueError, match="define it at the top level of a module"):
        torch_fl.tune(lambda: print, batch=[1])


def test_a_function_of_a_module_goes_by_its_name() -> None:
    assert scan._name(until) == f"{__name__}:until"


def test_usage(script: Path) -> None:
    assert "nothing to scan" in run("measured.py").stderr
    result = run("measured.py", "--batch", "4,x")
    assert result.exit_code == 2
    assert "'4,x' is not a list of numbers such as 1,2,4" in result.stderr


# ---- What comes of it ------------------------------------------------------------------------------------------------


def tuning(*trials: Trial) -> Tuning:
    return Tuning("train.py:make", "fl:0", 1, 11, 1, 7, trials)


def test_what_the_scan_cannot_tell_apart_is_said() -> None:
    wide = Trial(Combination(streams=1), tuple(map(float, range(10, 21))), 1000)
    near = Trial(Combination(streams=2), (19.0,) * 11, 1000)
    far = Trial(Combination(streams=4), (19.5,) * 11, 1000)
    found = tuning(wide, near, far)
    assert (wide.median, wide.spread) == (15.0, (11.0, 19.0))
    assert found.as_good == (near,)
    lines = str(found).splitlines()
    assert lines[0] == "train.py:make on fl:0, combinations: 3, 1 x 11 steps each after 1 to warm up, seed 7"
    assert lines[1].split() == ["streams", "step", "10", "%", "..", "90", "%", "memory"]
    assert lines[2].split() == ["1", "15.00", "s", "11.00", "s", "..", "19.00", "s", "1.0", "kB"]
    assert lines[-2:] == [
        "best: streams 1",
        "not told apart from it, their medians being within its spread: streams 2",
    ]


def test_samples_a_second_where_batches_are_scanned() -> None:
    found = tuning(Trial(Combination(batch=8), (0.25,) * 3), Trial(Combination(batch=99), out_of_memory="too much"))
    _, headings, best, not_, verdict = str(found).splitlines()
    assert "samples/s" in headings
    assert best.split()[-3] == "32"
    assert not_.split()[:4] == ["99", "out", "of", "memory"]
    assert verdict == "best: batch 8"
