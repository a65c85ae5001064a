"""Pydantic models of operators/*.yaml: what a source file may say. Used at compile time only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from torch_fl_spec import vocabulary

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
OperatorName = Annotated[str, StringConstraints(pattern=r"^aten::[a-z0-9_]+(\.[A-Za-z0-9_]+)?$")]
OpClass = Literal[
    "pointwise", "reduction", "contraction", "normalisation", "pooling", "loss", "movement", "index", "random"
]
# A named set (vocabulary.DTYPE_SETS), one dtype, or a list of either.
DtypeSet = str | list[str]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SlotSource(_Model):
    """A slot of the operator, in call order."""

    name: Identifier
    kind: Literal["tensor", "tensor_list", "scalar", "int", "float", "bool", "int_list", "string", "dtype", "rng"]
    type: str | None = None
    optional: bool = False
    scalar: bool = False
    choices: list[str] = []
    domain: str = "any"


class OutputSource(_Model):
    """An output of the operator."""

    name: Identifier
    type: str


class BudgetSource(_Model):
    """One budget entry for floating outputs; rows with integer or bool outputs are exact by rule."""

    outs: list[Identifier] | None = None
    dtypes: dict[Identifier, DtypeSet] = {}
    tier: Literal["ACCURATE", "FAST"] = "ACCURATE"
    when: str | None = None
    exact: bool = False
    T: str | None = None
    also: Literal["through_f32"] | None = None
    source: Annotated[str, StringConstraints(min_length=4)]


class OperatorSource(_Model):
    """One operator revision."""

    op: OperatorName
    revision: Annotated[int, Field(ge=1)] = 1
    op_class: OpClass | None = Field(default=None, alias="class")
    summary: Annotated[str, StringConstraints(min_length=3)]
    types: dict[Identifier, DtypeSet] | list[Identifier]
    rows: list[list[str]] | None = None
    slots: list[SlotSource]
    outs: Annotated[list[OutputSource], Field(min_length=1)]
    inplace: list[Identifier] = []
    oracle: Identifier
    budgets: list[BudgetSource] = []
    n_ops: str = "1"
    signed_zero: bool = False
    ndim: Annotated[int, Field(ge=1)] | None = None
    compute: str | None = None
    profile: Literal["core", "infer", "train"] | None = None
    regimes: list[str] | None = None
    labels: list[str] = []
    notes: str = ""


class FileSource(_Model):
    """One YAML file: defaults for its operators, then the operators."""

    op_class: OpClass = Field(alias="class")
    profile: Literal["core", "infer", "train"]
    regimes: list[str]
    labels: list[str]  # required of every operator in the file, before its own
    operators: Annotated[list[OperatorSource], Field(min_length=1)]


def expand_dtypes(names: DtypeSet) -> tuple[str, ...]:
    """The dtypes of a set name, a dtype, or a list of either; ValueError for an unknown name."""
    result: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        members = vocabulary.DTYPE_SETS.get(name, (name,) if name in vocabulary.ALL else None)
        if members is None:
            raise ValueError(f"unknown dtype or set {name!r}")
        result += [member for member in members if member not in result]
    return tuple(result)
