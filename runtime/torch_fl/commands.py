"""`torch-fl devices`."""

from __future__ import annotations

import sys
import warnings

import click


@click.command()
def devices() -> None:
    """List this machine's logical devices, and what became of each vendor.

    Exit: 0, 1 where no device can be used, 2 where the configuration is wrong.
    """
    from torch_fl.config import ConfigError
    from torch_fl.devices import DeviceWarning, list_devices, probe_report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeviceWarning)  # the report below says all of it
        try:
            found = list_devices()
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
    click.echo(str(found))
    if found:  # a list without devices says this by itself
        click.echo(f"\n{probe_report()}")
    if any(device.usable for device in found):
        sys.exit(0)
    click.echo("\n`torch-fl doctor` says what to do", err=True)
    sys.exit(1)
