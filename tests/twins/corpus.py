"""The corpus of defective and honest plugins, as vendor_kits/twins describes it: reading and validating."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "runtime" / "reference"
SDK = ROOT / "vendor_kits" / "sdk" / "include" / "torch_fl" / "sdk"
TWINS = ROOT / "vendor_kits" / "twins"

FIXED_ROWS = ("FL-VERSION-001", "FL-VERSION-006", "FL-LAYOUT-009", "FL-MEM-003", "aten::neg/r1/generic/i16")
"""Rows that every twin must still pass, unless it says otherwise: a defect is no excuse for a wrong alarm."""

SAMPLE = ("a01", "s03", "e03", "c03", "n15", "r02")
"""Twins of every normal test run, one for each family of checks."""

RuleId = Annotated[str, StringConstraints(pattern=r"^FL-[A-Z]+-[0-9]{3}$")]


Verdict = Literal["fail", "crash", "hang"]


class StaleEdit(Exception):
    """The text that an edit replaces is not found exactly once: the source has moved on, the edit has to follow."""


class Edit(BaseModel):
    """One textual replacement in one source of the reference vendor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    old: str = Field(min_length=1)
    new: str

    @property
    def path(self) -> Path:
        """The source: relative to runtime/reference, or to the SDK's header folder."""
        own, sdk = REFERENCE / self.file, SDK / self.file
        if not own.is_file() and not sdk.is_file():
            raise StaleEdit(f"{self.file}: neither the reference vendor nor the SDK has such a file")
        return own if own.is_file() else sdk

    def applied_to(self, text: str) -> str:
        """`text` with the replacement made; raises StaleEdit."""
        found = text.count(self.old)
        if found != 1:
            raise StaleEdit(f"{self.file}: {found} places, not one, read\n{self.old}")
        return text.replace(self.old, self.new)


class Twin(Edit):
    """The reference vendor with one defect."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][0-9]{2}$")]
    title: str = Field(min_length=10)
    more: tuple[Edit, ...] = ()  # further edits of the same defect
    units: tuple[str, ...] = ()  # sources that an edit of a header reaches; none: all that include it
    rules: tuple[RuleId, ...] = Field(min_length=1)  # vendor rules that the defect breaks
    rows: tuple[str, ...] = ()  # rows or patterns to run; none: the rows of `rules`
    spoils: tuple[str, ...] = ()  # fixed rows that the defect breaks, too
    expected: tuple[Verdict, ...] = ("fail",)
    modes: Literal["async", "inline", "both"] = "async"

    @field_validator("expected", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one_sentence(self) -> Twin:
        if re.search(r"[.;:]$", self.title) or self.old == self.new:
            raise ValueError(f"{self.id}: a title without full stop, and an edit that changes something, are due")
        return self

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits."""
        return (Edit(file=self.file, old=self.old, new=self.new), *self.more)

    @property
    def targets(self) -> tuple[str, ...]:
        """Rows or patterns of rows one of which must fail."""
        return self.rows or self.rules

    @property
    def personalities(self) -> tuple[str, ...]:
        """Which libraries of the reference vendor to make it from."""
        return {
            "async": ("reference",),
            "inline": ("reference_inline",),
            "both": ("reference", "reference_inline"),
        }[self.modes]

    @property
    def fixed_rows(self) -> tuple[str, ...]:
        """Rows that must stay pass."""
        return tuple(row for row in FIXED_ROWS if row not in (*self.spoils, *self.rules) and "*" not in self.spoils)


class Variant(BaseModel):
    """The reference vendor made otherwise, and as good: it must pass everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
    title: str = Field(min_length=10)
    edits: tuple[Edit, ...] = ()
    units: tuple[str, ...] = ()  # as of a twin
    flags: tuple[str, ...] = ()  # compiler flags for `recompile`
    recompile: tuple[str, ...] = ()  # patterns of sources, relative to runtime/reference
    personality: Literal["reference", "reference_inline"] = "reference"
    sample_rows: tuple[str, ...] = Field(min_length=1)  # what a normal test run looks at


def load_twins() -> tuple[Twin, ...]:
    """All twins, in the order of their ids; ValueError where one id is given twice."""
    files = sorted(path.name for path in TWINS.glob("twins*.yaml"))
    twins = tuple(Twin.model_validate(entry) for name in files for entry in _read(name, "twins"))
    _refuse_doubles([twin.id for twin in twins])
    return tuple(sorted(twins, key=lambda twin: twin.id))


def load_variants() -> tuple[Variant, ...]:
    """All honest variants."""
    variants = tuple(Variant.model_validate(entry) for entry in _read("variants.yaml", "variants"))
    _refuse_doubles([variant.id for variant in variants])
    return variants


def _read(name: str, key: str) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = yaml.safe_load((TWINS / name).read_text(encoding="utf-8"))[key]
    return entries


def _refuse_doubles(ids: Sequence[str]) -> None:
    doubled = sorted({name for name in ids if ids.count(name) > 1})
    if doubled:
        raise ValueError(f"given twice: {', '.join(doubled)}")
