"""Runs a composite GitHub action here: its `run:` blocks with their `env:`, as a runner would.

Only what our own action uses is understood: inputs with defaults, outputs of steps, `if: always()` and comparisons of
an input with a word, `shell: bash`. `uses:` steps are recorded, not run.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
_COMPARISON = re.compile(r"inputs\.([\w-]+)\s*!=\s*'([^']*)'")


@dataclass
class Run:
    """What a run of the action did: each step's exit code by name, the log, the `uses:` steps that were due."""

    codes: dict[str, int] = field(default_factory=dict)
    log: str = ""
    used: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the job would be red."""
        return any(self.codes.values())


def run_action(action: Path, inputs: dict[str, str], workspace: Path, path_prefix: str) -> Run:
    """Run the composite action in `workspace`; path_prefix: a folder put first in PATH."""
    document = yaml.safe_load(action.read_text())
    values = {name: str(spec.get("default", "")) for name, spec in document["inputs"].items()} | inputs
    outputs: dict[str, dict[str, str]] = {}
    run = Run()
    for step in document["runs"]["steps"]:
        condition = str(step.get("if", ""))
        if run.failed and condition != "always()":
            continue
        compared = _COMPARISON.search(condition)
        if compared and values[compared.group(1)] == compared.group(2):
            continue
        if "uses" in step:
            run.used.append(step)
            continue
        _run_step(step, action, values, outputs, workspace, path_prefix, run)
    return run


def _run_step(
    step: dict[str, Any],
    action: Path,
    values: dict[str, str],
    outputs: dict[str, dict[str, str]],
    workspace: Path,
    path_prefix: str,
    run: Run,
) -> None:
    def resolve(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            scope, _, rest = match.group(1).partition(".")
            if scope == "inputs":
                return values[rest]
            step_id, _, name = rest.partition(".outputs.")
            assert scope == "steps", match.group(0)
            return outputs[step_id][name]

        return _EXPRESSION.sub(value, text)

    assert step["shell"] == "bash"
    assert "${{" not in step["run"], f"step {step['name']} pastes an expression into its script"
    output = workspace / ".github-output"
    output.write_text("")
    env = os.environ | {name: resolve(str(value)) for name, value in step.get("env", {}).items()}
    env |= {"GITHUB_ACTION_PATH": str(action.parent), "GITHUB_OUTPUT": str(output)}
    env["PATH"] = f"{path_prefix}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=workspace,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    run.codes[step["name"]] = done.returncode
    run.log += done.stdout
    if "id" in step:
        outputs[step["id"]] = dict(line.split("=", 1) for line in output.read_text().splitlines())
