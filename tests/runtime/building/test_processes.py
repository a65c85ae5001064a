"""Several processes that want the bridge at once, and builders that die."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.runtime.building.standin import StandIn, Wrapper

#: Holds every compilation until the file `go` exists, and says by a file that one has begun.
_HELD = """\
here=$(dirname "$0")
case "$*" in *" -c "*)
  touch "$here/begun"
  while [ ! -e "$here/go" ]; do sleep 0.05; done
esac"""

#: The same, after it has written the beginning of an object.
_HALF = _HELD.replace('touch "$here/begun"', 'for last; do :; done; echo half > "$last"; touch "$here/begun"')


class Held:
    """A compiler that waits for the test."""

    def __init__(self, folder: Path, prelude: str = _HELD) -> None:
        self.wrapper = Wrapper(folder, prelude)
        self._folder = folder

    def wait_until_begun(self, builder: subprocess.Popen[str]) -> None:
        """Until a compilation waits."""
        while not (self._folder / "begun").exists():
            assert builder.poll() is None, builder.communicate()
            time.sleep(0.02)

    def let_go(self) -> None:
        """All compilations go on from now."""
        (self._folder / "go").touch()


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(made.wrapper.path))
    return made


def finished(process: subprocess.Popen[str]) -> str:
    """stderr of a process that printed the answer."""
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "42\n"), err
    return err


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """stderr up to and with the line that holds `wanted`."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if wanted in line:
            return "".join(lines)
    raise AssertionError(f"no {wanted!r} in {''.join(lines)!r}")


def test_the_second_process_waits_and_says_for_whom(standin: StandIn, held: Held) -> None:
    first = standin.start()
    held.wait_until_begun(first)
    second = standin.start()
    assert f"process {first.pid} is building the bridge; waiting for it" in read_until(second, "waiting")
    held.let_go()
    assert "compiled in" in finished(first)
    assert "compil" not in finished(second)
    assert held.wrapper.compiled == ["answer.cpp", "module.cpp"]


def test_a_killed_builder_leaves_a_free_lock_and_no_broken_bridge(standin: StandIn, held: Held, cache: Path) -> None:
    first = standin.start()
    held.wait_until_begun(first)
    first.kill()
    first.communicate()
    assert not list(cache.glob("*.so"))
    held.let_go()  # its compilers live on, and hold the lock until they end
    finished(standin.start())
    assert not list(cache.glob("*.partial"))


def test_an_object_that_was_half_written_is_not_used(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(tmp_path / "bin", _HALF)
    monkeypatch.setenv("CXX", str(held.wrapper.path))
    first = standin.start()
    held.wait_until_begun(first)
    os.killpg(first.pid, signal.SIGKILL)  # the compilers too
    first.communicate()
    held.let_go()
    finished(standin.start())


def test_an_interrupt_ends_the_compilers(standin: StandIn, held: Held) -> None:
    first = standin.start()
    held.wait_until_begun(first)
    first.send_signal(signal.SIGINT)  # to the Python process only, as a supervisor sends it
    _, err = first.communicate(timeout=300)
    assert "KeyboardInterrupt" in err
    held.let_go()
    finished(standin.start())


def test_a_read_only_cache_serves_what_it_holds(standin: StandIn, cache: Path) -> None:
    built = standin.build()
    cache.chmod(0o555)
    cache.parent.chmod(0o555)
    try:
        served = subprocess.run(standin.command(), preexec_fn=_obey_permissions, capture_output=True, text=True)
        standin.header.write_text("#define ANSWER 43\nint answer();\n")
        refused = subprocess.run(standin.command(), preexec_fn=_obey_permissions, capture_output=True, text=True)
    finally:
        cache.parent.chmod(0o755)
        cache.chmod(0o755)
    assert (served.returncode, served.stdout) == (0, "42\n"), served.stderr
    assert refused.returncode == 1
    assert f"cannot build the bridge in {built.path.parent}: Permission denied" in refused.stderr


def _obey_permissions() -> None:
    """Root writes into read-only folders; without this capability it doesn't. Others lack it anyway."""
    drop_from_bounding_set, dac_override = 24, 1  # linux/prctl.h, linux/capability.h
    ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override)
