"""Honest variants pass: the suite asks for what the specification says, not for what the reference vendor does."""

from __future__ import annotations

import pytest

from .build import build
from .corpus import Variant, load_variants
from .runner import judge

SAMPLE = ("pairwise", "one_worker", "flushing", "other_random_bits", "division_fails")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A few in a normal run, on the rows where they differ; all of them on all rows with --all-twins."""
    if "variant" in metafunc.fixturenames:
        whole = metafunc.config.getoption("all_twins", False)
        chosen = [variant for variant in load_variants() if whole or variant.id in SAMPLE]
        metafunc.parametrize("variant", chosen, ids=[variant.id for variant in chosen])


def test_an_honest_variant_passes(variant: Variant, pytestconfig: pytest.Config) -> None:
    library = build(
        variant.edits,
        personality=variant.personality,
        flags=variant.flags,
        recompile=variant.recompile,
        units=variant.units,
    )
    whole = pytestconfig.getoption("all_twins", False)
    rows = ("*",) if whole else variant.sample_rows
    (run,) = judge(library, [(1, rows)], watchdog=30.0, stop=False, seconds=1800)
    refused = {row["id"]: row.get("message", "") for row in run.rows if row["verdict"] not in ("pass", "not-claimed")}
    assert refused == {}, f"{variant.id} ({variant.title}) is honest"
    # what the gate asks of a row that passes
    beyond = {row["id"]: row["worst"] for row in run.rows if "worst" in row and not row["worst"]["err_over_t"] <= 1}
    assert beyond == {}, f"{variant.id} ({variant.title}) passes rows that the gate refuses"
