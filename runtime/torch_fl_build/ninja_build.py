"""Compiles and links by ninja, for the torch that is installed.

The work folder holds a copy of the sources beside the objects. A copy is rewritten only where its content has changed,
so ninja, which compares times, compiles again exactly what an edit calls for, whatever the times of the originals are.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from . import BridgeUnavailable
from .compiler import FLAGS, Compiler
from .progress import Progress
from .sources import Sources
from .units import with_units

_LAST_LINES = 40
_STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")

_RULES = """\
rule compile
  command = $compiler $flags -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = $in
rule link
  command = $compiler $in -o $out $libraries
  description = $out
"""


class CompilationFailed(Exception):
    """Compiler, linker or ninja ended with an error: their last words, and the file that has all of them."""

    def __init__(self, output: str, log: Path) -> None:
        super().__init__(output)
        self.output = output
        self.log = log


class NinjaBuild:
    """One build of `files` (Sources.read) in the folder `work`, of which the caller is the only user."""

    def __init__(
        self, sources: Sources, files: dict[str, bytes], compiler: Compiler, work: Path, progress: Progress
    ) -> None:
        import torch

        self.torch_name = f"torch {torch.__version__}"
        self.log = work / "build.log"
        self._sources = sources
        self._files, compiled = with_units(files)
        self._compiler = compiler
        self._work = work
        self._progress = progress
        self._objects = {name: f"obj/{name[4:-4]}.o" for name in compiled}

    @property
    def units(self) -> int:
        """Number of translation units."""
        return len(self._objects)

    def run(self, keep_open: int) -> Path:
        """The module's path below the work folder; raises CompilationFailed, OSError.

        keep_open: a file descriptor that stays open in compilers for as long as they run.
        """
        _write_changed(self._work, self._files)
        (self._work / "build.ninja").write_text(self._ninja_file(), encoding="utf-8")
        command = [_ninja(), "-C", str(self._work), "-j", str(_jobs())]
        with self.log.open("w", buffering=1, encoding="utf-8") as log:
            log.write(f"{self.torch_name}\n{self._compiler.version()}\n")
            with subprocess.Popen(
                command,
                env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=(keep_open,),
            ) as process:
                try:
                    assert process.stdout is not None
                    for line in map(self._with_real_paths, process.stdout):
                        log.write(line)
                        self._show(line)
                except BaseException:
                    process.terminate()  # ninja ends its compilers and removes what they left half-written
                    raise
        if process.returncode:
            raise CompilationFailed(self._last_words(), self.log)
        return self._work / self._module

    @property
    def _module(self) -> str:
        return f"{self._sources.module}.so"

    def _ninja_file(self) -> str:
        from torch.utils import cpp_extension

        includes = ["-Iinclude", "-Isrc"]
        for folder in [*cpp_extension.include_paths(), sysconfig.get_path("include")]:
            includes += ["-isystem", folder]  # what torch's headers warn of is not ours to mend
        defines = [f"-DTORCH_EXTENSION_NAME={self._sources.module}", f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}"]
        libraries = ["-shared", *(f"-L{path}" for path in cpp_extension.library_paths())]
        libraries += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        lines = [
            f"compiler = {_shell(self._compiler.words)}",
            f"flags = {_shell([_standard(), *FLAGS, *defines, *includes])}",
            f"libraries = {_shell(libraries)}",
            _RULES,
            *(f"build {made}: compile {name}" for name, made in self._objects.items()),
            f"build {self._module}: link {' '.join(self._objects.values())}",
        ]
        return "\n".join(lines) + "\n"

    def _with_real_paths(self, line: str) -> str:
        """A compiler's words about a copy are about the source."""
        real = f"{self._sources.folder}{os.sep}"
        return re.sub(r"(?<![\w/.-])src/(?=[\w/]+\.(?:cpp|h)\b)", lambda _: real, line)

    def _show(self, line: str) -> None:
        step = _STEP.match(line)
        if step:
            self._progress.step(f"[{step[1]}/{step[2]}] {Path(step[3]).name}")

    def _last_words(self) -> str:
        """What the compilers said last, without the pages of their command lines."""
        commands = (_shell(self._compiler.words), "ninja: Entering", "FAILED: ")
        lines = self.log.read_text(encoding="utf-8").splitlines()[2:]
        said = [line for line in lines if not line.startswith(commands) and not _STEP.match(line)]
        return "\n".join(said[-_LAST_LINES:])


def _write_changed(work: Path, files: dict[str, bytes]) -> None:
    """Make the copies equal to `files`; a changed copy is newer than any object, also where the clock went back."""
    gone = [path for path in _files_below(work, "src", "include") if path.relative_to(work).as_posix() not in files]
    for path in gone:
        path.unlink()
    changed = [name for name, content in files.items() if not _holds(work / name, content)]
    newest = max((path.stat().st_mtime_ns for path in _files_below(work, "")), default=0)
    stamp = max(time.time_ns(), newest + 1)
    for name in changed:
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
        os.utime(path, ns=(stamp, stamp))


def _files_below(work: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in (work / folder).rglob("*") if path.is_file())


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _shell(words: tuple[str, ...] | list[str]) -> str:
    """Words as a shell reads them, in a ninja file."""
    return shlex.join(words).replace("$", "$$")


def _standard() -> str:
    """The C++ standard that torch's own machinery asks for."""
    from torch.utils import cpp_extension

    text = Path(cpp_extension.__file__).read_text(encoding="utf-8")
    found: list[str] = re.findall(r"-std=c\+\+(\d\d)", text)
    return f"-std=c++{max(found, default='20')}"


def _cxx11_abi() -> int:
    import torch

    return int(torch.compiled_with_cxx11_abi())


def _ninja() -> str:
    """The program of the package ninja, which need not be on PATH, else one on PATH."""
    try:
        import ninja
    except ImportError:
        found = shutil.which("ninja")
        if found is None:
            raise BridgeUnavailable("the bridge is built by ninja, and that is missing: pip install ninja") from None
        return found
    return str(Path(ninja.BIN_DIR) / "ninja")


def _jobs() -> int:
    """Compilers at once: $MAX_JOBS as in torch's own builds, else one for each CPU that this process may use."""
    return int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
