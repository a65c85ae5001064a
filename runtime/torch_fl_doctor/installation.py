"""torch, the bridge to it, and the compiler that the bridge is made with."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from torch_fl_build import compiler
from torch_fl_build.build import obstacle
from torch_fl_spec import __version__

from .children import Child, run
from .finding import Finding, ok, problem, warning

_SECONDS = 120.0  # torch is large, and the file system may be far away
_BUSY = "is this machine busy, or its file system slow? `--patience 600` waits longer"
_REINSTALL = "install torch again in this environment: pip install --force-reinstall torch"


def check(seconds: float) -> Iterator[Finding]:
    """Findings about what has to stand before `import torch_fl` works. seconds: patience with torch and the bridge."""
    yield ok(f"torch-fl {__version__}, Python {platform.python_version()}, {platform.platform()}")
    child = run("torch_fl_doctor.installation_child", [], lambda _: max(seconds, _SECONDS))
    version = child.find("torch")
    if version is None:
        why = child.find("failed") or ". ".join(filter(None, (child.end, child.said)))
        yield problem(f"torch cannot be imported: {why}", _BUSY if child.gave_up else _REINSTALL)
    elif child.find("refused"):
        yield problem(child.find("refused"), "until then `import torch_fl` raises ImportError with the same words")
    else:
        yield ok(f"torch {version}")
        yield _bridge(child)
    yield _compiler(needed=version is not None and child.find("bridge") is None)


def _bridge(child: Child) -> Finding:
    path = child.find("bridge")
    if child.find("loaded"):
        return ok(f"the bridge to this torch is built and loads: {path}")
    if path is not None:
        text = f"the bridge {path} does not load: {child.end} while it was loaded; {child.said}"
        return problem(text, "`torch-fl build --force` compiles it anew")
    if not child.finished:
        return problem(
            f"looking for the bridge: {child.end}; {child.said}", "run `torch-fl build` and read what it says"
        )
    return warning(
        "the bridge to this torch is not compiled yet", "`torch-fl build` does it now, else the first import does"
    )


def _compiler(needed: bool) -> Finding:
    why_not = obstacle()
    if why_not is None:
        found = compiler.find()
        return ok(f"C++ compiler: {' '.join(found.words) if found else 'none'}")
    if needed:
        what, _, advice = why_not.partition(". ")
        return problem(what, advice)
    return ok(f"{compiler.missing()}; the bridge stands, so none is needed")
