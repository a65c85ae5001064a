"""The composite action and the reusable workflow, run as a runner would: green for the reference, red for a twin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.ci.actions import Run, run_action
from tests.twins.build import build
from tests.twins.corpus import load_twins

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "ci" / "certify" / "action.yml"
WORKFLOW = ROOT / ".github" / "workflows" / "certify.yml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A vendor's repository with a bare `origin`."""
    origin, folder = tmp_path / "origin.git", tmp_path / "work"
    subprocess.run(["git", "init", "--quiet", "--bare", str(origin)], check=True)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    git = ["git", "-C", str(folder), "-c", "user.name=vendor", "-c", "user.email=vendor@example.invalid"]
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "A kit"], check=True)
    subprocess.run([*git, "remote", "add", "origin", str(origin)], check=True)
    return folder


def certify(vendor: str, workspace: Path, options: str = "") -> Run:
    """The action on one vendor, with a badge to publish."""
    inputs = {
        "vendor": vendor,
        "options": f"--effort quick -n 2 --seed 1 {options}",
        "report": "out/report",
        "badge-name": "vendor",
    }
    return run_action(ACTION, inputs, workspace, str(Path(sys.executable).parent))


def published_badge(workspace: Path) -> dict[str, str]:
    """badge.json as the badge branch of origin holds it."""
    shown = subprocess.run(
        ["git", "-C", str(workspace.parent / "origin.git"), "show", "badges:vendor/badge.json"],
        check=True,
        capture_output=True,
        text=True,
    )
    badge: dict[str, str] = json.loads(shown.stdout)
    return badge


def test_reference_is_green(workspace: Path) -> None:
    run = certify("reference", workspace)
    assert run.codes == {"Install": 0, "Certify": 0, "Publish the badge": 0, "Verdict": 0}, run.log
    assert [step["with"]["path"] for step in run.used] == ["${{ inputs.report }}"]
    assert published_badge(workspace)["color"] not in ("red", "lightgrey"), published_badge(workspace)
    assert (workspace / "out" / "report" / "report.html").exists()


def test_twin_is_red_and_its_badge_is_published(workspace: Path) -> None:
    (twin,) = (twin for twin in load_twins() if twin.id == "c03")
    run = certify(str(build(twin.edits)), workspace, "".join(f" --row {rule}" for rule in twin.rules))
    assert run.codes == {"Install": 0, "Certify": 0, "Publish the badge": 0, "Verdict": 1}, run.log
    rows = json.loads((workspace / "out" / "report" / "report.json").read_text())["rows"]
    assert {row["verdict"] for row in rows} >= {"fail"}, rows
    assert published_badge(workspace)["color"] == "red", published_badge(workspace)


def test_something_that_is_no_plugin_is_a_usage_error(workspace: Path) -> None:
    (workspace / "notes.so").write_text("not a library")
    run = certify(str(workspace / "notes.so"), workspace)
    assert run.failed
    assert "is not a shared library" in run.log


def test_workflow_passes_its_inputs_to_the_action() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    action = yaml.safe_load(ACTION.read_text())
    declared = workflow[True]["workflow_call"]["inputs"]  # YAML 1.1 reads the key `on` as true
    (step,) = (step for step in workflow["jobs"]["certify"]["steps"] if "ci/certify" in step.get("uses", ""))
    for name, value in step["with"].items():
        assert name in action["inputs"]
        assert value == f"${{{{ inputs.{name} }}}}"
        assert name in declared
    assert workflow["permissions"] == {"contents": "write"}


@pytest.mark.parametrize("script", ["certify.sh", "gate.sh", "publish_badge.sh"])
def test_scripts_explain_themselves(script: str) -> None:
    done = subprocess.run([str(ROOT / "ci" / script)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {script} ")
