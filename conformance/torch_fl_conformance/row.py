"""`Row`: what a check tells of its row while it runs, and the verdict that follows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from torch_fl_conformance.failures import NotClaimed, RuleViolated


@dataclass
class Row:
    """One row of the report, filled by its check.

    A check calls `case()` once per case, `require()` for the labels without which it has no power, `label()`
    when a draw meets one, `worst()` with each element's err/T, and `check()` or `fail()` to judge.
    """

    id: str
    chapter: str
    kind: str  # "rule" or "operator"
    may_be_not_claimed: bool = False
    cases: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    required: list[str] = field(default_factory=list)
    worst_ratio: float | None = None
    worst_where: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    violates: list[str] = field(default_factory=list)
    on_case: Callable[[], None] | None = None  # called at each case(): the driver's transcript starts anew there
    seconds: float = 0.0
    driver: Any = None  # the Driver whose transcript becomes the reproducer
    ending: BaseException | None = None  # how the driver ended when the row's objects were released after the check

    def case(self, **facts: Any) -> None:
        """Count one case. `facts` (plain data: shapes, seed, ...) are printed if this case fails."""
        self.cases += 1
        self.facts = facts
        if self.on_case is not None:
            self.on_case()

    def count(self, cases: int) -> None:
        """Count cases that a driver loop ran in one command."""
        self.cases += cases

    def label(self, *names: str) -> None:
        """A draw met these labels."""
        self.hit.update(names)

    def require(self, *names: str) -> None:
        """Without a hit of each of these the row is `no-power`."""
        self.required += [name for name in names if name not in self.required]

    def worst(self, err_over_t: float, where: Any = None) -> None:
        """Report the largest err/T of a case; the row keeps the largest. NaN (wrong class) beats all."""
        old = self.worst_ratio
        if old is None or _rank(err_over_t) > _rank(old):
            self.worst_ratio, self.worst_where = float(err_over_t), where

    def check(self, holds: object, message: str, /, **facts: Any) -> None:
        """Fail the row with `message` and `facts` unless `holds` is true."""
        if not holds:
            self.fail(message, **facts)

    def fail(self, message: str, /, *, violates: tuple[str, ...] = (), **facts: Any) -> NoReturn:
        """Verdict `fail`: the plugin broke the row's rule, or those of `violates` for an operator row."""
        self.violates = list(violates) or self.violates
        raise RuleViolated(message, {**self.facts, **facts})

    def not_claimed(self, reason: str) -> NoReturn:
        """Verdict `not-claimed`: the plugin declares that it lacks what the row needs."""
        raise NotClaimed(reason)

    def note(self, text: str) -> None:
        """Add one line to the row in the report."""
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def breaks(self, *rules: str) -> Iterator[None]:
        """A failure inside names these rules in `violates`."""
        before, self.violates = self.violates, list(rules)
        yield
        self.violates = before

    def missing_labels(self) -> list[str]:
        """Required labels that no draw has met."""
        return [name for name in self.required if not self.hit[name]]

    def verdict_of_return(self) -> tuple[str, str | None]:
        """(verdict, message) of a check that returned: `pass`, or `no-power` where it could not fail."""
        if self.cases == 0:
            return "no-power", "the check ran no case"
        missing = self.missing_labels()
        if missing:
            return "no-power", "no case met the required label(s) " + ", ".join(missing)
        return "pass", None

    def data(self) -> dict[str, Any]:
        """The row's part of the report so far, as plain data; absent fields absent."""
        row: dict[str, Any] = {"id": self.id, "chapter": self.chapter, "kind": self.kind, "cases": self.cases}
        if self.hit or self.required:
            row["labels"] = {"hit": dict(sorted(self.hit.items())), "required": list(self.required)}
        if self.worst_ratio is not None:
            row["worst"] = {"err_over_t": _ratio(self.worst_ratio)}
            if self.worst_where is not None:
                row["worst"]["where"] = plain(self.worst_where)
        if self.violates:
            row["violates"] = list(self.violates)
        if self.notes:
            row["notes"] = list(self.notes)
        return row


def _rank(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio


def _ratio(value: float) -> float | str:
    if math.isnan(value):
        return "nan"
    return "inf" if math.isinf(value) else value


def plain(value: Any) -> Any:
    """`value` as JSON data: tuples become lists, numbers of other libraries become Python's, NaN a word."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
