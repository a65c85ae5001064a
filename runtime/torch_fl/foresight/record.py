"""What a user gets to know of a model's operators: a frozen record that prints as a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import torch
from rich.table import Table
from torch_fl_spec.printable import printable

from torch_fl.dtypes import SHORT_NAMES
from torch_fl.plain_text import plain_text

Tier = Literal["native", "generic", "cpu", "error"]

TIERS: tuple[Tier, ...] = ("native", "generic", "cpu", "error")


class CoverageError(RuntimeError):
    """The model could not be followed to its end; the text says where and what to do."""


@dataclass(frozen=True)
class CoverageRow:
    """Calls of one operator that one tier serves for the same dtypes.

    operator: as torch_fl.counters() names it ("aten::mm"). dtypes: of a native call the registry's row, of others those
    of its tensors, each once. forward, backward: calls of one step. reason: why no native kernel serves them, None for
    native ones.
    """

    operator: str
    dtypes: tuple[torch.dtype, ...]
    tier: Tier
    forward: int
    backward: int
    reason: str | None = None

    @property
    def calls(self) -> int:
        """Of one step."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Coverage:
    """One forward pass and, where `backward`, one backward pass of a model on `device` ("fl:0").

    rows: by tier, natives last; within a tier the most calls first. What torch_fl.counters() does not count is not
    here either: views, allocation, copies between host and device.
    """

    device: str
    backward: bool
    rows: tuple[CoverageRow, ...]

    @property
    def calls(self) -> int:
        """All of them."""
        return sum(row.calls for row in self.rows)

    @property
    def missing(self) -> tuple[CoverageRow, ...]:
        """Rows without a native kernel."""
        return tuple(row for row in self.rows if row.tier != "native")

    @property
    def native_share(self) -> float:
        """Of all calls those that are native, 0 to 1; 1 where there are none."""
        return self.calls_of("native") / self.calls if self.calls else 1.0

    @property
    def stays_on_device(self) -> bool:
        """Whether nothing is computed on the CPU and nothing raises."""
        return all(row.tier in ("native", "generic") for row in self.rows)

    def calls_of(self, tier: Tier) -> int:
        """How many calls a tier serves."""
        return sum(row.calls for row in self.rows if row.tier == tier)

    def table(self) -> Table:
        """For a rich console."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("operator", "dtypes", "tier"):
            table.add_column(heading, no_wrap=True)
        for heading in ("forward", "backward"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("why not native", no_wrap=True)
        styles = {"native": "green", "generic": "yellow", "cpu": "red", "error": "bold red"}
        for row in self.rows:
            dtypes = " ".join(SHORT_NAMES.get(dtype, str(dtype)) for dtype in row.dtypes) or "-"
            tier = f"[{styles[row.tier]}]{row.tier}[/]"
            reason = printable(row.reason or "").replace("[", "\\[")
            table.add_row(row.operator, dtypes, tier, str(row.forward), str(row.backward), reason)
        return table

    def summary(self) -> str:
        """One line: how many calls each tier serves."""
        counts = ", ".join(f"{self.calls_of(tier)} {tier}" for tier in TIERS if tier == "native" or self.calls_of(tier))
        passes = "forward and backward" if self.backward else "forward"
        return f"{self.calls} calls on {self.device}, {passes}: {counts} ({self.native_share:.0%} native)"

    def to_json(self) -> str:
        """An object: device, backward, calls, native_share, and rows with the fields of CoverageRow; dtypes are short
        names ("f32")."""
        return json.dumps(
            {
                "device": self.device,
                "backward": self.backward,
                "calls": self.calls,
                "native_share": self.native_share,
                "rows": [_plain(row) for row in self.rows],
            },
            indent=2,
        )

    def __str__(self) -> str:
        return "\n".join([self.summary(), plain_text(self.table())]) if self.rows else self.summary()

    __repr__ = __str__


def _plain(row: CoverageRow) -> dict[str, Any]:
    return {
        "operator": row.operator,
        "dtypes": [SHORT_NAMES.get(dtype, str(dtype).removeprefix("torch.")) for dtype in row.dtypes],
        "tier": row.tier,
        "forward": row.forward,
        "backward": row.backward,
        "reason": row.reason,
    }
