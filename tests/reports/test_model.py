"""The report model: strict, closed, and described by the published schema."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError
from torch_fl_reports.model import Report
from torch_fl_reports.schema_file import SCHEMA_FILE, report_schema, schema_text


def test_published_schema_is_current() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), "run: python -m torch_fl_reports.schema_file"


def test_honest_report_fits_the_published_schema(plain: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(report_schema()).validate(plain)


def test_published_schema_refuses_an_unknown_field(plain: dict[str, Any]) -> None:
    plain["run"]["mood"] = "good"
    with pytest.raises(jsonschema.ValidationError, match="mood"):
        jsonschema.Draft202012Validator(report_schema()).validate(plain)


def test_data_survives_the_model_unchanged(plain: dict[str, Any]) -> None:
    assert Report.model_validate(plain).plain() == plain


def test_absent_fields_are_absent(plain: dict[str, Any]) -> None:
    def empties(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [found for key, item in value.items() for found in empties(item, f"{path}.{key}")]
        return [path] if value is None else []

    assert empties(plain, "report") == []
    assert "waivers" not in plain
    assert "controls" not in plain


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("run", "seed", "7"),
        ("run", "partial", 0),
        ("run", "seconds", float("nan")),
        ("run", "start", "yesterday"),
        ("run", "workers", 0),
        ("run", "seed", 2**64),
        ("run", "seconds", 1e300),
        ("run", "exit", 10**400),
        ("run", "cases", 10**400),
        ("abi", "table_hash", "abc"),
        ("suite", "source_digest", "A" * 64),
        ("environment", "env", {"A": 1}),
    ],
)
def test_wrong_values_are_errors(plain: dict[str, Any], part: str, field: str, value: object) -> None:
    plain[part][field] = value
    with pytest.raises(ValidationError):
        Report.model_validate(plain)


@pytest.mark.parametrize("field", ["cases", "seconds", "revision"])
def test_numbers_of_a_row_have_bounds(plain: dict[str, Any], field: str) -> None:
    next(row for row in plain["rows"] if row["kind"] == "operator")[field] = 10**400
    with pytest.raises(ValidationError):
        Report.model_validate(plain)


def test_numbers_that_a_plugin_declares_have_bounds(plain: dict[str, Any]) -> None:
    plain["declarations"]["devices"][0]["total_bytes"] = 10**400
    with pytest.raises(ValidationError, match="total_bytes"):
        Report.model_validate(plain)


@pytest.mark.parametrize(
    ("where", "value"), [("chapter", "$\\frac{$"), ("chapter", "x\x1b"), ("interface", "1.0\x1b[m")]
)
def test_names_that_the_suite_gives_are_plain(plain: dict[str, Any], where: str, value: str) -> None:
    (plain["rows"][0] if where == "chapter" else plain)[where] = value
    with pytest.raises(ValidationError, match=where):
        Report.model_validate(plain)


@pytest.mark.parametrize(
    "name", ["../x.so", "a/b.so", "", ".hidden", "a\\b", "a\nb", "a\x9b.so", "a\N{RIGHT-TO-LEFT OVERRIDE}.so"]
)
def test_file_names_stay_in_their_folder(plain: dict[str, Any], name: str) -> None:
    plain["subject"]["files"][0]["name"] = name
    with pytest.raises(ValidationError):
        Report.model_validate(plain)


@pytest.mark.parametrize("field", ["op", "variant", "revision"])
def test_an_operator_row_id_names_its_parts(plain: dict[str, Any], field: str) -> None:
    row = next(row for row in plain["rows"] if row["kind"] == "operator")
    row[field] = 2 if field == "revision" else "other"
    with pytest.raises(ValidationError, match="does not name its parts"):
        Report.model_validate(plain)


def test_a_rule_row_id_is_its_rule(plain: dict[str, Any]) -> None:
    row = next(row for row in plain["rows"] if row["kind"] == "rule")
    row["id"] = "FL-MEM-999"
    with pytest.raises(ValidationError, match="is not its rule"):
        Report.model_validate(plain)
