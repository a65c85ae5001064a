"""A failing case as a folder that runs with nothing but the loader: for the vendor's debugger."""

from __future__ import annotations

from pathlib import Path

from torch_fl_reports.writer import folder_name
from torch_fl_spec.replay import write_reproducer

from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.row import Row
from torch_fl_conformance.verdicts import Judgement, failure_text


def write_for(row: Row, judgement: Judgement, staging: Path) -> Path | None:
    """Write the row's last case below `staging`; None where its driver had been told nothing."""
    driver: Driver | None = row.driver
    if driver is None or not driver.transcript.commands():
        return None
    folder = staging / "reproducers" / folder_name(row.id)
    index = judgement.case.get("index")
    write_reproducer(
        folder,
        **driver.config.session_arguments(),
        commands=driver.transcript.commands(),
        blobs=driver.transcript.blobs,
        note=failure_text(row, judgement, None),
        index=index if isinstance(index, tuple) else None,
    )
    return folder
