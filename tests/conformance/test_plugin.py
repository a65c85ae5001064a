"""The frame under pytest: rows, seeds, labels, drivers after a bad row, and Allure's view."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Pytest

SUITE = str(ROOT / "conformance")


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((folder / "report.json").read_text())
    return {row["id"]: row for row in report["rows"]}


@pytest.fixture(scope="module")
def full_run(ill_library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(report folder, output) of a whole run on the plugin that crashes, hangs and exits."""
    folder = tmp_path_factory.mktemp("full")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conformance.short_watchdog"]
    command += [
        SUITE,
        f"--vendor={ill_library}",
        "--report=r",
        "--seed=7",
        "-n",
        "2",
        f"--alluredir={folder / 'allure'}",
    ]
    environment = {**_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    return folder, done.stdout + done.stderr


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def test_crash_hang_and_exit_are_verdicts_and_the_rest_is_judged(full_run: tuple[Path, str]) -> None:
    folder, output = full_run
    rows = rows_of(folder / "r")
    verdicts = {op: rows[f"aten::{op}/r1/generic/i64"]["verdict"] for op in ("abs", "relu", "sign", "neg")}
    assert verdicts == {"abs": "crash", "relu": "hang", "sign": "crash", "neg": "pass"}, output
    assert "exit code 7" in rows["aten::sign/r1/generic/i64"]["message"]
    assert "SIGSEGV" in rows["aten::abs/r1/generic/i64"]["message"]


def test_every_expected_row_is_there_once_and_none_is_the_suites_fault(full_run: tuple[Path, str]) -> None:
    from torch_fl_spec.rows import expected_rows

    folder, output = full_run
    report = json.loads((folder / "r" / "report.json").read_text())
    declared = report["declarations"]
    declared.setdefault("extensions", {})
    expected = [row.id for row in expected_rows("core", declared, declared["kernels"])]
    assert [row["id"] for row in report["rows"]] == expected
    assert not [row["id"] for row in report["rows"] if row["verdict"] in ("error", "collateral")], output


def test_a_failing_row_leaves_a_reproducer_that_crashes_by_itself(full_run: tuple[Path, str]) -> None:

    folder, _ = full_run
    row = rows_of(folder / "r")["aten::abs/r1/generic/i64"]
    script = folder / "r" / row["reproducer"] / "repro.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == -11, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_under_gdb_a_reproducer_stops_in_the_plugins_own_frame(full_run: tuple[Path, str]) -> None:
    folder, _ = full_run
    row = rows_of(folder / "r")["aten::abs/r1/generic/i64"]
    script = folder / "r" / row["reproducer"] / "repro.py"
    command = ["gdb", "-nx", "-batch", "-ex", "run", "-ex", "bt", "--args", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    if "ptrace: Operation not permitted" in done.stderr or "Could not trace the inferior" in done.stderr:
        pytest.skip("this machine forbids gdb to trace a process")
    assert "SIGSEGV" in done.stdout, done.stdout + done.stderr
    (frame,) = [line for line in done.stdout.splitlines() if line.startswith("#0 ")]
    assert "crash_run" in frame
    assert "ill.c:" in frame


def test_the_output_names_failing_rows_and_reproducers(full_run: tuple[Path, str]) -> None:
    folder, output = full_run
    (line,) = [line for line in output.splitlines() if line.startswith("CRASH") and "aten::abs/" in line]
    assert str(folder / "r" / "reproducers") in line
    assert "seed     7" in output
    assert str(folder / "r" / "report.html") in output


def test_allure_gets_its_labels(full_run: tuple[Path, str]) -> None:
    folder, _ = full_run
    results = [json.loads(path.read_text()) for path in (folder / "allure").glob("*-result.json")]
    (memory,) = [result for result in results if result["name"] == "FL-MEM-002"]
    labels = {label["name"]: label["value"] for label in memory["labels"] if label["name"] != "tag"}
    assert (labels["epic"], labels["feature"], labels["story"]) == ("fake", "memory", "FL-MEM-002")
    (crash,) = [result for result in results if result["name"] == "aten::abs/r1/generic/i64"]
    attached = {attachment["name"] for attachment in crash["attachments"]}
    assert {"failure", "reproducer/repro.py"} <= attached


def test_allure_says_of_each_row_what_the_report_says(full_run: tuple[Path, str]) -> None:
    folder, _ = full_run
    words = {"pass": "passed", "fail": "failed", "crash": "failed", "hang": "broken", "no-power": "failed"}
    words["not-claimed"] = "skipped"
    results = [json.loads(path.read_text()) for path in (folder / "allure").glob("*-result.json")]
    verdicts = {row_id: row["verdict"] for row_id, row in rows_of(folder / "r").items()}
    assert {words[verdicts[result["name"]]] for result in results} == set(words.values())
    assert not [result for result in results if result["status"] != words[verdicts[result["name"]]]]


def test_a_full_disk_costs_reproducers_and_no_rows(run_pytest: Pytest, ill_library: Path, tmp_path: Path) -> None:
    (tmp_path / "fulldisk.py").write_text(
        "from pathlib import Path\n"
        "from torch_fl_conformance import recording\n"
        "def full(*_): raise OSError(28, 'No space left on device')\n"
        "recording.write_for = full\n"
        "real = Path.open\n"
        "Path.open = lambda path, *more, **k: full() if path.name == 'rows.jsonl' else real(path, *more, **k)\n"
    )
    done = run_pytest(
        "-p", "fulldisk", SUITE, f"--vendor={ill_library}", "--row=abs/*", "--row=FL-MEM-002", "--report=r"
    )
    rows = rows_of(tmp_path / "r")
    assert done.returncode == 1, done.stdout
    assert [row["verdict"] for row in rows.values()] == ["pass", "crash"]
    assert "No space left" in rows["aten::abs/r1/generic/i64"]["notes"][0]


def test_rows_depend_on_the_seed_alone(run_pytest: Pytest, good_library: Path, tmp_path: Path) -> None:
    def run(name: str, *more: str) -> dict[str, Any]:
        run_pytest(
            SUITE,
            f"--vendor={good_library}",
            "--seed=5",
            "-k",
            "live_ranges or bases or offset",
            f"--report={name}",
            *more,
        )
        kept = ("verdict", "cases", "labels", "case", "message")
        return {row: {key: data.get(key) for key in kept} for row, data in rows_of(tmp_path / name).items()}

    alone, parallel = run("a"), run("b", "-n", "2")
    assert alone == parallel
    assert len(alone) > 3


def test_the_installed_form_has_the_same_rows(run_pytest: Pytest, good_library: Path) -> None:
    def collected(*where: str) -> list[str]:
        done = run_pytest(*where, f"--vendor={good_library}", "--collect-only", "-q")
        return [line.rpartition("chapters/")[2] for line in done.stdout.splitlines() if "::" in line]

    assert collected(SUITE) == collected("--pyargs", "torch_fl_conformance")
    assert len(collected(SUITE)) > 20


def test_the_subject_is_bound_by_its_bytes(run_pytest: Pytest, good_library: Path, tmp_path: Path) -> None:
    import hashlib

    run_pytest(SUITE, f"--vendor={good_library}", "-k", "live_ranges", "--report=r")
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    (plugin,) = report["subject"]["files"]
    assert plugin["sha256"] == hashlib.sha256(good_library.read_bytes()).hexdigest()
    assert "libraries" not in report["subject"]


def test_a_library_that_the_plugin_brings_is_listed(tmp_path: Path, run_pytest: Pytest) -> None:
    import shutil

    from .conftest import FAKES, INCLUDES

    helper = tmp_path / "libvendorhelper.so"
    flags = ["cc", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-fvisibility=hidden", *INCLUDES]
    source = tmp_path / "helper.c"
    source.write_text('__attribute__((visibility("default"))) int vendor_helper(void) { return 0; }\n')
    subprocess.run([*flags, "-o", str(helper), str(source)], check=True)
    plugin = tmp_path / "plugin.so"
    link = [f"-L{tmp_path}", "-lvendorhelper", f"-Wl,--no-as-needed,-rpath,{tmp_path}"]
    subprocess.run([*flags, "-o", str(plugin), str(FAKES / "good.c"), "-Wl,--no-as-needed", *link], check=True)
    assert shutil.which("cc")
    run_pytest(SUITE, f"--vendor={plugin}", "-k", "live_ranges", "--report=r")
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert [Path(library["path"]).name for library in report["subject"]["libraries"]] == ["libvendorhelper.so"]


def test_a_report_folder_with_something_else_in_it_is_refused(
    run_pytest: Pytest, good_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    done = run_pytest(SUITE, f"--vendor={good_library}", "--report=mine")
    assert done.returncode == 2
    assert "diary" not in done.stdout
    assert (tmp_path / "mine" / "diary.txt").exists()


def test_rows_after_a_row_that_broke_the_card_are_collateral(
    run_pytest: Pytest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .conftest import HERE, compile_plugin

    (tmp_path / "kit").mkdir()
    compile_plugin(HERE / "plugins" / "wedge.c", tmp_path / "kit" / "wedge.so")
    (tmp_path / "kit" / "vendor.toml").write_text('name = "fake"\nlibrary = "wedge.so"\nenv = ["WEDGE"]\n')
    monkeypatch.setenv("WEDGE", str(tmp_path / "wedged"))
    done = run_pytest(SUITE, "--vendor=kit", "-k", "test_memory", "--report=r")
    rows = rows_of(tmp_path / "r")
    verdicts = [row["verdict"] for row in rows.values()]
    place = verdicts.index("crash")
    assert list(rows)[place] == "FL-MEM-003", done.stdout
    assert "collateral" not in verdicts[:place]
    assert set(verdicts[place + 1 :]) == {"collateral"}
    assert done.returncode == 1
