"""The `torch-fl` command."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import click
import pytest
from click.testing import CliRunner
from torch_fl_spec import __version__, cli, kit_show
from torch_fl_spec.describe_process import describe

from tests.spec.plugin_builder import PluginBuilder


def test_help_lists_every_command_and_imports_no_torch() -> None:
    program = (
        "import sys; sys.argv = ['torch-fl', '--help']\n"
        "from torch_fl_spec.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'numpy', 'pytest', 'hypothesis', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]"
    for name in ("certify", "kit", "registry", "report"):
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 3  # each says in a few words what it is for


def test_every_installed_command_has_its_line_of_help() -> None:
    installed = {point.name for point in metadata.entry_points(group=cli.GROUP)}
    assert installed <= set(cli.SHORT_HELP)


def test_version() -> None:
    result = CliRunner().invoke(cli.main, ["--version"])
    assert result.output == f"torch-fl, version {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli.main, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_a_command_comes_from_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("kit", "torch_fl_spec.cli:kit", cli.GROUP)
    monkeypatch.setattr(cli.LazyGroup, "_points", lambda _: {"other": point})
    result = CliRunner().invoke(cli.main, ["other", "--help"])
    assert result.exit_code == 0
    assert "Look at vendor kits." in result.output


def test_an_entry_point_that_is_no_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("odd", "torch_fl_spec.cli:SHORT_HELP", cli.GROUP)
    monkeypatch.setattr(cli.LazyGroup, "_points", lambda _: {"odd": point})
    result = CliRunner().invoke(cli.main, ["odd"])
    assert result.exit_code == 1
    assert "is no click command" in result.output
    assert isinstance(cli.main, click.Group)


def test_kit_show_prints_what_a_plugin_declares(plugin: PluginBuilder) -> None:
    result = CliRunner().invoke(cli.main, ["kit", "show", str(plugin("good"))])
    assert result.exit_code == 0
    for words in ("fake 1.2", "fake card", "INLINE", "aten::neg r1", "i64"):
        assert words in result.output


def test_kit_show_names_what_no_run_judges(plugin: PluginBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    described = describe(plugin("good"), "")
    kernel = described["kernels"][0][0]
    described["kernels"] = [
        [
            kernel,
            {**kernel, "rows": [{**kernel["rows"][0], "dtypes": ["bool"]}]},
            {**kernel, "revision": 7},
            {**kernel, "op": "aten::maximun"},
            {**kernel, "op": "acme::spectral"},
        ]
    ]
    monkeypatch.setattr(kit_show, "describe", lambda *_: described)
    result = CliRunner().invoke(cli.main, ["kit", "show", str(plugin("good"))])
    assert result.exit_code == 0
    ignored = [line.partition("ignored: ")[2] for line in result.output.splitlines() if "ignored" in line]
    assert ignored == [
        "acme::spectral r1",
        "aten::maximun r1 (aten::maximum?)",
        "aten::neg r1 in bool",
        "aten::neg r7 (r1?)",
    ]


def test_kit_show_has_priorities_where_a_device_has_them(
    plugin: PluginBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = describe(plugin("good"), "")
    monkeypatch.setattr(kit_show, "describe", lambda *_: described)
    assert "priorities" not in CliRunner().invoke(cli.main, ["kit", "show", str(plugin("good"))]).output
    described["devices"][0]["priority_greatest"] = -2
    assert "-2 to 0" in CliRunner().invoke(cli.main, ["kit", "show", str(plugin("good"))]).output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("query_crash", "ended its process with signal SIGABRT"),
        ("no_symbol", "exports no symbol fl_plugin_query_v1"),
        ("query_fails", "driver 7 or newer needed"),
    ],
)
def test_kit_show_ends_with_one_line_where_there_is_no_plugin(plugin: PluginBuilder, name: str, words: str) -> None:
    result = CliRunner().invoke(cli.main, ["kit", "show", str(plugin(name))])
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.count("\n") == 1


def test_a_card_of_any_name_is_shown(plugin: PluginBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is taken for rich's markup, and none reaches the terminal with its control characters."""
    monkeypatch.setenv("ODD_CARD", "[/red] :smile: \x1b[31m")
    monkeypatch.setenv("COLUMNS", "160")
    result = CliRunner().invoke(cli.main, ["kit", "show", str(plugin("odd_strings"))])
    assert result.exit_code == 0, result.output
    assert "[/red] :smile: \\x1b[31m" in result.output


def test_an_entry_point_that_cannot_be_imported_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("odd", "torch_fl_spec.not_there:command", cli.GROUP)
    monkeypatch.setattr(cli.LazyGroup, "_points", lambda _: {"odd": point})
    result = CliRunner().invoke(cli.main, ["odd"])
    assert (result.exit_code, result.output) == (1, "Error: No module named 'torch_fl_spec.not_there'\n")
