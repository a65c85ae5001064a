"""The driver process: what it knows, how it dies, and that the judge survives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_fl_conformance.driver_client import Driver, DriverConfig
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import DriverCrashed, DriverDisturbed, DriverError, DriverHung
from torch_fl_conformance.health import is_healthy
from torch_fl_conformance.kernel_calls import tensor
from torch_fl_spec.loader import PluginRefused

from .conftest import HERE, compile_plugin


@pytest.fixture
def driver(ill_library: Path) -> Iterator[Driver]:
    made = Driver(DriverConfig(str(ill_library), watchdog=5.0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def meddler_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake whose kernels meddle with their process."""
    return compile_plugin(HERE / "plugins" / "meddler.c", tmp_path_factory.mktemp("meddler") / "meddler.so")


@pytest.fixture
def meddler(meddler_library: Path) -> Iterator[Driver]:
    made = Driver(DriverConfig(str(meddler_library), watchdog=5.0))
    yield made
    made.close()


def run_kernel(driver: Driver, op: str) -> bytes:
    """Run `op` on [1, 2] and return the bytes that came back."""
    abi = Abi(driver)
    stream, source, target = abi.stream(), abi.alloc("d0", 16), abi.alloc("d0", 16)
    abi.upload(stream, source, (1).to_bytes(8, "little") + (2).to_bytes(8, "little"))
    abi.run(stream, op, "generic", [tensor(source, [2], "i64")], [tensor(target, [2], "i64")])
    return abi.download(stream, target)


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().partition("=")[::2] for entry in entries if entry)


def test_a_plugin_that_prints_does_not_disturb_the_pipe(driver: Driver) -> None:
    assert driver.describe()["name"] == "fake"
    assert run_kernel(driver, "aten::neg") == (-1).to_bytes(8, "little", signed=True) + (-2).to_bytes(
        8, "little", signed=True
    )


def test_argv_and_environment_name_no_test(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_JUDGE", "1")
    driver.start()
    argv = Path(f"/proc/{driver.pid}/cmdline").read_bytes().decode()
    seen = environment_of(driver.pid)
    assert "pytest" not in argv
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert not {"PYTEST_CURRENT_TEST", "SECRET_OF_THE_JUDGE"} & seen.keys()


def test_the_variables_that_a_kit_names_are_passed_on(ill_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_SETTING", "7")
    driver = Driver(DriverConfig(str(ill_library), pass_env=("VENDOR_SETTING", "ABSENT"), env={"EXTRA": "8"}))
    driver.start()
    seen = environment_of(driver.pid)
    driver.close()
    assert (seen["VENDOR_SETTING"], seen["EXTRA"], "ABSENT" in seen) == ("7", "8", False)


def test_no_oracle_library_is_mapped(driver: Driver) -> None:
    driver.describe()
    assert not [path for path in driver.maps() if "torch/lib" in path or "numpy" in path]


@pytest.mark.parametrize(("op", "code"), [("aten::abs", -signal.SIGSEGV), ("aten::sign", 7)])
def test_a_dead_driver_is_a_crash_with_its_command(driver: Driver, op: str, code: int) -> None:
    with pytest.raises(DriverCrashed) as caught:
        run_kernel(driver, op)
    assert caught.value.exit_code == code
    assert caught.value.command["fn"] == "kernel.run"


def test_a_crash_tells_where_it_was(driver: Driver) -> None:
    with pytest.raises(DriverCrashed) as caught:
        run_kernel(driver, "aten::abs")
    assert "Segmentation fault" in caught.value.stderr_tail
    assert "invoke" in caught.value.stderr_tail


def test_a_hang_is_killed_and_shows_stacks(ill_library: Path) -> None:
    driver = Driver(DriverConfig(str(ill_library), watchdog=1.0))
    driver.describe()
    pid = driver.pid
    with pytest.raises(DriverHung) as caught:
        run_kernel(driver, "aten::relu")
    driver.close()
    assert "invoke" in caught.value.stacks
    assert caught.value.command["fn"] == "kernel.run"
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_does_not_start_is_no_crash_of_the_plugin(
    good_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(DriverError, match=r"(?s)did not start.*no C compiler"):
        Driver(DriverConfig(str(good_library))).describe()


def test_after_a_crash_the_next_command_has_a_fresh_process(driver: Driver) -> None:
    with pytest.raises(DriverCrashed):
        run_kernel(driver, "aten::abs")
    assert is_healthy(driver)
    assert driver.starts == 2


def test_an_interrupt_leaves_no_half_read_answer(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.describe()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("torch_fl_conformance.wire.receive_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            driver.execute({"do": "now"})
    assert driver.describe()["name"] == "fake"


def test_a_wrong_command_is_the_harness_error_it_is(driver: Driver) -> None:
    with pytest.raises(DriverError, match="no_such_command"):
        driver.execute({"do": "no_such_command"})


def test_a_refused_plugin_gives_its_reasons(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library at all")
    driver = Driver(DriverConfig(str(text)))
    with pytest.raises(PluginRefused):
        driver.start()
    driver.close()


def test_the_driver_dies_with_its_judge(ill_library: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        driver = Driver(DriverConfig(str(ill_library)))
        driver.start()
        os.write(writer, str(driver.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    pid = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    assert gone_within(pid, 10.0)


def gone_within(pid: int, seconds: float) -> bool:
    """Whether the process is dead (a zombie that nobody reaps counts) in time."""
    import time

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_bulk_bytes_go_through_shared_memory(driver: Driver) -> None:
    abi = Abi(driver)
    data = bytes(range(256)) * 64
    stream, block = abi.stream(), abi.alloc("d0", len(data))
    abi.upload(stream, block, data)
    assert abi.download(stream, block) == data


def test_the_transcript_holds_the_present_case_and_its_bytes(driver: Driver) -> None:
    driver.describe()
    for value in (b"\x01", b"\x02"):
        driver.begin_case()
        driver.execute({"do": "host_alloc", "name": "h", "bytes": 5000})
        driver.execute({"do": "host_write", "name": "h", "mem": driver.place(value * 5000)})
    noted = driver.transcript.commands()
    assert [command["do"] for command in noted] == ["describe", "host_alloc", "host_write"]
    assert driver.transcript.blobs[noted[2]["mem"]["blob"]] == b"\x02" * 5000


# -- a plugin that meddles with its process ------------------------------------------------


@pytest.mark.parametrize("op", ["test::noise", "test::answer"])
def test_what_the_plugin_writes_into_the_pipes_is_no_answer(meddler: Driver, op: str) -> None:
    with pytest.raises(DriverDisturbed, match="not its own"):
        run_kernel(meddler, op)
    assert is_healthy(meddler)
    assert meddler.starts == 2


def test_a_plugin_that_closes_the_pipes_is_told_from_one_that_exits(meddler: Driver) -> None:
    with pytest.raises(DriverCrashed, match="file descriptors that are not its own were closed"):
        run_kernel(meddler, "test::close")


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_children_of_the_plugin_end_with_the_driver(meddler: Driver, end: str) -> None:
    run_kernel(meddler, "test::child")
    child = int(meddler.stderr_tail().split("child ")[1].split()[0])
    assert Path(f"/proc/{child}").exists()
    if end == "crash":
        with pytest.raises(DriverCrashed):
            meddler.execute({"do": "exit"})
    meddler.stop()
    deadline = time.monotonic() + 10
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    """Whether the process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_plugin_prints_is_shown_without_its_control_characters(meddler: Driver) -> None:
    run_kernel(meddler, "test::print")
    tail = meddler.stderr_tail()
    assert "\\x1b[31m\\x00" in tail
    assert tail.replace("\n", "").isprintable()


def test_what_a_plugin_prints_does_not_fill_the_disk(meddler: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_fl_conformance.driver_client.MOST_PRINTED", 3 << 20)
    for _ in range(8):
        run_kernel(meddler, "test::print")
        assert meddler._stderr is not None
        assert os.fstat(meddler._stderr.fileno()).st_size <= 5 << 20


def test_a_stopped_driver_is_a_hang_however_long_the_command(meddler_library: Path) -> None:
    driver = Driver(DriverConfig(str(meddler_library), watchdog=1.0))
    driver.describe()
    os.kill(driver.pid, signal.SIGSTOP)
    with pytest.raises(DriverHung):
        driver.execute({"do": "now", "pad": "x" * 1_000_000})
    driver.close()
