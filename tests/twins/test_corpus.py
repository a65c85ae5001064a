"""The corpus itself: edits that still fit, rules that all have a twin, kills that are judged rightly."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_fl_spec.rules import vendor_rules

from .build import build
from .corpus import SAMPLE, TWINS, Edit, StaleEdit, Twin, Variant, load_twins, load_variants
from .runner import Kill, Outcome, weaknesses
from .table import markdown, unique_killers


def applied(edits: tuple[Edit, ...]) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for edit in edits:
        texts[edit.path] = edit.applied_to(texts.get(edit.path) or edit.path.read_text(encoding="utf-8"))
    return texts


@pytest.mark.parametrize("entry", [*load_twins(), *load_variants()], ids=lambda entry: entry.id)
def test_edits_fit_the_sources(entry: Twin | Variant) -> None:
    """StaleEdit names the file and the text that is no longer there once: the edit has to follow its source."""
    for path, text in applied(entry.edits).items():
        assert text != path.read_text(encoding="utf-8")


def test_an_edit_that_no_longer_fits_says_so() -> None:
    with pytest.raises(StaleEdit, match=r"arena\.c: 0 places, not one"):
        Edit(file="arena.c", old="no such text", new="").applied_to("int x;")
    with pytest.raises(StaleEdit, match="2 places"):
        Edit(file="arena.c", old="x", new="").applied_to("x x")
    with pytest.raises(StaleEdit, match=r"gone\.c: neither"):
        build([Edit(file="gone.c", old="x", new="y")])


def test_every_vendor_rule_has_a_twin() -> None:
    broken = {rule for twin in load_twins() for rule in twin.rules}
    rules = {rule.id for rule in vendor_rules()}
    assert sorted(rules - broken) == []
    assert sorted(broken - rules) == []


def test_the_sample_is_part_of_the_corpus() -> None:
    assert set(SAMPLE) <= {twin.id for twin in load_twins()}


def test_every_control_is_described() -> None:
    described = (TWINS / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in sorted((TWINS / "controls").glob("*.c")) if f"`{path.stem}`" not in described] == []


def twin(**fields: object) -> Twin:
    base: dict[str, object] = {"id": "z01", "title": "A defect of the test", "file": "arena.c", "old": "a", "new": "b"}
    return Twin.model_validate({**base, "rules": ["FL-MEM-002"], **fields})


def test_a_kill_in_another_rules_name_is_weak() -> None:
    good = Kill(1, "aten::mm/r1/generic/f32", "fail", ("FL-KERNEL-010", "FL-MEM-002"), 1.0)
    assert weaknesses(twin(), good) == []
    assert weaknesses(twin(rules=["FL-MEM-003"]), good) == ["named FL-KERNEL-010, FL-MEM-002"]
    assert weaknesses(twin(), Kill(1, "FL-MEM-002", "fail", (), 1.0)) == []


def test_a_kill_by_noise_is_weak_unless_noise_is_the_defect() -> None:
    crash = Kill(1, "FL-MEM-002", "crash", (), 1.0)
    assert weaknesses(twin(), crash) == ["crash instead of fail"]
    assert weaknesses(twin(expected="crash"), crash) == []
    assert weaknesses(twin(expected=["fail", "crash"]), crash) == []


def test_the_table_tells_survivors_and_lone_killers() -> None:
    dead = Outcome("z01", "reference", "One", [Kill(1, "FL-MEM-002", "fail", (), 2.0)])
    alive = Outcome("z02", "reference", "Two", [Kill(1, None, "pass", (), 1.0)])
    text = markdown([alive, dead])
    assert "| z01 | reference | 1/1 | FL-MEM-002 | 2.0 | - | One |" in text
    assert "survivors: z02 (reference)" in text
    assert unique_killers([alive, dead]) == {"FL-MEM-002": ["z01"]}
