"""Options of the corpus, and its table at the end of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from . import table
from .runner import Kill, Outcome

PROPERTY = "twin_outcome"
DEFAULT_SEEDS = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where tests/twins is named on the command line; a run of all tests keeps the defaults."""
    group = parser.getgroup("twins", "defective and honest plugins")
    group.addoption("--all-twins", action="store_true", help="the whole corpus, all controls and variants")
    group.addoption(
        "--seeds", type=int, default=None, help=f"seeds for each twin (default: 1; {DEFAULT_SEEDS} for all)"
    )
    group.addoption("--twin", action="append", default=[], metavar="ID", help="only this twin (may be repeated)")
    group.addoption("--twin-report", metavar="FILE", help="write the table, as .json or as Markdown")


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> list[int]:
    """Seeds 1, 2, ...: fixed, so that a survivor can be looked at again."""
    given = pytestconfig.getoption("seeds", None)
    whole = pytestconfig.getoption("all_twins", False)
    return list(range(1, 1 + (given or (DEFAULT_SEEDS if whole else 1))))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table of every twin that was tried; with pytest-xdist in the controlling process."""
    outcomes = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if PROPERTY in properties and getattr(report, "when", "") == "call":
                outcomes.append(_outcome(json.loads(properties[PROPERTY])))
    if not outcomes:
        return
    terminalreporter.write_sep("-", "twins")
    if config.getoption("all_twins", False) or config.getoption("twin", []):
        terminalreporter.write_line(table.markdown(outcomes))
    for line in table.summary(outcomes):
        terminalreporter.write_line(line)
    if path := config.getoption("twin_report", None):
        table.write(outcomes, Path(path))


def _outcome(plain: dict[str, Any]) -> Outcome:
    kills = [Kill(**{**kill, "violates": tuple(kill["violates"])}) for kill in plain["kills"]]
    return Outcome(**{**plain, "kills": kills})
