"""`torch-fl certify VENDOR`: the conformance suite as one command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from torch_fl_conformance.plugin import INTERRUPTED, USAGE

_PYTEST_USAGE = 4


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("vendor")
@click.option("-n", "workers", default=None, metavar="N", help="Worker processes (default: none, one process).")
@click.option("--profile", default="core", show_default=True, help="What to certify: core, infer or train.")
@click.option("--effort", default="quick", show_default=True, help="How long to look: quick or full.")
@click.option("--seed", default=None, help="Seed of all draws (default: a new one, printed).")
@click.option("--report", default=None, metavar="DIR", help="Report folder [default: torch-fl-report/<vendor>].")
@click.option(
    "--row",
    "rows",
    multiple=True,
    metavar="ID",
    help="Only this row, or those of a pattern like 'add.Tensor/*' (may be repeated); never certifies.",
)
@click.option("--in-process", is_flag=True, help="Load the plugin into this process, for a debugger; never certifies.")
@click.argument("pytest_options", nargs=-1, type=click.UNPROCESSED)
def certify(
    vendor: str,
    workers: str | None,
    profile: str,
    effort: str,
    seed: str | None,
    report: str | None,
    rows: tuple[str, ...],
    in_process: bool,
    pytest_options: tuple[str, ...],
) -> None:
    """Judge the plugin of VENDOR (an installed kit's name, a kit folder or a library) and write its report.

    The same as `pytest --pyargs torch_fl_conformance --vendor=VENDOR`; further options go to pytest.
    Exit code: 0 certified, 1 not certified, 2 usage or no plugin, 3 harness error, 130 interrupted.
    """
    try:
        sys.exit(_run(vendor, workers, profile, effort, seed, report, rows, in_process, pytest_options))
    except KeyboardInterrupt:  # before pytest could take it
        sys.exit(INTERRUPTED)


def _run(
    vendor: str,
    workers: str | None,
    profile: str,
    effort: str,
    seed: str | None,
    report: str | None,
    rows: tuple[str, ...],
    in_process: bool,
    pytest_options: tuple[str, ...],
) -> int:
    import pytest

    if sys.stdout is None or sys.stderr is None:
        click.echo("torch-fl: standard output or standard error is closed; give it /dev/null instead", err=True)
        return USAGE
    # A pytest configuration or conftest of the folder one happens to stand in must not bear on the verdict.
    arguments = ["--pyargs", "torch_fl_conformance", "-c", os.devnull, f"--rootdir={Path(__file__).parent}"]
    # pytest finds this module imported before it could rewrite its assertions, which it has none of.
    arguments += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    arguments += [
        "-p",
        "no:cacheprovider",
        f"--vendor={vendor}",
        f"--profile={profile}",
        f"--effort={effort}",
    ]
    arguments += [f"--seed={seed}"] if seed is not None else []
    arguments += [f"--report={report}"] if report is not None else []
    arguments += ["-n", workers] if workers is not None else []
    arguments += [f"--row={row}" for row in rows]
    arguments += ["--in-process"] if in_process else []
    code = int(pytest.main([*arguments, *pytest_options]))
    return USAGE if code == _PYTEST_USAGE else code
