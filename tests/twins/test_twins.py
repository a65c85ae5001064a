"""Every defective plugin is killed, by a rule that it breaks: the proof that the suite can fail."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from torch_fl_spec.rows import fits

from .build import build
from .conftest import PROPERTY
from .corpus import SAMPLE, Twin, load_twins
from .runner import judge, try_twin


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The sample, the whole corpus, or what --twin names."""
    if "twin" not in metafunc.fixturenames:
        return
    config = metafunc.config
    named = config.getoption("twin", [])
    whole = config.getoption("all_twins", False)
    twins = load_twins()
    unknown = set(named) - {twin.id for twin in twins}
    if unknown:
        raise pytest.UsageError(f"no such twin: {', '.join(sorted(unknown))}")
    chosen = [twin for twin in twins if (twin.id in named if named else whole or twin.id in SAMPLE)]
    cases = [(twin, personality) for twin in chosen for personality in twin.personalities]
    metafunc.parametrize(
        ("twin", "personality"), cases, ids=[f"{twin.id}-{personality}" for twin, personality in cases]
    )


def test_a_twin_is_killed(
    twin: Twin, personality: str, seeds: list[int], record_property: Callable[[str, object], None]
) -> None:
    outcome = try_twin(twin, personality, seeds)
    record_property(PROPERTY, json.dumps(outcome.plain()))
    survived = [kill.seed for kill in outcome.survived]
    assert not survived, f"{twin.id} ({twin.title}) survived {', '.join(twin.targets)} with seeds {survived}"
    assert not outcome.weak, f"{twin.id} ({twin.title}) is killed, but not as it should be: {outcome.weak}"
    assert not outcome.spoiled, f"{twin.id} ({twin.title}) fails what it has no part in: {outcome.spoiled}"


def test_what_kills_the_sample_lets_the_reference_live() -> None:
    """Else the sample's deaths would prove nothing."""
    rows = sorted({row for twin in load_twins() if twin.id in SAMPLE for row in twin.targets})
    (run,) = judge(build(), [(1, rows)], watchdog=30.0)
    assert {row["id"]: row["verdict"] for row in run.rows if row["verdict"] != "pass"} == {}
    assert all(any(fits(row["id"], [pattern]) for row in run.rows) for pattern in rows)
