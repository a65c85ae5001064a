"""A finished run becomes a report folder: report.json first, then everything that is rendered from it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch_fl_reports import totals
from torch_fl_reports.canonical import plain, read_json, report_digest
from torch_fl_reports.closed_set import closed_set, must_claim
from torch_fl_reports.model import SCHEMA, Report
from torch_fl_reports.render import render_folder

REPORT_FILE = "report.json"
REPRODUCERS = "reproducers"
ALLURE = "allure-results"


class NotAReportFolder(ValueError):
    """The folder to be replaced holds something else, which is left alone."""


def write_report(
    run: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    folder: Path,
    reproducers: Mapping[str, Path] | None = None,
    allure: Path | None = None,
) -> Report:
    """Write the report of one run to `folder`, replacing an earlier report as a whole.

    `run`: the report's parts but schema, report_id, rows and totals (interface, subject, abi, suite, run,
    environment, declarations; waivers and controls where they exist). `run["run"]["cases"]` is summed here.
    `rows`: plain dicts with the fields of `RuleRow` and `OperatorRow`; None and empty values count as absent.
    `reproducers`: row id -> folder with that row's reproducer, copied in; one that cannot be costs no more than
    itself. `allure`: Allure's result folder, copied in. Raises pydantic.ValidationError when the data is no report,
    NotAReportFolder as above.
    """
    target = folder.resolve()
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    fresh.chmod(0o755)
    try:
        copied = _copy_reproducers(reproducers or {}, fresh / REPRODUCERS)
        report = assemble(run, [{**row, **_copied(row, copied)} for row in rows])
        (fresh / REPORT_FILE).write_bytes(report_bytes(report))
        if allure is not None and allure.is_dir():
            shutil.copytree(allure, fresh / ALLURE)
        try:
            render_folder(report, fresh)
        finally:  # a page that cannot be drawn must not cost the run its report
            _replace(target, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return report


def assemble(run: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Report:
    """The report as a validated value, with totals and id computed."""
    # Declarations stay as the plugin made them: an empty list is what it said, not a field without a value.
    data: dict[str, Any] = {
        key: value if key == "declarations" else _absent(value) for key, value in plain(dict(run)).items()
    }
    data["rows"] = [_absent(plain(dict(row))) for row in rows]
    data["schema"] = SCHEMA
    data["run"] = {**data["run"], "cases": sum(row["cases"] for row in data["rows"])}
    data["report_id"] = "0" * 64
    data["totals"] = {"rows": 0, "cases": 0, "verdicts": {}, "certified": False}
    draft = Report.model_validate(data)
    required = must_claim(closed_set(draft.run.profile, draft.declarations))
    sums = totals.compute(draft.run, draft.rows, required)
    complete = draft.model_copy(update={"totals": sums})
    return complete.model_copy(update={"report_id": report_digest(complete.plain())})


def report_bytes(report: Report) -> bytes:
    """The text of report.json: indented for people, every byte decided by the report."""
    text = json.dumps(report.plain(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def read_report(path: Path) -> Report:
    """Read report.json, or the one in a report folder. Raises MalformedJson or pydantic.ValidationError."""
    file = path / REPORT_FILE if path.is_dir() else path
    return Report.model_validate(read_json(file.read_bytes()))


def folder_name(row_id: str) -> str:
    """A file name for a row id: `aten::add.Tensor/r1/generic/f32` -> `add.Tensor-r1-generic-f32`."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", row_id.removeprefix("aten::")).lstrip(".-") or "row"


def _absent(value: Any) -> Any:
    """A mapping without its None, empty-list and empty-dict fields; lists that a schema requires stay."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if item is not None and item not in ([], {})} or value


def _copied(row: Mapping[str, Any], copied: Mapping[str, str | OSError]) -> dict[str, Any]:
    """The row's fields that tell of its reproducer."""
    outcome = copied.get(row["id"])
    if isinstance(outcome, OSError):
        return {"notes": [*row.get("notes", ()), f"no reproducer: {outcome}"]}
    return {} if outcome is None else {"reproducer": outcome}


def _copy_reproducers(sources: Mapping[str, Path], target: Path) -> dict[str, str | OSError]:
    """Copy each folder; the answer maps row ids to paths relative to the report folder, or to why there is none."""
    copied: dict[str, str | OSError] = {}
    for row_id, source in sources.items():
        name = folder_name(row_id)
        try:
            shutil.copytree(source, target / name)
        except OSError as error:  # a cleaner of temporary files, a full disk
            shutil.rmtree(target / name, ignore_errors=True)
            copied[row_id] = error
        else:
            copied[row_id] = f"{REPRODUCERS}/{name}"
    return copied


def check_replaceable(target: Path) -> None:
    """Whether a report may be put at `target`, an absolute path.

    Raises NotAReportFolder where something else is or the folder around it cannot be written to, OSError where the
    path leads nowhere or no folder of this name can be made.
    """
    around = target.parent
    while not around.exists():
        around = around.parent
    if not around.is_dir() or not os.access(around, os.W_OK | os.X_OK):
        raise NotAReportFolder(f"{around} is no folder that can be written to")
    if target.exists():
        if target.is_mount():
            raise NotAReportFolder(f"{target} is where a file system begins; choose a folder below it")
        if not target.is_dir() or (any(target.iterdir()) and not _holds_report(target)):
            raise NotAReportFolder(f"{target} exists and holds no report; it is not replaced")
    # Whether it can be made is known for certain only once it has been: /proc, a read-only disk, a name too long.
    with tempfile.TemporaryDirectory(prefix=_prefix(target), dir=around) as trial:
        (Path(trial) / target.relative_to(around)).mkdir(parents=True)


def _prefix(target: Path, what: str = "") -> str:
    """Beginning of the name of a folder beside `target`; short, since a name has a longest length."""
    return f".{target.name[:40]}-{what}"


def _holds_report(folder: Path) -> bool:
    """Whether report.json is one of ours, of whatever version; other programs write files of this name, too."""
    try:
        found = json.loads((folder / REPORT_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith("torch-fl-report/")


def _replace(target: Path, fresh: Path) -> None:
    """Put `fresh` where `target` is. The old report is moved aside first and removed last.

    Two runs that end at once take turns: the later one replaces the earlier one's report.
    """
    old = None
    with _alone_in(target.parent):
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=_prefix(target, "old-"), dir=target.parent))
            target.rename(old / "report")
        fresh.rename(target)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's own lock, which leaves no file behind; without one where the file system knows none."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
