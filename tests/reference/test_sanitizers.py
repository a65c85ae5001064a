"""The C checks of the reference vendor, the many-threaded one included, under ASan with UBSan, and under TSan."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = len(list(HERE.glob("*_check.c")))


@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_c_checks_pass_under(sanitizer: str) -> None:
    command = ["make", "-s", "-j2", "-C", str(HERE), "check", f"SANITIZER={sanitizer}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{2 * PROGRAMS} runs passed" in done.stdout
    assert "SUMMARY:" not in done.stderr  # how every sanitizer ends a report
