"""How the elements of a contraction's operands are made."""

from __future__ import annotations

from torch_fl_spec.registry import Operator

from torch_fl_conformance.dtypes import DTYPES
from torch_fl_conformance.problem import Claim, Recipe
from torch_fl_conformance.values import Draw as Values
from torch_fl_conformance.values import exact_magnitude


def operand_values(
    operator: Operator, claim: Claim, recipe: Recipe, terms: int, place: int, special: bool = True
) -> Values:
    """For operand `place` of a sum of `terms` products. special: whether it may hold special values."""
    regime, magnitude = recipe.regime, 7
    if regime == "special" and not special:
        regime = "normal"
    if regime == "exact_integer" and DTYPES[claim.dtypes[0]].is_float:
        # addmm adds a few more summands of the same size
        found = exact_magnitude(terms + 8, True, claim.precision(operator).bits - 4)
        regime, magnitude = ("exact_integer", found) if found else ("few", 7)
    return Values(regime, terms=max(terms, 1) * 4, magnitude=magnitude, ordinal=place, elementwise=False)
