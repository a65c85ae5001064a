"""The op by dtype matrix of the page: one line per operator and variant, one column per dtype.

The first dtype of a row picks the column. Where it alone does not tell the rows of an operator apart, there is
one line per combination of the others: `_to_copy to f16` holds the casts from every dtype to float16.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from torch_fl_reports.model import OperatorRow, Report, Verdict

DTYPES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
"""Columns that are always in this order; dtypes beyond them follow by name."""

GLYPHS: dict[Verdict, str] = {
    "pass": "✓",
    "fail": "✕",
    "crash": "crash",
    "hang": "hang",
    "no-power": "no power",
    "error": "error",
    "collateral": "lost",
    "not-claimed": "\N{EN DASH}",
    "waived": "waived",
}


@dataclass(frozen=True)
class Cell:
    """One operator row. `heat` is worst err/T in 0...1 for rows with a budget, None for exact ones."""

    verdict: Verdict
    text: str
    heat: float | None
    hint: str


@dataclass(frozen=True)
class Line:
    """One line: the operator, what distinguishes this line from others of the operator, and its cells."""

    op: str
    detail: str
    tier: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Group:
    """The lines of one chapter."""

    chapter: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Matrix:
    """The whole matrix."""

    columns: tuple[str, ...]
    groups: tuple[Group, ...]


def matrix_of(report: Report) -> Matrix:
    """Arrange a report's operator rows."""
    rows = [row for row in report.rows if isinstance(row, OperatorRow)]
    present = {row.dtypes[0] for row in rows}
    columns = tuple(name for name in DTYPES if name in present) + tuple(sorted(present - set(DTYPES)))
    chapters: dict[str, list[OperatorRow]] = defaultdict(list)
    for row in rows:
        chapters[row.chapter].append(row)
    groups = (Group(name, tuple(_lines(members, columns))) for name, members in chapters.items())
    return Matrix(columns, tuple(groups))


def _lines(rows: list[OperatorRow], columns: tuple[str, ...]) -> list[Line]:
    seconds: dict[tuple[str, int, str], set[tuple[str, ...]]] = defaultdict(set)
    for row in rows:
        seconds[row.op, row.revision, row.dtypes[0]].add(tuple(row.dtypes[1:]))
    split = {(op, revision) for (op, revision, _), rests in seconds.items() if len(rests) > 1}
    families: dict[tuple[str, int, tuple[str, ...]], list[OperatorRow]] = defaultdict(list)
    for row in rows:
        rest = tuple(row.dtypes[1:]) if (row.op, row.revision) in split else ()
        families[row.op, row.revision, rest].append(row)
    lines = []
    for (op, revision, rest), family in families.items():
        # Unclaimed dtypes are shown on the first variant's line, not on a line of their own.
        variants = sorted({row.variant for row in family} - {"-"}) or ["-"]
        for variant in variants:
            mine = [row for row in family if row.variant == variant or _adopted(row, variant, variants)]
            by_dtype = {row.dtypes[0]: row for row in mine}
            parts = [f"r{revision}"] if revision != 1 else []
            parts += [f"to {rest[0]}" if op.startswith("aten::_to_copy") else " ".join(rest)] if rest else []
            parts += [variant] if len(variants) > 1 else []
            cells = tuple(_cell(by_dtype.get(name)) for name in columns)
            tier = next((row.tier for row in mine if row.tier is not None), "")
            lines.append(Line(op.removeprefix("aten::"), ", ".join(parts), tier, cells))
    return lines


def _adopted(row: OperatorRow, variant: str, variants: list[str]) -> bool:
    return row.variant == "-" and variant == variants[0]


def _cell(row: OperatorRow | None) -> Cell | None:
    if row is None:
        return None
    ratio = None if row.worst is None else row.worst.err_over_t
    hint = [row.id, row.verdict, f"{row.cases} cases"]
    hint += [] if ratio is None else [f"worst err/T {ratio if isinstance(ratio, str) else f'{ratio:.3g}'}"]
    text, heat = GLYPHS[row.verdict], None
    if row.verdict == "pass" and isinstance(ratio, float | int) and ratio > 0:
        text, heat = f"{ratio:.2f}", min(float(ratio), 1.0)
    return Cell(row.verdict, text, heat, " · ".join(hint))
