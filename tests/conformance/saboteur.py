"""A pytest plugin (`-p tests.conformance.saboteur`) that spoils one check, as SABOTAGE says.

error: a bare assertion fails in the check. sleep: the check sleeps for a minute, long enough to interrupt it; the
file named in SABOTAGE_SLEEPS appears when it does.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

VICTIM = "test_bases_are_aligned"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if pyfuncitem.name != VICTIM:
        return
    if os.environ["SABOTAGE"] == "sleep":
        Path(os.environ["SABOTAGE_SLEEPS"]).touch()
        time.sleep(60)
    assert os.environ["SABOTAGE"] != "error"
