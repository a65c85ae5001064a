"""Plugins that are the reference vendor's inline personality but for some edits of its sources."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torch_fl_spec import bundled

#: File -> (text, what stands in its place); each text occurs once.
Edits = Mapping[str, list[tuple[str, str]]]


def build(folder: Path, name: str, edits: Edits) -> Path:
    """The library of the edited sources, under a vendor name of its own; `folder` need not exist."""
    source = folder / name
    shutil.copytree(
        bundled.reference(), source, ignore=shutil.ignore_patterns("build", "inline", "personality_async.c")
    )
    renamed: Edits = {"personality_inline.c": [('"reference_inline"', f'"{name}"')]}
    for file, pairs in [*renamed.items(), *edits.items()]:
        text = (source / file).read_text()
        for old, new in pairs:
            assert text.count(old) == 1, (file, old)
            text = text.replace(old, new)
        (source / file).write_text(text)
    library = folder / f"libfl_{name}.so"
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O0", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared"]
    includes = [f"-I{each}" for each in (source, *bundled.include_dirs())]
    sources = [str(each) for each in (*source.glob("*.c"), *source.glob("kernels/*.c"))]
    script = f"-Wl,--version-script={source / 'plugin.map'}"
    subprocess.run([*command, *includes, *sources, "-o", str(library), script, "-lm"], check=True)
    return library
