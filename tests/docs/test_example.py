"""The smallest vendor kit is honest: it passes all that it claims, and what keeps it from its badge is named."""

from __future__ import annotations

from pathlib import Path

from torch_fl_reports.writer import read_report

from . import stage


def test_minimal_vendor_passes_what_it_claims(tmp_path: Path) -> None:
    stage.lay_out(tmp_path)
    done = stage.run("torch-fl certify examples/minimal_vendor --effort quick", tmp_path)
    report = read_report(tmp_path / "torch-fl-report" / "minimal")
    verdicts = {row.verdict for row in report.rows}
    assert verdicts == {"pass", "not-claimed"}, done.stdout
    assert not report.run.partial
    assert {row.dtypes[0] for row in report.rows if row.kind == "operator" and row.verdict == "pass"} == {
        "f32",
        "i32",
        "i64",
    }
    assert done.returncode == 1
    assert "not claimed though the profile requires them" in done.stdout
