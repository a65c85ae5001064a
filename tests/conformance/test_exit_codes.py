"""Exit codes and the one clear line, through the real command in a child process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import FAKES, HERE, ROOT, Pytest, compile_plugin

SUITE = str(ROOT / "conformance")
CHAPTERS = ROOT / "conformance" / "torch_fl_conformance" / "chapters"
QUERY_PLUGINS = HERE / "plugins"
SABOTEUR = "tests.conformance.saboteur"


def report_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return data


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The only line that a refused run prints."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert len(lines) == 1, lines
    return lines[0]


def test_without_a_vendor_the_suite_is_a_usage_error(run_pytest: Pytest) -> None:
    for arguments in ((SUITE,), ("--pyargs", "torch_fl_conformance"), (str(CHAPTERS / "test_memory.py"),)):
        done = run_pytest(*arguments)
        assert done.returncode == 2
        assert "--vendor" in one_line(done)


def test_a_vendor_without_the_suite_is_a_usage_error(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    done = run_pytest("test_mine.py", "--vendor=reference")
    assert done.returncode == 2
    assert "conformance" in one_line(done)


def test_other_pytest_runs_are_left_alone(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_mine(): assert not {'torch', 'torch_fl_conformance.run', 'torch_fl_spec'} & sys.modules.keys()\n"
    )
    done = run_pytest("-q")
    assert done.returncode == 0, done.stdout


def test_a_folder_around_the_suite_collects_none_of_it(run_pytest: Pytest) -> None:
    done = run_pytest(str(CHAPTERS.parents[2]), "--collect-only", "-q", "--ignore", str(ROOT / "tests"))
    assert "chapters/" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--profile=train",), "train"),
        (("--profile=everything",), "core, infer, train"),
        (("--effort=some",), "quick, full"),
        (("--seed=minus",), "--seed"),
        (("--report=",), "--report"),
        (("--report=loop/r",), "--report"),
        (("--report=/proc/r",), "--report"),
        (("-n", "-1"), "-n -1"),
    ],
)
def test_a_wrong_option_is_named(
    run_pytest: Pytest, good_library: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = run_pytest(SUITE, f"--vendor={good_library}", *arguments)
    assert done.returncode == 2
    assert words in one_line(done)


def test_an_unknown_vendor_is_one_line(run_pytest: Pytest) -> None:
    done = run_pytest(SUITE, "--vendor=nobody")
    assert done.returncode == 2
    assert "nobody" in one_line(done)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (FAKES / "no_symbol.c", "fl_plugin_query_v1"),
        (FAKES / "query_crash.c", "SIGABRT"),
        (FAKES / "missing_slots.c", "FL-VERSION-005"),
        (QUERY_PLUGINS / "query_exits.c", "exit code 3"),
    ],
)
def test_what_is_no_plugin_is_one_line(run_pytest: Pytest, tmp_path: Path, source: Path, words: str) -> None:
    library = compile_plugin(source, tmp_path / "plugin.so")
    done = run_pytest(SUITE, f"--vendor={library}")
    assert done.returncode == 2
    assert words in one_line(done)


def test_a_query_that_hangs_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fl_conformance import preflight
    from torch_fl_conformance.driver_client import DriverConfig
    from torch_fl_conformance.failures import PreflightFailed

    library = compile_plugin(QUERY_PLUGINS / "query_hangs.c", tmp_path / "plugin.so")
    with pytest.raises(PreflightFailed, match="no answer within 1 s"):
        preflight.look(DriverConfig(str(library), watchdog=1.0), "it")


def test_a_machine_without_a_compiler_is_told_what_to_install(
    run_pytest: Pytest, good_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "no-such-compiler")
    done = run_pytest(SUITE, f"--vendor={good_library}")
    assert done.returncode == 2
    assert one_line(done).startswith("torch-fl: no C compiler: 'no-such-compiler' is not on PATH")


def test_text_is_no_library(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("hello")
    done = run_pytest(SUITE, "--vendor=text.so")
    assert done.returncode == 2
    assert "text.so" in one_line(done)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_selection_is_never_certified(
    run_pytest: Pytest, good_library: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    done = run_pytest(SUITE, f"--vendor={good_library}", "-k", "test_live_ranges", "--report=r", *workers)
    report = report_of(tmp_path / "r")
    assert done.returncode == 1, done.stdout + done.stderr
    assert report["run"]["partial"]
    assert not report["totals"]["certified"]
    assert [row["verdict"] for row in report["rows"]] == ["pass"]
    assert "selection" in done.stdout


def test_one_module_is_a_selection_too(run_pytest: Pytest, good_library: Path, tmp_path: Path) -> None:
    run_pytest(str(CHAPTERS / "test_memory.py"), f"--vendor={good_library}", "--report=r")
    assert report_of(tmp_path / "r")["run"]["partial"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_stopping_at_the_first_failure_is_not_certified(
    run_pytest: Pytest, ill_library: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    done = run_pytest(SUITE, f"--vendor={ill_library}", "-x", "-k", "memory", "--report=r", *workers)
    report = report_of(tmp_path / "r")
    assert done.returncode == 1, done.stdout + done.stderr
    assert report["run"]["partial"]
    assert not report["run"]["interrupted"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("by", ["SIGINT", "SIGTERM"])
def test_an_interrupt_gives_130_and_a_report_that_says_so(
    good_library: Path, tmp_path: Path, by: str, workers: tuple[str, ...]
) -> None:
    sleeps = tmp_path / "sleeps"
    arguments = [SUITE, f"--vendor={good_library}", "--report=r", "-k", "live_ranges or bases", *workers]
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", SABOTEUR, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SABOTAGE": "sleep", "SABOTAGE_SLEEPS": str(sleeps)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not sleeps.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)  # lets the other row finish in the other worker
    # Ctrl-C reaches all processes of the run, a scheduler's SIGTERM the first one only.
    os.killpg(child.pid, signal.SIGINT) if by == "SIGINT" else child.terminate()
    output, _ = child.communicate(timeout=60)
    report = report_of(tmp_path / "r")
    assert child.returncode == 130, output
    assert "before any row" not in output  # nor does an interrupted worker say so
    assert report["run"]["interrupted"]
    assert not report["totals"]["certified"]
    assert [row["id"] for row in report["rows"]] == ["FL-MEM-002"]


@pytest.mark.parametrize("when", ["told", "written"])
def test_a_second_interrupt_still_gives_130_and_a_report_that_says_so(
    good_library: Path, tmp_path: Path, when: str
) -> None:
    """While pytest tells its plugins of the first one, and while the report of the first is written."""
    (tmp_path / "twice.py").write_text(
        "import os, signal, pytest\n"
        "from torch_fl_conformance import controller\n"
        "def interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
        "def pytest_runtest_call(item): interrupt()\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_keyboard_interrupt():\n"
        f"    if {when!r} == 'told': interrupt()\n"
        "write = controller.write_report\n"
        "def writing(*more):\n"
        f"    if {when!r} == 'written': interrupt()\n"
        "    return write(*more)\n"
        "controller.write_report = writing\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "twice", SUITE, f"--vendor={good_library}", "--report=r"]
    done = subprocess.run(
        [*command, "--row=FL-MEM-002"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 130, done.stdout + done.stderr
    assert report_of(tmp_path / "r")["run"]["interrupted"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("phase", ["preflight", "start", "certify"])
def test_an_interrupt_before_the_first_row_gives_130_and_leaves_nothing(
    good_library: Path, tmp_path: Path, phase: str, workers: tuple[str, ...]
) -> None:
    """While the plugin is looked at, while pytest gets ready, and through the other front door."""
    begins = tmp_path / "begins"
    (tmp_path / "tmp").mkdir()
    program = f"import pathlib, sys, time\ndef wait(*_):\n    pathlib.Path({str(begins)!r}).touch(); time.sleep(60)\n"
    if phase == "start":
        program += "from torch_fl_conformance import run; run.Recorder = wait\n"
    else:
        program += "from torch_fl_conformance import preflight; preflight.look = wait\n"
    arguments = [f"--vendor={good_library}", "--report=r", *workers]
    if phase == "certify":
        program += f"from torch_fl_spec.cli import main; main({['certify', *arguments[1:], str(good_library)]!r})\n"
    else:
        program += f"import pytest; sys.exit(pytest.main({[SUITE, *arguments]!r}))\n"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not begins.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130, output
    assert "interrupted before any row ran" in output
    assert "Traceback" not in output
    assert not list((tmp_path / "tmp").glob("torch-fl-*"))
    assert not (tmp_path / "r").exists()


def test_a_harness_error_is_3(
    run_pytest: Pytest, good_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SABOTAGE", "error")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = run_pytest(SUITE, f"--vendor={good_library}", "-p", SABOTEUR, "-k", "bases", "--report=r")
    (row,) = report_of(tmp_path / "r")["rows"]
    assert done.returncode == 3, done.stdout
    assert row["verdict"] == "error"
    assert "AssertionError" in row["message"]


def test_in_process_is_marked_and_not_certified(run_pytest: Pytest, good_library: Path, tmp_path: Path) -> None:
    done = run_pytest(SUITE, f"--vendor={good_library}", "--in-process", "-k", "live_ranges", "--report=r")
    assert done.returncode == 1
    assert report_of(tmp_path / "r")["run"]["in_process"]


def test_collecting_only_writes_no_report(run_pytest: Pytest, good_library: Path, tmp_path: Path) -> None:
    done = run_pytest(SUITE, f"--vendor={good_library}", "--collect-only", "-q", "--report=r")
    assert done.returncode == 0
    assert not (tmp_path / "r").exists()


def test_a_row_that_does_not_exist_is_a_usage_error(
    run_pytest: Pytest, good_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = run_pytest(SUITE, f"--vendor={good_library}", "--row=FL-MEM-999", "--report=r")
    assert done.returncode == 2
    assert "FL-MEM-999" in done.stdout + done.stderr
    assert not (tmp_path / "r").exists()
    assert not list((tmp_path / "tmp").glob("torch-fl-*"))


def test_a_report_that_could_not_be_written_is_refused_before_the_run(
    run_pytest: Pytest, good_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "report.json").write_text("{}")
    for folder, words in (("file/r", "can be written to"), ("file", "holds no report"), ("work", "holds no report")):
        done = run_pytest(SUITE, f"--vendor={good_library}", f"--report={folder}")
        assert done.returncode == 2
        assert words in one_line(done)


def test_a_library_whose_name_no_report_can_carry_is_one_line(
    run_pytest: Pytest, good_library: Path, tmp_path: Path
) -> None:
    shutil.copy(good_library, tmp_path / ".hidden.so")
    done = run_pytest(SUITE, "--vendor=.hidden.so")
    assert done.returncode == 2
    assert "subject.files.0.name" in one_line(done)


def test_a_staging_folder_that_vanishes_costs_no_rows(
    run_pytest: Pytest, ill_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cleaner of temporary files takes it, with the reproducers of the rows so far."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cleaner.py").write_text(
        "import pathlib, pytest, shutil\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_sessionfinish():\n"
        "    for folder in pathlib.Path('tmp').glob('torch-fl-*'): shutil.rmtree(folder)\n"
        "    return (yield)\n"
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_pytest("-p", "cleaner", SUITE, f"--vendor={ill_library}", "--row=abs/*", "--report=r")
    (row,) = (row for row in report_of(tmp_path / "r")["rows"] if row["verdict"] != "pass")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no reproducer" in row["notes"][-1]


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_process_that_the_plugin_leaves_behind_ends_with_the_run(
    run_pytest: Pytest, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    source = tmp_path / "daemon.c"
    source.write_text(
        '#include "good.c"\n#include <stdio.h>\n#include <unistd.h>\n'
        "__attribute__((constructor)) static void leave_daemon(void) {\n"
        "  if (fork() != 0) return;\n"
        "  setsid();\n"
        "  if (fork() != 0) _exit(0);\n"
        f'  FILE* file = fopen("{tmp_path}/pids", "a");\n'
        '  fprintf(file, "%d\\n", (int)getpid());\n'
        "  fclose(file);\n"
        '  execlp("sleep", "sleep", "300", NULL);\n'
        "}\n"
    )
    library = compile_plugin(source, tmp_path / "daemon.so")
    done = run_pytest(SUITE, f"--vendor={library}", "--row=FL-MEM-002", "--report=r", *workers)
    assert report_of(tmp_path / "r")["rows"], done.stdout + done.stderr
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}/stat").exists()]


def test_certify_is_the_same_run(good_library: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch_fl_spec.cli", "certify", str(good_library), "--report=r"]
    done = subprocess.run([*command, "-k", "live_ranges"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert report_of(tmp_path / "r")["run"]["partial"]


def test_certify_without_an_output_is_one_line(good_library: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m torch_fl_spec.cli certify {good_library} >&-"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "standard output" in one_line(done)


def test_certify_maps_wrong_pytest_options_to_2(good_library: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch_fl_spec.cli", "certify", str(good_library), "--no-such-option"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
