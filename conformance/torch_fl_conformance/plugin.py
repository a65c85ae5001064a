"""pytest plugin of the conformance suite: options, and the entry into a conformance run.

pytest loads this file in every run of an environment that has Torch-FL, so it imports nothing heavy: the
suite proper begins in `torch_fl_conformance.run`, which a run without --vendor never sees.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
USAGE = 2
"""Exit code for wrong usage and for what is no plugin."""
INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's options. Values are checked by the suite, so that a wrong one is exit code 2."""
    group = parser.getgroup("torch-fl", "Torch-FL conformance")
    group.addoption("--vendor", help="name, kit folder or plugin library (.so) to be judged")
    group.addoption("--profile", default="core", help="core (default), infer or train")
    group.addoption("--effort", default="quick", help="quick (default) or full")
    group.addoption("--seed", default=None, help="seed of all draws (default: a new one, printed)")
    group.addoption("--report", default=None, metavar="DIR", help="default: torch-fl-report/<vendor>")
    group.addoption(
        "--row",
        action="append",
        default=[],
        metavar="ID",
        help="only this row, or those of a pattern: FL-MEM-003, 'add.Tensor/*/f32' (may be repeated)",
    )
    group.addoption(
        "--in-process",
        action="store_true",
        help="load the plugin into this process, for a debugger; never certifies",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Settle, before pytest starts, whether this is a conformance run and whether it can be one."""
    if config.option.help or getattr(config.option, "version", 0) or hasattr(config, "workerinput"):
        return None
    if config.getoption("--vendor") is None:
        if names_suite(config):
            return _refuse("the conformance suite needs --vendor=NAME, KIT FOLDER or LIBRARY.so")
        return None
    if not (names_suite(config) or holds_suite(config)):
        return _refuse("--vendor is given, but no conformance test is: pytest conformance --vendor=...")
    from torch_fl_conformance import run
    from torch_fl_conformance.failures import PreflightFailed

    _heed_sigterm(config)
    try:
        run.prepare(config)
    except PreflightFailed as failure:
        return _refuse(str(failure))
    except KeyboardInterrupt:
        return _refuse("interrupted before any row ran", INTERRUPTED)
    return None


@pytest.hookimpl(specname="pytest_cmdline_main", wrapper=True)
def pytest_torch_fl_main(config: pytest.Config) -> Generator[None, object, object]:
    """pytest ends with codes of its own where it is interrupted before its session stands, and at the second Ctrl-C."""
    try:
        result = yield
    except KeyboardInterrupt:
        if not _is_prepared(config):
            raise
        result = pytest.ExitCode.INTERRUPTED
    if result == pytest.ExitCode.INTERRUPTED and _is_prepared(config):
        from torch_fl_conformance import run

        result = _refuse(run.forget(config), INTERRUPTED)
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite proper in a conformance run, in the controller and in every worker."""
    if config.getoption("--vendor") is not None:
        from torch_fl_conformance import run

        run.register(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without --vendor the chapters hold no test, whatever folder above them pytest was given."""
    if config.getoption("--vendor") is None and collection_path.is_relative_to(HERE / "chapters"):
        return True
    return None


def names_suite(config: pytest.Config) -> bool:
    """Whether one of pytest's arguments is the suite or a part of it."""
    return any(
        path.is_relative_to(HERE) or (path == HERE.parent and path.name == "conformance")
        for path in _argument_paths(config)
    )


def holds_suite(config: pytest.Config) -> bool:
    """Whether one of pytest's arguments is the whole suite, or a folder around it."""
    return any(HERE.is_relative_to(path) or path == HERE / "chapters" for path in _argument_paths(config))


def _argument_paths(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        name = argument.partition("::")[0].partition("[")[0]
        package, _, rest = name.partition(".")
        if config.option.pyargs and package == HERE.name:
            path = HERE.joinpath(*rest.split(".")) if rest else HERE
            yield path if path.exists() else path.with_suffix(".py")
        else:
            yield (config.invocation_params.dir / name).resolve()


def _heed_sigterm(config: pytest.Config) -> None:
    """Let the signal with which schedulers end a job do as Ctrl-C does, so that it, too, leaves a report."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def restore() -> None:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)

    with contextlib.suppress(ValueError):  # a thread, in which no handler can be set
        before = signal.signal(signal.SIGTERM, interrupt)
        config.add_cleanup(restore)


def _is_prepared(config: pytest.Config) -> bool:
    """Whether this process controls a conformance run whose plugin has been looked at.

    Other runs import nothing for the answer; the end of a worker is its controller's matter.
    """
    run = sys.modules.get("torch_fl_conformance.run")
    return run is not None and not hasattr(config, "workerinput") and bool(run.is_prepared(config))


def _refuse(line: str, code: int = USAGE) -> int:
    from torch_fl_spec.printable import printable

    sys.stderr.write(f"torch-fl: {printable(line)}\n")
    return code
