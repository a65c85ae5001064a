"""The published JSON Schema of the report: generated from the model, kept beside it, compared by a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch_fl_reports.model import Report

SCHEMA_FILE = Path(__file__).parent / "schema" / "report-v1.json"
SCHEMA_ID = "https://torch-fl.org/schema/report-v1.json"


def report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `torch_fl_reports.model.Report`."""
    schema = Report.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def schema_text() -> str:
    """The file's exact contents."""
    return json.dumps(report_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
