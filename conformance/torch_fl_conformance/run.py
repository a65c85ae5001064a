"""A conformance run under pytest: settles the settings, then registers what collects, runs and reports."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from torch_fl_spec.rows import ExpectedRow, fits

from torch_fl_conformance import fixtures, orphans
from torch_fl_conformance.code_files import CODE
from torch_fl_conformance.controller import WORKER_CODE, WORKER_DESELECTED, Controller
from torch_fl_conformance.preflight import settle
from torch_fl_conformance.recording import ITEM_ROW, Recorder, attach_rows
from torch_fl_conformance.settings import SETTINGS, RunSettings

_WORKERINPUT = "torch_fl"


def prepare(config: pytest.Config) -> None:
    """In the controlling process, before pytest starts: resolve, build, load and describe the plugin.

    Raises PreflightFailed with one line for the user.
    """
    orphans.adopt_until_end(config)
    config.stash[SETTINGS] = settle(config)


def is_prepared(config: pytest.Config) -> bool:
    """Whether this is a conformance run whose plugin has been looked at."""
    return SETTINGS in config.stash


def forget(config: pytest.Config) -> str:
    """After an interrupt that pytest did not survive: leave nothing behind; returns what to tell the user."""
    shutil.rmtree(config.stash[SETTINGS].staging, ignore_errors=True)
    controller: Controller | None = config.pluginmanager.get_plugin("torch_fl_controller")
    return "interrupted before any row ran" if controller is None or controller.report is None else "interrupted"


def register(config: pytest.Config) -> None:
    """Register the suite's plugins with pytest."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        orphans.adopt_until_end(config)
        config.stash[SETTINGS] = RunSettings.from_plain(json.loads(workerinput[_WORKERINPUT]))
    if SETTINGS not in config.stash:
        return  # pytest only shows its help
    settings = config.stash[SETTINGS]
    config.stash[CODE] = set()
    config.pluginmanager.register(fixtures, "torch_fl_fixtures")
    config.pluginmanager.register(Collection(settings), "torch_fl_collection")
    config.pluginmanager.register(Recorder(settings), "torch_fl_recorder")
    if workerinput is None:
        config.pluginmanager.register(Controller(config, settings), "torch_fl_controller")
        config.pluginmanager.register(Handover(settings), "torch_fl_handover")
    else:
        config.pluginmanager.register(WorkerOutput(config), "torch_fl_worker_output")


class Handover:
    """Gives pytest-xdist's workers the settings of this process."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Called for each worker before it starts."""
        workerinput: dict[str, str] = node.workerinput  # type: ignore[attr-defined]
        workerinput[_WORKERINPUT] = json.dumps(self.settings.to_plain())


class WorkerOutput:
    """Tells the controller how many items -k and its like have taken away here, and what the drivers have held."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count them."""
        self.output[WORKER_DESELECTED] = self.output.get(WORKER_DESELECTED, 0) + len(items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """The drivers are closed."""
        code = self.config.stash[CODE]
        self.output[WORKER_CODE] = sorted(code)


class Collection:
    """Which items there are: rules by their decorator, operator rows by the fixture `operator_row`."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item per claimed operator row of the module's chapter (`test_kernel` -> kernel, kernel.*)."""
        if "operator_row" not in metafunc.fixturenames:
            return
        chapter = metafunc.module.__name__.rpartition(".test_")[2]
        rows = [
            row
            for row in self.settings.rows
            if row.kind == "operator"
            and row.variant != "-"
            and (row.chapter == chapter or row.chapter.startswith(chapter + "."))
        ]
        metafunc.parametrize("operator_row", rows, ids=[item_id(row.id) for row in rows], indirect=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Tell items their rows; two checks of one row are an error of the suite."""
        # pytest stands in for a test function without parameters - no kernel of its chapter is claimed - with an
        # item that it skips. There is no such row.
        items[:] = [item for item in items if not _is_stand_in(item)]
        attach_rows(items, self.settings)
        ids = [item.stash[ITEM_ROW].expected.id for item in items if ITEM_ROW in item.stash]
        doubled = {row_id for row_id in ids if ids.count(row_id) > 1} if len(set(ids)) != len(ids) else set()
        if doubled:
            raise RuntimeError(f"more than one check for {', '.join(sorted(doubled))}")
        if wanted := config.getoption("--row"):
            _select(config, items, wanted)


def _is_stand_in(item: pytest.Item) -> bool:
    return "operator_row" in getattr(item, "fixturenames", ()) and not isinstance(
        item.callspec.params.get("operator_row"),  # type: ignore[attr-defined]
        ExpectedRow,
    )


def _select(config: pytest.Config, items: list[pytest.Item], wanted: list[str]) -> None:
    """Leave the items whose row is one of `wanted`; the preflight has seen that there are such rows."""
    others = [
        item for item in items if ITEM_ROW not in item.stash or not fits(item.stash[ITEM_ROW].expected.id, wanted)
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def item_id(row_id: str) -> str:
    """`add.Tensor-r1-generic-f32` for `aten::add.Tensor/r1/generic/f32`."""
    return row_id.removeprefix("aten::").replace("/", "-")
