"""`torch-fl report` and `torch-fl registry`. Imports happen when a command runs: `--help` is fast."""

from __future__ import annotations

import errno
import hashlib
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from torch_fl_reports.gate_reason import Reason
    from torch_fl_reports.model import Report
    from torch_fl_reports.registry import Registry

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_EXISTING = click.Path(path_type=Path, exists=True)


class _OneLine(click.Group):
    """A group in which a damaged registry, a bad key or a disk that refuses is one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OSError as error:  # a lock that another process keeps (TimeoutError) included
            if error.errno == errno.EPIPE:  # the reader of our output has gone: click's matter
                raise
            raise click.UsageError(str(error)) from None
        except ValueError as error:
            from torch_fl_reports.keys import BadKey
            from torch_fl_reports.registry import NotARegistry

            if not isinstance(error, (BadKey, NotARegistry)):
                raise
            raise click.UsageError(str(error)) from None


@click.group(cls=_OneLine)
def report() -> None:
    """Read a certification report and draw its pages."""


@report.command()
@click.argument("source", type=_EXISTING)
def render(source: Path) -> None:
    """Draw report.html, badge.svg, badge.json and junit.xml from SOURCE, a report folder or report.json."""
    from torch_fl_reports.render import render_folder

    folder = source if source.is_dir() else source.parent
    for path in render_folder(_read(source), folder):
        click.echo(str(path))


@report.command()
@click.argument("source", type=_EXISTING)
def show(source: Path) -> None:
    """Print a summary of SOURCE, a report folder or report.json. Exit 0: passed, 1: did not pass."""
    from rich.console import Console

    from torch_fl_reports.summary import summarise
    from torch_fl_reports.terminal import show as show_report

    found = _read(source)
    folder = (source if source.is_dir() else source.parent).resolve()
    show_report(found, folder, Console(highlight=False, markup=False, emoji=False))
    sys.exit(0 if summarise(found).certified else 1)


@click.group(cls=_OneLine)
def registry() -> None:
    """Keep a registry of signed reports and let its gate decide."""


_registry_option = click.option("--registry", "folder", type=_FOLDER, required=True, help="The registry's folder.")


@registry.command()
@click.argument("folder", type=_FOLDER)
@click.option(
    "--accept-current",
    is_flag=True,
    help="Accept the suite, operators and header that are installed here.",
)
def init(folder: Path, accept_current: bool) -> None:
    """Make an empty registry in FOLDER."""
    from torch_fl_reports.policy_current import current_policy, empty_policy
    from torch_fl_reports.registry import Registry

    try:
        created = Registry.create(folder, current_policy() if accept_current else empty_policy())
    except FileExistsError as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"registry {folder} accepts {len(created.policy.suites)} suite(s); edit policy.json to change that")


@registry.command()
@click.argument("key", type=click.Path(path_type=Path, dir_okay=False))
def keygen(key: Path) -> None:
    """Make an Ed25519 key pair: KEY (keep it secret) and KEY.pub (give it to a registry)."""
    from torch_fl_reports.keys import generate

    try:
        public = generate(key)
    except FileExistsError:
        raise click.UsageError(
            f"{key} or its .pub exists already and is never replaced; use it or choose another name"
        ) from None
    click.echo(f"private key {key}\npublic key  {public}")


@registry.command()
@click.argument("vendor")
@click.argument("public_key", type=_FILE)
@_registry_option
def trust(vendor: str, public_key: Path, folder: Path) -> None:
    """Accept reports about VENDOR that are signed with PUBLIC_KEY."""
    path = _open(folder).trust(vendor, public_key.read_bytes())
    click.echo(f"{vendor} is trusted with {path}")


@registry.command()
@click.argument("source", type=_EXISTING)
@_registry_option
@click.option("--key", type=_FILE, help="The vendor's private key; not needed when SOURCE is signed already.")
@click.option("--plugin", "plugins", type=_FILE, multiple=True, required=True, help="The library that was tested.")
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="Also write the signed envelope here.")
def submit(source: Path, folder: Path, key: Path | None, plugins: tuple[Path, ...], save: Path | None) -> None:
    """Sign SOURCE (a report folder, report.json or signed envelope) and hand it in.

    Exit 0: accepted, 1: refused.
    """
    from torch_fl_reports.gate import Decision
    from torch_fl_reports.terminal_registry import show_decision

    opened = _open(folder)
    envelope, reasons = _envelope(source, key)
    if save is not None and envelope:
        save.write_bytes(envelope)
    decision = Decision(reasons)
    if envelope:
        digests = {_sha256(plugin) for plugin in plugins}
        decision = opened.submit(envelope, digests, datetime.now(timezone.utc))
    show_decision(decision)
    sys.exit(0 if decision.accepted else 1)


@registry.command("list")
@_registry_option
def list_entries(folder: Path) -> None:
    """Print a table of the index. Whether the entries hold, `verify` says."""
    from torch_fl_reports.terminal_registry import show_entries

    show_entries(_open(folder).entries(), datetime.now(timezone.utc))


@registry.command()
@_registry_option
def verify(folder: Path) -> None:
    """Check every entry again, without network or device. Exit 0: all hold, 1: some do not."""
    from torch_fl_reports.terminal_registry import show_verification

    results = _open(folder).verify()
    show_verification(results)
    sys.exit(1 if any(decision.reasons for decision in results.values()) else 0)


def _open(folder: Path) -> Registry:
    from torch_fl_reports.registry import Registry

    return Registry(folder)


def _sha256(plugin: Path) -> str:
    if not plugin.is_file():
        raise click.UsageError(f"--plugin {plugin}: no regular file")
    return hashlib.sha256(plugin.read_bytes()).hexdigest()


def _read(source: Path) -> Report:
    """The report, or a usage error of one line."""
    from pydantic import ValidationError

    from torch_fl_reports.gate import schema_reasons
    from torch_fl_reports.writer import read_report

    try:
        return read_report(source)
    except ValidationError as error:
        reasons = schema_reasons(error)
        raise click.UsageError(f"{source} is not a report: {reasons[0].text}") from None
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{source} is not a report: {error}") from None


def _envelope(source: Path, key: Path | None) -> tuple[bytes, tuple[Reason, ...]]:
    """The signed envelope, or no bytes and the reasons why the report cannot even be signed."""
    from pydantic import ValidationError

    from torch_fl_reports.attestation import is_envelope, sign
    from torch_fl_reports.canonical import MalformedJson
    from torch_fl_reports.gate import schema_reasons
    from torch_fl_reports.gate_reason import Reason
    from torch_fl_reports.keys import load_signer
    from torch_fl_reports.writer import read_report

    if source.is_file() and is_envelope(source.read_bytes()):
        return source.read_bytes(), ()
    if key is None:
        raise click.UsageError(f"{source} is not signed; give the vendor's private key with --key")
    try:
        return sign(read_report(source), load_signer(key)), ()
    except MalformedJson as error:
        return b"", (Reason(error.code, str(error)),)
    except ValidationError as error:
        return b"", schema_reasons(error)
