"""Reader of the operator registry: plain dataclasses over operators.json.

The JSON is compiled from operators/*.yaml. Where these sources are present and differ from the ones the
JSON was compiled from, load_registry() compiles anew; otherwise it needs neither yaml nor pydantic.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_fl_spec.vocabulary import CORE_DTYPES, FLOATS, LABEL_DTYPES, PROFILE_NDIM, PROFILES, REGIME_DTYPES

SCHEMA = "torch-fl-operators/1"
COMPILED = Path(__file__).with_name("operators.json")
SOURCES = Path(__file__).with_name("operators")
# What the compiled form depends on besides the YAML files.
_CODE = ("registry.py", "registry_compile.py", "registry_schema.py", "vocabulary.py")


@dataclass(frozen=True)
class Slot:
    """One argument of fl_call.args; `type` is a type variable, a fixed dtype, or None for untyped kinds."""

    name: str
    kind: str
    type: str | None
    optional: bool  # may carry FL_TAG_NONE
    scalar: bool  # a kernel with FL_KERNEL_TAKES_SCALAR may get a number instead of a tensor
    choices: tuple[str, ...]  # permitted values of a string slot
    domain: str  # key of vocabulary.DOMAINS


@dataclass(frozen=True)
class Output:
    """One tensor of fl_call.outs; `type` is a type variable or a fixed dtype."""

    name: str
    type: str


@dataclass(frozen=True)
class Budget:
    """The bound T_a of |device - oracle| for some rows; SPEC.md, annex 'Operator registry'.

    The first entry of an operator that fits output, dtypes, tier and `when` counts. `exact` means T = 0
    against the oracle rounded once to the output dtype; otherwise T is the expression for T_a.
    """

    outs: tuple[str, ...]
    dtypes: Mapping[str, tuple[str, ...]]  # type variable -> dtypes it fits; absent variables fit any
    tier: str  # ACCURATE (counts for FAST too, unless a FAST entry fits) or FAST
    when: str | None  # condition over scalar and string slots, per case
    exact: bool
    T: str | None
    also: str | None  # "through_f32": a second accepted value, rounded through f32
    source: str

    def fits(self, out: str, dtypes: Mapping[str, str], tier: str) -> bool:
        """Whether the entry is for this output, row and tier; `when` is the evaluator's."""
        return (
            out in self.outs
            and tier == self.tier
            and all(dtypes[variable] in accepted for variable, accepted in self.dtypes.items())
        )


@dataclass(frozen=True)
class Operator:
    """One canonical operator at one revision."""

    op: str
    revision: int
    op_class: str
    summary: str
    types: tuple[str, ...]  # type variables, in the order of fl_kernel_row.dtypes
    rows: tuple[tuple[str, ...], ...]
    slots: tuple[Slot, ...]
    outs: tuple[Output, ...]
    inplace: tuple[str, ...]  # slots that output 0 may equal under FL_KERNEL_INPLACE_OK
    oracle: str
    budgets: tuple[Budget, ...]
    n_ops: str  # expression: roundings on the longest path that can underflow
    signed_zero: bool  # the sign of a zero result is strict
    ndim: int | None  # dimensions that a tensor of a call has at most; None: any number
    compute: str | None  # dtype that floating rows compute in, None: f32 for halves, else the dtype itself
    profile: str
    regimes: tuple[str, ...]
    labels: tuple[str, ...]
    auxiliaries: tuple[str, ...]  # values the budgets need from the oracle beside ref
    notes: str

    @property
    def short_name(self) -> str:
        """The name without its namespace: `add.Tensor`."""
        return self.op.removeprefix("aten::")

    @property
    def chapter(self) -> str:
        """The chapter its rows appear under."""
        return "random" if self.op_class == "random" else f"kernel.{self.op_class}"

    def slot(self, name: str) -> Slot:
        """The slot of that name; KeyError when there is none."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(f"{self.op} has no slot {name!r}")

    def types_of(self, row: tuple[str, ...]) -> dict[str, str]:
        """Type variable -> dtype of one row."""
        return dict(zip(self.types, row, strict=True))

    def dtype_of(self, type_name: str, row: tuple[str, ...]) -> str:
        """The dtype that a slot's or output's `type` means in one row."""
        return self.types_of(row).get(type_name, type_name)

    def compute_dtype(self, row: tuple[str, ...]) -> str:
        """The dtype that values of one row are computed in when the row declares no accumulator."""
        own = next((dtype for dtype in row if dtype in FLOATS), row[0])
        if own not in FLOATS:
            return own
        return self.compute or ("f64" if own == "f64" else "f32")

    def candidates(self, out: str, row: tuple[str, ...], tier: str) -> tuple[Budget, ...]:
        """Budget entries for one output of one row in the order to try; the first whose `when` holds counts.

        FAST entries come before the ACCURATE ones, which hold for a FAST kernel where no FAST entry fits.
        """
        dtypes = self.types_of(row)
        tiers = ("FAST", "ACCURATE") if tier == "FAST" else ("ACCURATE",)
        return tuple(b for wanted in tiers for b in self.budgets if b.fits(out, dtypes, wanted))

    def regimes_for(self, row: tuple[str, ...]) -> tuple[str, ...]:
        """The input regimes that mean something for the row's first dtype."""
        return tuple(name for name in self.regimes if row[0] in REGIME_DTYPES.get(name, row))

    def labels_for(self, row: tuple[str, ...]) -> tuple[str, ...]:
        """The required labels that mean something for the row's first dtype.

        `scalar_operand` is required only of kernels that carry FL_KERNEL_TAKES_SCALAR.
        """
        return tuple(name for name in self.labels if row[0] in LABEL_DTYPES.get(name, row))

    def required_in(self, profile: str, row: tuple[str, ...]) -> bool:
        """Whether `profile` demands that some variant claims the row at tier EXACT or ACCURATE."""
        if PROFILES.index(self.profile) > PROFILES.index(profile):
            return False
        return all(dtype in CORE_DTYPES for dtype in row)

    @property
    def profile_ndim(self) -> int:
        """The least max_ndim with which a kernel fills its row in a profile."""
        return min(self.ndim or PROFILE_NDIM, PROFILE_NDIM)


@dataclass(frozen=True)
class Registry:
    """All operators by (op, revision) and the digest that reports carry."""

    operators: Mapping[tuple[str, int], Operator]
    digest: str

    def __iter__(self) -> Any:
        """The operators in the registry's order."""
        return iter(self.operators.values())

    def get(self, op: str, revision: int = 1) -> Operator | None:
        """The operator, None when the registry doesn't know it."""
        return self.operators.get((op, revision))


def canonical_json(data: Any) -> bytes:
    """The one byte form of JSON data that digests are taken over."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def source_digest() -> str | None:
    """sha256 over the YAML sources and the code that compiles them, None where there are no sources."""
    files = sorted(SOURCES.glob("*.yaml"))
    if not files:
        return None
    files += [Path(__file__).with_name(name) for name in _CODE]
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def from_compiled(compiled: Mapping[str, Any]) -> Registry:
    """The registry in the compiled form's data; ValueError for another schema."""
    if compiled.get("schema") != SCHEMA:
        raise ValueError(f"operators.json has schema {compiled.get('schema')!r}, not {SCHEMA!r}")
    operators = [_operator(entry) for entry in compiled["operators"]]
    return Registry(
        operators={(operator.op, operator.revision): operator for operator in operators},
        digest=hashlib.sha256(canonical_json(compiled["operators"])).hexdigest(),
    )


@functools.lru_cache(maxsize=1)
def load_registry() -> Registry:
    """The registry of this installation, compiled anew when its YAML sources have changed."""
    wanted = source_digest()
    compiled = json.loads(COMPILED.read_bytes()) if COMPILED.exists() else None
    if compiled is None or (wanted is not None and compiled["sources"] != wanted):
        from torch_fl_spec.registry_compile import compile_registry

        compiled = compile_registry()
    return from_compiled(compiled)


def _operator(entry: Mapping[str, Any]) -> Operator:
    return Operator(
        **{
            **entry,
            "types": tuple(entry["types"]),
            "rows": tuple(tuple(row) for row in entry["rows"]),
            "slots": tuple(Slot(**{**slot, "choices": tuple(slot["choices"])}) for slot in entry["slots"]),
            "outs": tuple(Output(**out) for out in entry["outs"]),
            "budgets": tuple(_budget(budget) for budget in entry["budgets"]),
            **{key: tuple(entry[key]) for key in ("inplace", "regimes", "labels", "auxiliaries")},
        }
    )


def _budget(entry: Mapping[str, Any]) -> Budget:
    dtypes = {variable: tuple(accepted) for variable, accepted in entry["dtypes"].items()}
    return Budget(**{**entry, "outs": tuple(entry["outs"]), "dtypes": dtypes})
