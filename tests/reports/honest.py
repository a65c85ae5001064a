"""An honest, wholly synthetic report: every row that a plugin claiming all operators must have, passing.

Nothing here is measured. err/T values are drawn so that pages have something to show.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

from torch_fl_reports.closed_set import closed_set
from torch_fl_reports.declared import Declarations
from torch_fl_reports.model import Profile
from torch_fl_spec import INTERFACE, __version__
from torch_fl_spec.abi import HEADER_ID
from torch_fl_spec.kernel_table import digest_of
from torch_fl_spec.registry import Operator, load_registry
from torch_fl_spec.rows import ExpectedRow
from torch_fl_spec.suite_digest import suite_digest

PLUGIN = b"\x7fELF, as far as these tests go"
VENDOR = "acme"


def plugin_file(folder: Path) -> Path:
    """A file with the bytes that the honest report is about."""
    path = folder / "libacme.so"
    path.write_bytes(PLUGIN)
    return path


def run_data(profile: Profile = "core") -> dict[str, Any]:
    """What a run hands to `write_report` beside its rows."""
    tables = [kernels(), kernels()]
    return {
        "interface": INTERFACE,
        "subject": {
            "vendor": VENDOR,
            "version": "2.3.1",
            "files": [{"name": "libacme.so", "sha256": hashlib.sha256(PLUGIN).hexdigest(), "size": len(PLUGIN)}],
            "libraries": [{"path": "/opt/acme/lib/libacmert.so.4", "sha256": "ab" * 32}],
        },
        "abi": {"header_id": HEADER_ID, "minor": 0, "table_hash": digest_of(tables)},
        "suite": {
            "version": __version__,
            "source_digest": suite_digest(),
            "registry_digest": load_registry().digest,
        },
        "run": {
            "seed": 20260801,
            "effort": "quick",
            "profile": profile,
            "start": "2026-08-01T09:00:00Z",
            "end": "2026-08-01T09:01:12Z",
            "workers": 2,
            "partial": False,
            "interrupted": False,
            "in_process": False,
            "exit": 0,
            "seconds": 72.4,
        },
        "environment": {
            "os": "Debian GNU/Linux 12",
            "kernel": "6.1.0",
            "cpu": "Acme Host 9000",
            "machine": "x86_64",
            "python": "3.11.2",
            "torch": "2.13.0",
            "env": {"ACME_LOG": "0"},
        },
        "declarations": {
            "devices": [device(0), device(1)],
            "kernels": tables,
            "extensions": {"fl.pinned": 1, "fl.fault": 1},
        },
    }


def rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    """A passing row for each expected one."""
    declared = Declarations.model_validate(run["declarations"])
    draw = random.Random(1)
    return [row(expected, draw) for expected in closed_set(run["run"]["profile"], declared)]


def row(expected: ExpectedRow, draw: random.Random) -> dict[str, Any]:
    """One expected row, passed."""
    common: dict[str, Any] = {
        "id": expected.id,
        "kind": expected.kind,
        "chapter": expected.chapter,
        "extra": expected.extra,
        "verdict": "pass",
        "cases": draw.randint(4, 160),
        "seconds": round(draw.uniform(0.01, 1.4), 3),
    }
    if expected.kind == "rule":
        return {**common, "rule": expected.rule}
    exact = not any(name in ("f16", "bf16", "f32", "f64") for name in expected.dtypes)
    ratio = 0.0 if exact else round(draw.betavariate(2, 4), 4)
    common |= {
        "op": expected.op,
        "revision": expected.revision,
        "variant": expected.variant,
        "dtypes": list(expected.dtypes),
        "tier": expected.tier,
        "labels": {"hit": {"tail": 9, "stride 0": 4}, "required": ["tail", "stride 0"]},
        "worst": {"err_over_t": ratio, "where": {"case": 3, "index": [0, 4]}},
    }
    if expected.variant == "-":
        del common["worst"], common["labels"], common["tier"]
        common |= {"verdict": "not-claimed", "cases": 0}
    return common


def device(index: int) -> dict[str, Any]:
    """A device as `describe` gives it."""
    return {
        "index": index,
        "name": "Acme A1",
        "uuid": f"{index:032x}",
        "execution_model": "ASYNC",
        "independent_streams": 1,
        "priority_least": 0,
        "priority_greatest": -1,
        "address_model": "LINEAR",
        "alloc_align": 256,
        "max_align": 4096,
        "alloc_may_wait": 0,
        "host_accessible": 0,
        "total_bytes": 8 << 30,
        "timer_resolution_ns": 1000,
        "numa_node": -1,
    }


def kernels() -> list[dict[str, Any]]:
    """A kernel table that claims every row of every operator but one dtype of erf."""
    return [_kernel(operator) for operator in load_registry()]


def _kernel(operator: Operator) -> dict[str, Any]:
    claimed = [row for row in operator.rows if (operator.op, row) != ("aten::erf", ("bf16",))]
    return {
        "op": operator.op,
        "revision": operator.revision,
        "variant": "generic",
        "n_types": len(operator.types),
        "rows": [
            {"dtypes": list(row), "accumulator": None, "accumulator_bits": 0, "path_length": 0, "flags": []}
            for row in claimed
        ],
        "ignored_rows": 0,
        "layouts": ["STRIDED"],
        "max_ndim": 8,
        "flags": ["PLAN_PURE"],
        "tier": "EXACT" if operator.op_class == "movement" else "ACCURATE",
        "priority": 0,
        "data_align": 0,
    }
