"""From the rows that came to the rows that must be there: every expected one, exactly once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch_fl_conformance.ordering import GATED
from torch_fl_conformance.recording import expected_fields
from torch_fl_conformance.settings import RunSettings

NO_VERDICT = "the suite gave no verdict"
_ASYNC_RULE = "FL-STREAM-008"


def complete(
    rows: Mapping[str, dict[str, Any]], doubled: Collection[str], settings: RunSettings, *, fill: bool
) -> list[dict[str, Any]]:
    """The report's rows in the order in which they are expected.

    fill: add what is missing - operator rows that no kernel claims are `not-claimed`, any other is `error`,
    since the suite owes a verdict. A run that was cut short shows only what it has seen. A row that came
    twice is `error`, too.
    """
    complete_rows = []
    for expected in settings.rows:
        row = rows.get(expected.id)
        if row is None:
            if not fill:
                continue
            row = {**expected_fields(expected), "cases": 0, "seconds": 0.0, "verdict": "error"}
            if expected.kind == "operator" and expected.variant == "-":
                row["verdict"] = "not-claimed"
            else:
                row["message"] = NO_VERDICT
        elif expected.id in doubled:
            row = {**row, "verdict": "error", "message": "the suite gave two verdicts on this row"}
        complete_rows.append(row)
    return _without_power_when_ungated(complete_rows, settings) if fill else complete_rows


def unsettled(rows: list[dict[str, Any]], change: str) -> list[dict[str, Any]]:
    """The rows of a plugin whose bytes have changed: what passed, passed nobody knows which of them."""
    message = f"the library changed during the run: {change}; leave it alone and run again"
    return [{**row, "verdict": "error", "message": message} if row["verdict"] == "pass" else row for row in rows]


def _without_power_when_ungated(rows: list[dict[str, Any]], settings: RunSettings) -> list[dict[str, Any]]:
    """On an ASYNC device a run in which no row looked behind a closed gate has not seen any order."""
    claims_async = any(device["execution_model"] == "ASYNC" for device in settings.description["devices"])
    gated = any(row.get("labels", {}).get("hit", {}).get(GATED) for row in rows)
    if not claims_async or gated:
        return rows
    return [
        {**row, "verdict": "no-power", "message": "no row of the run checked an order behind a closed gate"}
        if row["id"] == _ASYNC_RULE and row["verdict"] == "pass"
        else row
        for row in rows
    ]
