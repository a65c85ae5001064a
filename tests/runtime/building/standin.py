"""Sources that stand in for the bridge: as many folders and headers as it takes, and no torch to parse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from torch_fl_build import load, sources
from torch_fl_build.build import Built, ensure
from torch_fl_build.sources import Sources

_MODULE = """\
#include <Python.h>
#include "core/answer.h"

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_bridge", nullptr, -1, nullptr, nullptr, nullptr, nullptr,
                                 nullptr};
PyMODINIT_FUNC PyInit__bridge() {
  PyObject* module = PyModule_Create(&definition);
  PyModule_AddIntConstant(module, "answer", answer());
  return module;
}
"""
_ANSWER = """\
#include "core/answer.h"
#include "torch_fl/plugin.h"

int answer() { return FL_OK + ANSWER; }
"""
_HEADER = """\
#pragma once
#define ANSWER 42
int answer();
"""

#: What a second process runs: argv[1] is the folder of the sources.
_PROGRAM = f"""\
import sys
from pathlib import Path
from torch_fl_build import load, sources
found = load.built(sources.Sources(Path(sys.argv[1]), Path({str(sources.bridge().include)!r})))
print(found.answer)
"""


class StandIn:
    """A folder of sources that a test edits, builds and loads."""

    def __init__(self, folder: Path) -> None:
        self.sources = Sources(folder, sources.bridge().include)
        self.module = folder / "module.cpp"
        self.answer = folder / "core" / "answer.cpp"
        self.header = folder / "core" / "answer.h"
        self.answer.parent.mkdir(parents=True)
        for path, text in ((self.module, _MODULE), (self.answer, _ANSWER), (self.header, _HEADER)):
            path.write_text(text)

    def build(self, *, force: bool = False, into: Path | None = None) -> Built:
        """Build in this process."""
        return ensure(self.sources, force=force, into=into)

    def loaded(self, path: Path) -> int:
        """The attribute of a built module."""
        module = load.module(path, f"standin.n{path.stat().st_ino}_{path.stat().st_mtime_ns}._bridge")
        answer: int = module.answer
        return answer

    def command(self) -> list[str]:
        """What builds if need be, loads, and prints the attribute."""
        return [sys.executable, "-c", _PROGRAM, str(self.sources.folder)]

    def start(self) -> subprocess.Popen[str]:
        """That command in another process, a session of its own."""
        return subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def replace_unnoticed(path: Path, old: str, new: str) -> None:
    """Edit a file so that its size and time of modification stay what they were."""
    assert len(old) == len(new)
    stat = path.stat()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


class Wrapper:
    """A C++ compiler that writes down its calls, and does to each what `prelude`, lines of shell, says first."""

    def __init__(self, folder: Path, prelude: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "mycxx"
        self._calls = folder / "calls"
        real = shutil.which("c++")
        assert real, "the tests need a C++ compiler"
        self.path.write_text(f'#!/bin/sh\necho "$*" >> {self._calls}\n{prelude}\nexec {real} "$@"\n')
        self.path.chmod(0o755)

    @property
    def compiled(self) -> list[str]:
        """Names of the files compiled so far, sorted."""
        text = self._calls.read_text() if self._calls.exists() else ""
        words = [word for line in text.splitlines() if " -c " in line for word in line.split()]
        return sorted(Path(word).name for word in words if word.endswith(".cpp"))
