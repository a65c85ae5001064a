"""SPEC.md's generated parts: rule lists from rules.yaml, the registry's annex from vocabulary and operators.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is `rules GROUP`, `vocabulary` or
`operators`. Everything else in the document is prose and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from torch_fl_spec import vocabulary
from torch_fl_spec.registry import Budget, Operator, Slot, load_registry
from torch_fl_spec.rules import load_rules, table

# A checkout holds the twins beside the specification; the document is only rendered there.
TWINS = Path(__file__).parents[2] / "vendor_kits" / "twins"
_PART = re.compile(r"(<!-- generated: ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(document: str) -> str:
    """The document with every generated part made anew; KeyError for an unknown part."""
    return _PART.sub(lambda match: f"{match[1]}{_part(match[2])}{match[3]}", document)


def parts(document: str) -> list[str]:
    """Names of the generated parts, in their order."""
    return [match[2] for match in _PART.finditer(document)]


def twins_by_rule() -> dict[str, list[str]]:
    """Rule id -> ids of the twins that may fail it, from vendor_kits/twins/twins*.yaml."""
    found: dict[str, list[str]] = {}
    for path in sorted(TWINS.glob("twins*.yaml")):
        for twin in yaml.safe_load(path.read_text(encoding="utf-8"))["twins"]:
            for rule in twin["rules"]:
                found.setdefault(rule, []).append(twin["id"])
    return found


def _part(name: str) -> str:
    if name.startswith("rules "):
        rules = (rule for rule in load_rules() if rule.group == name.removeprefix("rules "))
        return table(rules, twins_by_rule())
    return {"vocabulary": _vocabulary, "operators": _operators}[name]()


def _vocabulary() -> str:
    auxiliaries = {
        f"{name} ({op_class})": text
        for op_class, names in vocabulary.AUXILIARIES.items()
        for name, text in names.items()
    }
    functions = {f"{name}({', '.join('abc'[:arity])})": text for name, (arity, text) in vocabulary.FUNCTIONS.items()}
    constants = {name: f"{value:g}" for name, value in vocabulary.CONSTANTS.items()}
    sets = {name: ", ".join(dtypes) for name, dtypes in vocabulary.DTYPE_SETS.items()}
    return "\n".join(
        [
            _table("dtype set", "dtypes", sets),
            _table("name", "meaning", vocabulary.NAMES),
            _table("supplied by the oracle (class)", "meaning", auxiliaries),
            _table("function", "meaning", functions),
            _table("constant", "value", constants),
            _table("domain of a slot", "meaning", vocabulary.DOMAINS),
            _table("regime", "data", vocabulary.REGIMES),
            _table("label", "met by a case with", vocabulary.LABELS),
        ]
    )


def _table(left: str, right: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {left} | {right} |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in rows.items()]
    return "\n".join(lines) + "\n"


def _operators() -> str:
    operators = load_registry().operators.values()
    sections = []
    for op_class in vocabulary.CLASSES:
        members = [operator for operator in operators if operator.op_class == op_class]
        sections.append(f"### {op_class}\n")
        sections += [_operator(operator) for operator in members]
    return "\n".join(sections)


def _operator(operator: Operator) -> str:
    slots = ", ".join(_slot(slot) for slot in operator.slots)
    outs = ", ".join(f"{out.name} {out.type}" for out in operator.outs)
    lines = [
        f"- **`{operator.op}`** r{operator.revision} ({operator.profile}): {operator.summary}  ",
        f"  `({slots}) -> {outs}`; rows: {_rows(operator)}"
        + (f"; in place of {' or '.join(operator.inplace)}" if operator.inplace else "")
        + ("; sign of zero strict" if operator.signed_zero else "")
        + (f"; at most {operator.ndim} dimension{'s' * (operator.ndim > 1)}" if operator.ndim else ""),
    ]
    floating = [budget for budget in operator.budgets if not _by_rule(budget)]
    for budget in floating:
        lines[-1] += "  "
        lines.append(f"  {_bound(budget, len(operator.outs))}")
    if operator.notes:
        lines[-1] += "  "
        lines.append(f"  {operator.notes}")
    return "\n".join(lines)


def _slot(slot: Slot) -> str:
    kind = slot.type or slot.kind.upper()
    if slot.kind == "scalar":
        kind = f"SCALAR {slot.type or 'FLOAT'}"
    if slot.kind == "tensor_list":
        kind = f"{slot.type}[]"
    if slot.choices:
        kind = " or ".join(f'"{choice}"' for choice in slot.choices)
    return f"{slot.name} {kind}" + (" or number" if slot.scalar else "") + (" or NONE" if slot.optional else "")


def _rows(operator: Operator) -> str:
    """The dtype rows: a product of sets where they are one, else the list."""
    columns = list(zip(*operator.rows, strict=True))
    sets = [tuple(dict.fromkeys(column)) for column in columns]
    size = 1
    for members in sets:
        size *= len(members)
    if size == len(operator.rows):
        pairs = zip(operator.types, sets, strict=True)
        return " x ".join(f"{name} in {_set_name(members)}" for name, members in pairs)
    rows = " ".join(f"({', '.join(row)})" for row in operator.rows)
    return f"({', '.join(operator.types)}) in {rows}"


def _set_name(members: Iterable[str]) -> str:
    wanted = set(members)
    for name in ("A", "N", "F", "I"):
        if set(vocabulary.DTYPE_SETS[name]) == wanted:
            return name
    return "{" + ", ".join(members) + "}"


def _by_rule(budget: Budget) -> bool:
    return budget.source == vocabulary.EXACT_BY_RULE


def _bound(budget: Budget, outs: int) -> str:
    fits = [f"{name} in {_set_name(dtypes)}" for name, dtypes in budget.dtypes.items()]
    conditions = [*fits, *([f"`{budget.when}`"] if budget.when else [])]
    where = f" where {' and '.join(conditions)}" if conditions else ""
    bound = "T = 0" if budget.exact else f"T_a = `{budget.T}`"
    also = ", or the value rounded through f32" if budget.also else ""
    of = f"{', '.join(budget.outs)}: " if len(budget.outs) < outs else ""
    tier = "FAST: " if budget.tier == "FAST" else ""
    return f"{of}{tier}{bound}{also}{where} ({budget.source})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
