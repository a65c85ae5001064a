"""The documents are true: their commands run and say what is shown, their links lead somewhere, make does as told."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from torch_fl_spec.registry import load_registry
from torch_fl_spec.rules import vendor_rules

from . import stage
from .blocks import Command, Document, read

ROOT = stage.ROOT
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROSE = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "SPEC.md", *sorted(ROOT.glob("examples/*/README.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_do_what_is_shown(path: Path, tmp_path: Path) -> None:
    document = read(path)
    if not document.commands:
        pytest.skip("has no command to run")
    stage.prepare(tmp_path)
    for command in document.commands:
        done = stage.run(command.text, tmp_path)
        assert done.returncode == command.exit, _complaint(document, command, done.stdout)
        assert command.fits(done.stdout), _complaint(document, command, done.stdout)


def _complaint(document: Document, command: Command, output: str) -> str:
    return (
        f"{document.path}:{command.line}: $ {command.text}\n--- shown, exit {command.exit}\n{command.shown}"
        f"--- got\n{output}"
    )


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{path.name} links to {target}"


def _anchors(path: Path) -> set[str]:
    """Anchors of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path: Path) -> None:
    """Paths of the repository in `code` are paths of the repository."""
    rooms = "|".join(entry.name for entry in ROOT.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for name in re.findall(rf"`((?:{rooms})/[\w./-]*)`", path.read_text(encoding="utf-8")):
        if not name.startswith("torch-fl-report"):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        ("certify", "ci/certify.sh reference -n 2"),
        ("certify VENDOR=my_vendor CERTIFY_ARGS='--effort full'", "ci/certify.sh my_vendor -n 2 --effort full"),
        ("test", "pytest -n 2"),
    ],
)
def test_make_runs_what_the_readme_says(target: str, calls: str) -> None:
    """`make -n` names the commands without running them; a clean clone runs them in the project's pipeline."""
    done = subprocess.run(f"make -n {target}", shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert calls in done.stdout


def test_vocabulary_of_the_gate_is_documented() -> None:
    """Every reason that the gate can give is in the certifiers' guide."""
    guide = (ROOT / "docs" / "certifiers.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text() for path in (ROOT / "reports" / "torch_fl_reports").glob("*.py"))
    codes = set(re.findall(r'(?:Reason|Refused|MalformedJson)\(\s*"([a-z-]+)"', sources))
    codes |= set(re.findall(r'"(?:predicateType|evidence)": "([a-z-]+)"', sources))
    assert len(codes) > 40
    missing = sorted(code for code in codes if f"`{code}`" not in guide)
    assert not missing


def test_vendors_guide_names_what_profile_core_demands() -> None:
    """The numbers of rules and rows, and the operators by class, are the registry's."""
    guide = (ROOT / "docs" / "vendors.md").read_text(encoding="utf-8")
    registry = list(load_registry())
    rows = sum(operator.required_in("core", dtypes) for operator in registry for dtypes in operator.rows)
    assert f"All {len(vendor_rules())} vendor rules" in guide
    assert f"at EXACT or ACCURATE: {rows} rows" in guide
    listed = re.findall(r"^- (\w+): ((?:`[\w.]+`\s+)+)", guide.partition("<!-- core operators -->")[2], re.M)
    shown = {f"{op_class} aten::{name}" for op_class, names in listed for name in re.findall(r"`(.+?)`", names)}
    required = [operator for operator in registry if any(operator.required_in("core", row) for row in operator.rows)]
    assert shown == {f"{operator.op_class} {operator.op}" for operator in required}
