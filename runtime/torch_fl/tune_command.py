"""`torch-fl tune`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from torch_fl.named_function import Unusable
from torch_fl.tuning.record import TuneError
from torch_fl.tuning.scan import tune as scan

_DEFAULT = "make"


def _numbers(convert: Callable[[str], int | float]) -> dict[str, Any]:
    """An option that takes numbers with commas between."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int | float, ...]:
        try:
            return tuple(convert(word) for word in value.split(",")) if value is not None else ()
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,2,4") from None

    return {"metavar": "N,N,...", "callback": read}


@click.command()
@click.argument("where", metavar="SCRIPT_OR_MODULE[:FUNCTION]")
@click.option("--batch", **_numbers(int), help="Batch sizes to try.")
@click.option("--streams", **_numbers(int), help="Numbers of streams to try.")
@click.option("--pool", **_numbers(float), help="Shares of the device's memory to try.")
@click.option("--device", default="fl:0", show_default=True, help="Which device to measure.")
@click.option("--warm-up", default=3, show_default=True, help="Steps before the measured ones.")
@click.option("--repeats", default=10, show_default=True, help="Measured steps in each process.")
@click.option("--rounds", default=3, show_default=True, help="Processes for each combination.")
@click.option("--seed", default=0, show_default=True, help="What the order of measuring comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def tune(where: str, as_json: bool, **options: Any) -> None:
    """Which batch size, number of streams and share of memory serve a training step best.

    FUNCTION (default: make) takes `batch`, `streams` and `device`, as far as it has a use for them, and returns a
    function without parameters that does one step. Every combination of the values given is measured in processes of
    its own; the file or module is imported there, not run as a script.

    Exit: 0, 1 where every combination runs out of memory, 2 where one cannot be measured, 130 interrupted.
    """
    named = where if ":" in where else f"{where}:{_DEFAULT}"
    try:
        found = scan(named, **options, report=lambda line: click.echo(line, err=True))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except TuneError as error:
        raise Unusable(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; nothing is left running", err=True)
        sys.exit(130)
    click.echo(found.to_json() if as_json else str(found))
    sys.exit(0 if found.best else 1)
