"""Rules, checks, report rows, twins and SPEC.md are about one and the same set."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_spec import spec_document
from torch_fl_spec.rows import expected_rows
from torch_fl_spec.rules import load_rules, parse_rules, vendor_rules

ROOT = Path(__file__).parents[2]
CHAPTERS = ROOT / "conformance" / "torch_fl_conformance" / "chapters"
SPEC = ROOT / "SPEC.md"
DESIGNED = {
    **{"LAYOUT": 9, "VERSION": 9, "ERROR": 7, "THREAD": 8, "MEM": 8, "STREAM": 13, "COPY": 4, "KERNEL": 14},
    **{"PINNED": 4, "FAULT": 2},
}


def checks() -> Iterator[tuple[str, str]]:
    """(rule id, function name) of every function that a chapter decorates with @rule("FL-...")."""
    for path in sorted(CHAPTERS.glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("rule"):
                        yield ast.literal_eval(decorator.args[0]), node.name


def test_the_rules_are_numbered_without_gaps() -> None:
    counted = Counter(rule.group for rule in load_rules())
    assert counted == DESIGNED
    for group, count in DESIGNED.items():
        numbers = [int(rule.id[-3:]) for rule in load_rules() if rule.group == group]
        assert numbers == list(range(1, count + 1))


def test_vendor_rules_and_checks_are_the_same_set() -> None:
    found = Counter(rule for rule, _ in checks())
    wanted = {rule.id for rule in vendor_rules()}
    assert sorted(wanted - set(found)) == [], "vendor rules without a check"
    assert sorted(set(found) - wanted) == [], "checks of no vendor rule"
    assert [rule for rule, count in found.items() if count > 1] == [], "rules with two checks"


def test_checks_are_tests_that_pytest_collects() -> None:
    assert [name for _, name in checks() if not name.startswith("test_")] == []


def test_vendor_rules_and_report_rows_are_the_same_set() -> None:
    declarations = {"devices": [{"independent_streams": 1}], "extensions": {}}
    rows = [row.id for row in expected_rows("core", declarations, [[]]) if row.kind == "rule"]
    assert rows == [rule.id for rule in vendor_rules()]


def test_host_rules_have_their_tests() -> None:
    for rule in load_rules():
        if rule.test is not None:
            path, _, function = rule.test.partition("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert function in names, rule.test


def test_twins_name_rules_that_vendors_can_break() -> None:
    twins = spec_document.twins_by_rule()
    assert twins
    assert sorted(set(twins) - {rule.id for rule in vendor_rules()}) == []


def test_the_documents_generated_parts_are_current() -> None:
    document = SPEC.read_text(encoding="utf-8")
    assert spec_document.rendered(document) == document, "run: python -m torch_fl_spec.rules --write SPEC.md"


def test_the_document_has_every_rule_and_part() -> None:
    document = SPEC.read_text(encoding="utf-8")
    parts = spec_document.parts(document)
    assert sorted(parts) == sorted([*(f"rules {group}" for group in DESIGNED), "vocabulary", "operators"])
    assert [rule.id for rule in load_rules() if f"**{rule.id}**" not in document] == []


def test_an_unknown_part_is_no_silent_hole() -> None:
    with pytest.raises(KeyError):
        spec_document.rendered("<!-- generated: poems -->\n<!-- end -->\n")


GOOD: dict[str, Any] = {
    **{"id": "FL-MEM-001", "kind": "vendor", "chapter": "memory"},
    **{"text": "Something holds.", "why": "Reason.", "check": "look"},
}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id": "MEM-1"}, "the id"),
        ({"kind": "maybe"}, "unknown kind"),
        ({"chapter": "poetry"}, "unknown chapter"),
        ({"why": ""}, "text, why and check"),
        ({"test": "tests/x.py::test_y"}, "host rules"),
        ({"kind": "host"}, "host rules"),
        ({"needs": "luck"}, "unknown need"),
        ({"required_by": ["train"]}, "required_by without needs"),
        ({"colour": "red"}, "unknown fields"),
    ],
)
def test_ill_formed_rules_are_refused(fields: dict[str, Any], says: str) -> None:
    assert len(parse_rules({"rules": [GOOD]})) == 1
    with pytest.raises(ValueError, match=says):
        parse_rules({"rules": [{**GOOD, **fields}]})


def test_a_rule_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="FL-MEM-001"):
        parse_rules({"rules": [GOOD, GOOD]})
