"""What calls of a convolution and of its gradients have behind their tensors."""

from __future__ import annotations

from typing import Any


def arguments(case: dict[str, Any], transposed: bool) -> tuple[list[Any], list[Any]]:
    """The arguments behind the tensors, for torch and as slots."""
    k = len(case["x"]) - 2
    lists = [list(case.get(name, (fill,) * k)) for name, fill in (("stride", 1), ("padding", 0), ("dilation", 1))]
    output_padding = list(case.get("output_padding", (0,) * k))
    groups = case.get("groups", 1)
    plain = [*lists, transposed, output_padding, groups]
    slots = [*({"ints": x} for x in lists), {"bool": transposed}, {"ints": output_padding}, {"int": groups}]
    return plain, slots
