"""The C++ checks of the bridge's core: under ASan with UBSan, and under TSan."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = len(list(HERE.glob("*_check.cpp")))


@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_cpp_checks_pass(sanitizer: str) -> None:
    command = ["make", "-s", "-j2", "-C", str(HERE), "check", f"SANITIZER={sanitizer}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{PROGRAMS} runs passed" in done.stdout
    assert "SUMMARY:" not in done.stderr  # how every sanitizer ends a report
