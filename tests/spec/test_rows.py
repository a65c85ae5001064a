"""expected_rows: the closed set of rows, from declarations alone."""

from __future__ import annotations

from typing import Any

import pytest
from torch_fl_spec.registry import load_registry
from torch_fl_spec.rows import ExpectedRow, certifiable_profiles, expected_rows
from torch_fl_spec.rules import vendor_rules


def declared(independent: int = 1, **extensions: int) -> dict[str, Any]:
    names = {f"fl.{name}": revision for name, revision in extensions.items()}
    return {"devices": [{"independent_streams": independent}], "extensions": names}


def kernel(
    op: str, *rows: str, variant: str = "generic", tier: str = "ACCURATE", revision: int = 1, max_ndim: int = 8
) -> Any:
    dtypes = [{"dtypes": row.split(",")} for row in rows]
    return {
        "op": op, "revision": revision, "variant": variant, "tier": tier, "max_ndim": max_ndim, "rows": dtypes
    }  # fmt: skip


def rows_of(op: str, *devices: list[Any], profile: str = "core") -> dict[str, ExpectedRow]:
    rows = expected_rows(profile, declared(), devices)
    return {row.id: row for row in rows if row.op == op}


def permitted(declarations: dict[str, Any], *kernels: Any, profile: str = "core") -> set[str]:
    rows = expected_rows(profile, declarations, [list(kernels)])
    return {row.id for row in rows if row.kind == "rule" and row.may_be_not_claimed}


def test_ids_are_unique_and_every_registry_row_occurs() -> None:
    rows = expected_rows("core", declared(), [[]])
    assert len({row.id for row in rows}) == len(rows)
    count = sum(len(operator.rows) for operator in load_registry())
    assert len(rows) == count + len(vendor_rules())


def test_a_claimed_row_carries_variant_and_tier() -> None:
    rows = rows_of("aten::mm", [kernel("aten::mm", "f32")])
    row = rows["aten::mm/r1/generic/f32"]
    assert (row.variant, row.dtypes, row.tier, row.revision) == ("generic", ("f32",), "ACCURATE", 1)
    assert row.chapter == "kernel.contraction"
    assert not row.may_be_not_claimed
    assert not row.extra
    assert "aten::mm/r1/-/f32" not in rows


def test_unclaimed_rows_are_permitted_unless_the_profile_requires_them() -> None:
    rows = rows_of("aten::mm", [])
    assert not rows["aten::mm/r1/-/f32"].may_be_not_claimed
    assert rows["aten::mm/r1/-/f16"].may_be_not_claimed
    conv = "aten::convolution/r1/-/f32"
    assert rows_of("aten::convolution", [])[conv].may_be_not_claimed
    assert not rows_of("aten::convolution", [], profile="infer")[conv].may_be_not_claimed


def test_rows_beyond_the_profile_are_extra_and_must_still_hold() -> None:
    row = rows_of("aten::mm", [kernel("aten::mm", "f16")])["aten::mm/r1/generic/f16"]
    assert row.extra
    assert not row.may_be_not_claimed


def test_a_fast_kernel_does_not_serve_a_required_row() -> None:
    rows = rows_of("aten::mm", [kernel("aten::mm", "f32", "f16", variant="tf32", tier="FAST")])
    assert rows["aten::mm/r1/tf32/f32"].extra
    assert not rows["aten::mm/r1/-/f32"].may_be_not_claimed
    assert "aten::mm/r1/-/f16" not in rows


@pytest.mark.parametrize(
    ("op", "least"),
    [("aten::neg", 4), ("aten::sum.dim_IntList", 4), ("aten::mm", 2), ("aten::arange.start_step", 1)],
)
def test_a_kernel_of_too_few_dimensions_does_not_serve_a_required_row(op: str, least: int) -> None:
    """Four dimensions are asked for, or as many as a call of the operator can have."""
    dtypes = "f32,f32" if "sum" in op else "f32"
    enough = rows_of(op, [kernel(op, dtypes, max_ndim=least)])
    assert not enough[f"{op}/r1/generic/{dtypes}"].extra
    assert f"{op}/r1/-/{dtypes}" not in enough
    if least > 1:
        fewer = rows_of(op, [kernel(op, dtypes, max_ndim=least - 1)])
        assert fewer[f"{op}/r1/generic/{dtypes}"].extra
        assert not fewer[f"{op}/r1/-/{dtypes}"].may_be_not_claimed
        beside = [kernel(op, dtypes, max_ndim=least - 1), kernel(op, dtypes, variant="wide", max_ndim=8)]
        assert f"{op}/r1/-/{dtypes}" not in rows_of(op, beside)


def test_devices_are_united_and_the_least_precise_tier_counts() -> None:
    first = [kernel("aten::mm", "f32", tier="FAST"), kernel("aten::mm", "i32", variant="whole", tier="EXACT")]
    second = [kernel("aten::mm", "f32", "f64")]
    rows = rows_of("aten::mm", first, second)
    assert rows["aten::mm/r1/generic/f32"].tier == "FAST"
    assert rows["aten::mm/r1/generic/f64"].tier == "ACCURATE"
    assert rows["aten::mm/r1/whole/i32"].tier == "EXACT"


@pytest.mark.parametrize(
    "unknown",
    [
        kernel("aten::mm", "f32", revision=2),
        kernel("acme::mm", "f32"),
        kernel("aten::mm", "c64"),
        kernel("aten::mm", "f32", variant="-"),
        kernel("aten::mm", "f32", variant="a/b"),
        kernel("aten::mm", "f32", tier="BEST"),
    ],
)
def test_what_the_registry_does_not_know_has_no_row(unknown: Any) -> None:
    assert expected_rows("core", declared(), [[unknown]]) == expected_rows("core", declared(), [[]])


def test_extension_rules_may_stay_unclaimed_without_the_extension() -> None:
    pinned = {rule.id for rule in vendor_rules() if rule.group == "PINNED"}
    fault = {rule.id for rule in vendor_rules() if rule.group == "FAULT"} | {"FL-ERROR-004"}
    without = {"FL-KERNEL-014"}
    assert permitted(declared()) == pinned | fault | without
    assert permitted(declared(pinned=1)) == fault | without
    assert permitted(declared(fault=1)) == pinned | without
    assert permitted(declared(), profile="train") == pinned | without


def test_rules_of_absent_abilities_may_stay_unclaimed() -> None:
    both = declared(pinned=1, fault=1)
    random = kernel("aten::uniform", "f32")
    assert permitted(both, random) == set()
    assert permitted(declared(independent=0, pinned=1, fault=1), random) == {"FL-STREAM-009"}


def test_only_a_complete_profile_is_certifiable() -> None:
    assert certifiable_profiles() == ("core",)
    with pytest.raises(ValueError, match="unknown profile 'gold'"):
        expected_rows("gold", declared(), [[]])
