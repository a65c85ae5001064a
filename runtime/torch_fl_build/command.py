"""`torch-fl build`: the bridge ahead of its first import. Imports torch when it runs, never torch_fl."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--force", is_flag=True, help="Compile everything anew, also where it stands.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Put the module into this folder, not the cache: torch_fl/prebuilt/ of an installation or a wheel's tree.",
)
def build(force: bool, into: Path | None) -> None:
    """Compile the bridge to the torch that is installed, and load it once.

    `import torch_fl` does the same where it finds none. Exit: 0, or 1 where there is no bridge.
    """
    from . import BridgeUnavailable, load, sources, supported
    from .build import ensure

    try:
        supported.check()
        built = ensure(sources.bridge(), force=force, into=into)
        load.module(built.path)
    except BridgeUnavailable as error:
        raise click.ClickException(str(error)) from None
    took = "stood already" if built.seconds is None else f"built in {built.seconds:.1f} s"
    click.echo(f"{built.path}\n{took}")
