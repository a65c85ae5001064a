"""Compiles spec/torch_fl_spec/operators/*.yaml into operators.json and refuses what is not well formed.

Every error names the file, the operator and the field. The compiled form holds plain lists of strings and
numbers, with dtype sets, rows and defaults expanded.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from torch_fl_spec import vocabulary
from torch_fl_spec.registry import COMPILED, SCHEMA, SOURCES, source_digest
from torch_fl_spec.registry_schema import BudgetSource, FileSource, OperatorSource, SlotSource, expand_dtypes


class RegistryError(ValueError):
    """A source file says something that the registry can't mean."""


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, or ConstructorError when it names a key twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def compile_registry() -> dict[str, Any]:
    """Compile the installed sources, write operators.json atomically and return its data.

    An installation whose folder may not be written still gets the data.
    """
    compiled = compile_sources(sorted(SOURCES.glob("*.yaml")))
    compiled["sources"] = source_digest()
    if os.access(COMPILED.parent, os.W_OK):
        _replace(COMPILED, json.dumps(compiled, indent=1) + "\n")
    return compiled


def compile_sources(paths: Iterable[Path]) -> dict[str, Any]:
    """The compiled form of these files; RegistryError names the first thing wrong."""
    operators: list[dict[str, Any]] = []
    seen: dict[tuple[str, int], str] = {}
    for path in paths:
        for operator in _compile_file(path):
            key = (operator["op"], operator["revision"])
            if key in seen:
                raise RegistryError(f"{path.name}: {key[0]} r{key[1]} stands in {seen[key]} already")
            seen[key] = path.name
            operators.append(operator)
    return {"schema": SCHEMA, "operators": operators}


def _compile_file(path: Path) -> list[dict[str, Any]]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except yaml.YAMLError as error:
        raise RegistryError(f"{path.name}: {error}") from None
    try:
        source = FileSource.model_validate(raw)
    except ValidationError as error:
        raise RegistryError(f"{path.name}: {_first_problem(raw, error)}") from None
    compiled = []
    for operator in source.operators:
        try:
            compiled.append(_compile_operator(source, operator))
        except ValueError as error:
            raise RegistryError(f"{path.name}: {operator.op}: {error}") from None
    return compiled


def _first_problem(raw: Any, error: ValidationError) -> str:
    """One line for a validation error: the operator's name where there is one, the field, what is wrong."""
    problem = error.errors()[0]
    place = list(problem["loc"])
    name = ""
    if place[:1] == ["operators"] and len(place) > 1 and isinstance(place[1], int):
        entry = raw["operators"][place[1]]
        name = f"{entry.get('op', f'operator {place[1]}') if isinstance(entry, dict) else entry}: "
        place = place[2:]
    return f"{name}{'.'.join(str(part) for part in place)}: {problem['msg']}"


def _compile_operator(file: FileSource, source: OperatorSource) -> dict[str, Any]:
    types, rows = _rows(source)
    op_class = source.op_class or file.op_class
    outs = [out.name for out in source.outs]
    slots = [_slot(slot, types) for slot in source.slots]
    names = [slot["name"] for slot in slots]
    _need(len(set(names)) == len(names), "a slot name occurs twice")
    for out in source.outs:
        _need(out.type in types or out.type in vocabulary.ALL, f"outs.{out.name}: unknown type {out.type!r}")
    for name in source.inplace:
        _need(name in names, f"inplace: no slot {name!r}")

    auxiliaries = vocabulary.AUXILIARIES[op_class]
    known = {*vocabulary.NAMES, *vocabulary.CONSTANTS, *auxiliaries}
    known |= {vocabulary.expression_name(slot["name"]) for slot in slots if slot["kind"] not in ("rng", "int_list")}
    used = vocabulary.names_in(source.n_ops, known)
    budgets = []
    for number, budget in enumerate(source.budgets):
        try:
            budgets.append(_budget(budget, types, outs))
            for expression in (budget.T, budget.when):
                if expression is not None:
                    used |= vocabulary.names_in(expression, known)
        except ValueError as error:
            raise ValueError(f"budgets[{number}]: {error}") from None
    budgets += _exact_by_rule(source, types)
    regimes = source.regimes if source.regimes is not None else file.regimes
    labels = list(dict.fromkeys([*file.labels, *source.labels]))
    _members(regimes, vocabulary.REGIMES, "regimes")
    _members(labels, vocabulary.LABELS, "labels")
    compiled = {
        "op": source.op,
        "revision": source.revision,
        "op_class": op_class,
        "summary": source.summary,
        "types": types,
        "rows": rows,
        "slots": slots,
        "outs": [out.model_dump() for out in source.outs],
        "inplace": source.inplace,
        "oracle": source.oracle,
        "budgets": budgets,
        "n_ops": source.n_ops,
        "signed_zero": source.signed_zero,
        "ndim": source.ndim,
        "compute": expand_dtypes(source.compute)[0] if source.compute else None,
        "profile": source.profile or file.profile,
        "regimes": regimes,
        "labels": labels,
        "auxiliaries": sorted(used & set(auxiliaries)),
        "notes": " ".join(source.notes.split()),
    }
    _every_row_has_a_budget(compiled)
    return compiled


def _rows(source: OperatorSource) -> tuple[list[str], list[list[str]]]:
    """Type variables and the dtype rows: a product of sets, or the list that the source gives."""
    types = list(source.types)
    if isinstance(source.types, dict):
        _need(source.rows is None, "rows beside a product of types")
        sets = [expand_dtypes(names) for names in source.types.values()]
        return types, [list(row) for row in itertools.product(*sets)]
    if not source.rows:
        raise ValueError("types is a list, so rows must be given")
    for row in source.rows:
        _need(len(row) == len(types), f"row {row} does not have {len(types)} dtypes")
        _members(row, vocabulary.ALL, "rows")
    _need(len({tuple(row) for row in source.rows}) == len(source.rows), "a row occurs twice")
    return types, source.rows


def _slot(slot: SlotSource, types: list[str]) -> dict[str, Any]:
    typed = slot.kind in ("tensor", "tensor_list", "scalar")
    _need(slot.type is not None or slot.kind not in ("tensor", "tensor_list"), f"slot {slot.name}: no type")
    if slot.type is not None:
        _need(typed, f"slot {slot.name}: a {slot.kind} has no type")
        known = slot.type in types or slot.type in vocabulary.ALL
        _need(known, f"slot {slot.name}: unknown type {slot.type!r}")
    _need(not slot.scalar or slot.kind == "tensor", f"slot {slot.name}: scalar is for tensor slots")
    _need(bool(slot.choices) == (slot.kind == "string"), f"slot {slot.name}: choices are for string slots")
    _members([slot.domain], vocabulary.DOMAINS, f"slot {slot.name}: domain")
    return slot.model_dump()


def _budget(budget: BudgetSource, types: list[str], outs: list[str]) -> dict[str, Any]:
    _need(budget.exact != (budget.T is not None), "exactly one of exact and T")
    _members(budget.dtypes, types, "dtypes")
    _members(budget.outs or [], outs, "outs")
    return {
        **budget.model_dump(),
        "outs": budget.outs or outs,
        "dtypes": {variable: list(expand_dtypes(names)) for variable, names in budget.dtypes.items()},
    }


def _exact_by_rule(source: OperatorSource, types: list[str]) -> list[dict[str, Any]]:
    """The entries for integer and bool outputs, which no source file needs to repeat."""
    exact = []
    for out in source.outs:
        not_floating = [dtype for dtype in vocabulary.ALL if dtype not in vocabulary.FLOATS]
        if out.type in types:
            dtypes = {out.type: not_floating}
        elif out.type in not_floating:
            dtypes = {}
        else:
            continue
        entry = BudgetSource(outs=[out.name], exact=True, source=vocabulary.EXACT_BY_RULE).model_dump()
        exact.append({**entry, "dtypes": dtypes})
    return exact


def _every_row_has_a_budget(compiled: dict[str, Any]) -> None:
    """Each row and output ends at an unconditional ACCURATE entry: no case is left without a bound."""
    for row in compiled["rows"]:
        dtypes = dict(zip(compiled["types"], row, strict=True))
        for out in compiled["outs"]:
            found = any(
                budget["tier"] == "ACCURATE"
                and budget["when"] is None
                and out["name"] in budget["outs"]
                and all(dtypes[variable] in accepted for variable, accepted in budget["dtypes"].items())
                for budget in compiled["budgets"]
            )
            _need(found, f"no budget for output {out['name']} of row {','.join(row)}")


def _members(names: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in names:
        _need(name in known, f"{where}: unknown {name!r}")


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new one, whole; equal sources write equal bytes."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
