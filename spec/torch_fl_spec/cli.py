"""The `torch-fl` command. Rooms add subcommands through entry points of group torch_fl.commands.

A subcommand's module is imported when it is used, so that `torch-fl --help` imports no torch.
"""

from __future__ import annotations

from importlib import metadata

import click

from . import __version__

GROUP = "torch_fl.commands"

#: One line for `torch-fl --help`, which must not import the command to learn it.
SHORT_HELP = {
    "build": "Compile the bridge to the torch that is installed, ahead of its first import.",
    "certify": "Run the conformance suite on a vendor's plugin and write its report.",
    "config": "Show the configuration in force, and where each value came from.",
    "coverage": "Tell which tier will serve each operator of a model, before it runs.",
    "devices": "List this machine's logical devices, and what became of each vendor.",
    "doctor": "Say why a device is missing, and what to do.",
    "kit": "Look at vendor kits.",
    "registry": "Keep a registry of certified plugins: keys, gate, entries.",
    "report": "Render a report as HTML, badge and JUnit XML.",
    "tune": "Scan batch size, streams and pool for the fastest combination.",
}


class LazyGroup(click.Group):
    """A group whose members are entry points."""

    def _points(self) -> dict[str, metadata.EntryPoint]:
        return {point.name: point for point in metadata.entry_points(group=GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Own commands and installed ones, by name."""
        return sorted({*super().list_commands(ctx), *self._points()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is about to run."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (points := self._points()):
            return own
        try:
            command = points[cmd_name].load()
        except ImportError as error:  # such as a bridge that cannot be built: its text says what to do
            raise click.ClickException(str(error)) from error
        if not isinstance(command, click.Command):
            raise click.ClickException(f"entry point {points[cmd_name].value} is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and short help without importing any of them."""
        rows = []
        for name in self.list_commands(ctx):
            rows.append((name, SHORT_HELP.get(name, "")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torch-fl")
def main() -> None:
    """Torch-FL: one C interface for AI chips, one command that proves a plugin right."""


@main.group()
def kit() -> None:
    """Look at vendor kits."""


@kit.command()
@click.argument("vendor")
def show(vendor: str) -> None:
    """Build VENDOR's plugin and print what it declares.

    VENDOR is a vendor name, a kit folder or a plugin's .so. Exit: 0, or 2 when there is no plugin.
    """
    from . import kit_show

    kit_show.show(vendor)


if __name__ == "__main__":
    main()
