"""The closed set of rows that a report must hold: computed from profile, declarations and kernel tables.

Suite and gate both call `expected_rows`; neither asks the report which rows it should have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch_fl_spec.registry import Operator, Registry, load_registry
from torch_fl_spec.rules import Rule, vendor_rules
from torch_fl_spec.vocabulary import PROFILES, TIERS

UNCLAIMED = "-"
# Profiles of which the registry holds every row. infer still lacks attention; train lacks backward operators.
_COMPLETE = ("core",)
_VARIANT = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class ExpectedRow:
    """One row: a vendor rule, or an operator at one variant and dtype row."""

    id: str
    kind: str  # "rule" | "operator"
    chapter: str
    may_be_not_claimed: bool
    extra: bool  # claimed beyond what the profile demands; judged like every row
    rule: str | None = None
    op: str | None = None
    revision: int | None = None
    variant: str | None = None
    dtypes: tuple[str, ...] = ()
    tier: str | None = None  # None where no kernel claims the row


def certifiable_profiles() -> tuple[str, ...]:
    """Profiles that a badge may name."""
    return _COMPLETE


def operator_row_id(op: str, revision: int, variant: str, dtypes: Iterable[str]) -> str:
    """`aten::add.Tensor/r1/generic/f32`."""
    return f"{op}/r{revision}/{variant}/{','.join(dtypes)}"


def fits(row_id: str, patterns: Iterable[str]) -> bool:
    """Whether a row is meant by one of these ids or shell-like patterns, "aten::" optional."""
    names = (row_id, row_id.removeprefix("aten::"))
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def expected_rows(
    profile: str,
    declarations: Mapping[str, Any],
    kernel_table: Sequence[Sequence[Mapping[str, Any]]],
) -> list[ExpectedRow]:
    """Every row of a run: vendor rules first, then operators in the registry's order.

    declarations: `devices` and `extensions` as the session's describe gives them. kernel_table: its
    `kernels`, one list per device; a row is claimed when any device claims it. Variants of tier FAST, or that take
    fewer dimensions than the profile asks for, are judged but fill no row of it. Operators, revisions and dtype
    rows that the registry doesn't know have no row, nor have entries with an ill-formed variant name, which
    FL-KERNEL-001 refuses. ValueError for an unknown profile.
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(PROFILES)}")
    registry = load_registry()
    claims = _claims(registry, kernel_table)
    classes = {registry.operators[op, revision].op_class for op, revision, _ in claims}
    rows = [_rule_row(rule, profile, declarations, classes) for rule in vendor_rules()]
    for operator in registry:
        for dtypes in operator.rows:
            rows += _operator_rows(operator, dtypes, profile, claims.get((operator.op, operator.revision, dtypes), {}))
    return rows


@dataclass(frozen=True)
class _Claim:
    """What the devices together claim of a row by one variant: where they differ, the least counts."""

    tier: str
    max_ndim: int

    def fills(self, operator: Operator) -> bool:
        """Whether a profile counts it."""
        return self.tier != "FAST" and self.max_ndim >= operator.profile_ndim


# (op, revision, dtype row) -> variant -> claim
_Claims = dict[tuple[str, int, tuple[str, ...]], dict[str, _Claim]]


def _claims(registry: Registry, kernel_table: Sequence[Sequence[Mapping[str, Any]]]) -> _Claims:
    """What the tables claim of the registry."""
    claims: _Claims = {}
    for device in kernel_table:
        for kernel in device:
            operator = registry.get(str(kernel["op"]), int(kernel["revision"]))
            tier = str(kernel["tier"])
            if operator is None or tier not in TIERS or not _VARIANT.fullmatch(str(kernel["variant"])):
                continue
            for row in kernel["rows"]:
                dtypes = tuple(row["dtypes"])
                if dtypes in operator.rows:
                    variants = claims.setdefault((operator.op, operator.revision, dtypes), {})
                    found = _Claim(tier, int(kernel["max_ndim"]))
                    known = variants.get(kernel["variant"], found)
                    variants[kernel["variant"]] = _Claim(
                        max(known.tier, tier, key=TIERS.index), min(known.max_ndim, found.max_ndim)
                    )
    return claims


def _operator_rows(
    operator: Operator, dtypes: tuple[str, ...], profile: str, variants: Mapping[str, _Claim]
) -> list[ExpectedRow]:
    """The rows of each variant, and the unclaimed one where no variant fills it."""
    required = operator.required_in(profile, dtypes)
    rows = []
    for variant in sorted(variants):
        claim = variants[variant]
        extra = not required or not claim.fills(operator)
        rows.append(_operator_row(operator, dtypes, variant, claim.tier, may_be_not_claimed=False, extra=extra))
    if not any(claim.fills(operator) for claim in variants.values()) and (required or not variants):
        row = _operator_row(operator, dtypes, UNCLAIMED, None, may_be_not_claimed=not required, extra=False)
        rows.append(row)
    return rows


def _operator_row(
    operator: Operator,
    dtypes: tuple[str, ...],
    variant: str,
    tier: str | None,
    *,
    may_be_not_claimed: bool,
    extra: bool,
) -> ExpectedRow:
    return ExpectedRow(
        id=operator_row_id(operator.op, operator.revision, variant, dtypes),
        kind="operator",
        chapter=operator.chapter,
        may_be_not_claimed=may_be_not_claimed,
        extra=extra,
        op=operator.op,
        revision=operator.revision,
        variant=variant,
        dtypes=dtypes,
        tier=tier,
    )


def _rule_row(rule: Rule, profile: str, declarations: Mapping[str, Any], classes: set[str]) -> ExpectedRow:
    lacking = rule.needs is not None and not _offers(rule.needs, declarations, classes)
    return ExpectedRow(
        id=rule.id,
        kind="rule",
        chapter=rule.chapter,
        may_be_not_claimed=lacking and profile not in rule.required_by,
        extra=False,
        rule=rule.id,
    )


def _offers(need: str, declarations: Mapping[str, Any], classes: set[str]) -> bool:
    """Whether the plugin has what a rule needs."""
    if need == "independent_streams":
        return any(device["independent_streams"] for device in declarations["devices"])
    if need == "kernels.random":
        return "random" in classes
    return need in declarations["extensions"]
