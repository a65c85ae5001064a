"""`torch-fl coverage`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from torch_fl import named_function
from torch_fl.named_function import Unusable, first_line


@click.command()
@click.argument("where", metavar="SCRIPT_OR_MODULE:FUNCTION")
@click.option("--device", default="fl:0", show_default=True, help="Whose kernels to ask.")
@click.option("--no-backward", is_flag=True, help="The forward pass alone.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def coverage(where: str, device: str, no_backward: bool, as_json: bool) -> None:
    """Which tier will serve each operator of a model, before it runs on the device.

    FUNCTION takes no argument and returns (model, example_inputs), or (model, example_inputs, loss), or (model,
    example_inputs, loss, targets): what torch_fl.coverage takes. The file or module is imported, not run as a script.

    Exit: 0 where every operator stays on the device, 1 where one goes to the CPU or raises, 2 where something is wrong
    with what was named.
    """
    try:
        function = named_function.find(where)
    except named_function.NotFound as error:
        raise Unusable(str(error)) from None
    import torch_fl

    made = _made(function, where)
    model, inputs, *further = made
    loss = further[0] if further else None
    targets = further[1] if len(further) == 2 else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch_fl.DeviceWarning)
        try:
            found = torch_fl.coverage(model, inputs, device, backward=not no_backward, loss=loss, targets=targets)
        except (torch_fl.ConfigError, torch_fl.CoverageError, ValueError, RuntimeError) as error:
            raise Unusable(first_line(error)) from None
    click.echo(found.to_json() if as_json else str(found))
    sys.exit(0 if found.stays_on_device else 1)


def _made(function: Callable[[], Any], where: str) -> tuple[Any, ...]:
    try:
        made = function()
    except (Exception, SystemExit) as error:
        raise Unusable(f"{where} raises {type(error).__name__}: {first_line(error)}") from None
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise Unusable(
            f"{where} returns {_said(made)}, not (model, example_inputs), followed by a loss and targets where there "
            "are any"
        )
    return made


def _said(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
