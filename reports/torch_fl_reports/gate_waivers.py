"""The gate on waivers: those that the policy holds, in force, for this vendor and these rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from torch_fl_reports.gate_reason import Reason
from torch_fl_reports.model import OperatorRow, Report, Row, Waiver
from torch_fl_reports.policy import Policy

MAX_ERRATUM_ROWS = 3
NEVER_WAIVED = ("memory", "stream", "error", "copy", "thread")
"""Chapters in which a hardware fact excuses nothing."""


def waivers(report: Report, policy: Policy, vendor: str, now: datetime) -> Iterator[Reason]:
    """Every waiver that the report relies on, and every row that relies on one."""
    in_force = {waiver.id: waiver for waiver in policy.waivers}
    stated = {waiver.id: waiver for waiver in report.waivers}
    for waiver in report.waivers:
        if in_force.get(waiver.id) != waiver:
            yield Reason("waiver-unknown", f"waiver {waiver.id!r} is not one of this registry's policy")
        else:
            yield from _valid(waiver, vendor, now)
    for row in report.rows:
        if row.verdict == "waived":
            yield from covered(row, stated)
        elif row.waiver is not None:
            yield Reason("waiver-rows", f"{row.id} names a waiver, but its verdict is {row.verdict}")


def _valid(waiver: Waiver, vendor: str, now: datetime) -> Iterator[Reason]:
    if datetime.fromisoformat(waiver.expires.replace("Z", "+00:00")) <= now:
        yield Reason("waiver-expired", f"waiver {waiver.id!r} ended at {waiver.expires}")
    if waiver.vendor is not None and waiver.vendor != vendor:
        yield Reason("waiver-vendor", f"waiver {waiver.id!r} is for {waiver.vendor!r}, not for {vendor!r}")
    if waiver.kind == "erratum" and (waiver.vendor is None or len(waiver.rows) > MAX_ERRATUM_ROWS):
        yield Reason("waiver-rows", f"erratum {waiver.id!r} must name one vendor and at most {MAX_ERRATUM_ROWS} rows")


def covered(row: Row, stated: Mapping[str, Waiver]) -> Iterator[Reason]:
    """What stands against a waived row by the waivers of its own report, keyed by id."""
    waiver = stated.get(row.waiver or "")
    if waiver is None:
        yield Reason("waiver-unknown", f"{row.id} is waived, but the report holds no waiver for it")
        return
    if row.id not in waiver.rows:
        yield Reason("waiver-rows", f"waiver {waiver.id!r} does not cover {row.id}")
    exact = isinstance(row, OperatorRow) and row.tier == "EXACT"
    if waiver.kind == "erratum" and (exact or row.chapter in NEVER_WAIVED):
        yield Reason("waiver-forbidden", f"{row.id} is a row that no erratum can excuse")
