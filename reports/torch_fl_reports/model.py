"""The report of one certification run: all that crosses from the suite to pages, badge and gate.

Plain data, strict on purpose: unknown fields, wrong types, NaN and infinity are errors, so that a reader
never has to guess. Optional fields are absent when they have nothing to say, never empty or null.
`schema/report-v1.json` is generated from this file (`python -m torch_fl_reports.schema_file`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from torch_fl_spec.rows import operator_row_id

from torch_fl_reports.declared import Declarations

SCHEMA = "torch-fl-report/v1"
"""Value of `schema`; a change of any field's meaning is a new one."""

Verdict: TypeAlias = Literal[
    "pass",
    "fail",
    "crash",
    "hang",
    "no-power",  # the draws missed a required label, so the row could not have failed
    "error",  # the harness failed, not the plugin
    "collateral",  # could not run because of another row's failure
    "not-claimed",
    "waived",
]
Profile: TypeAlias = Literal["core", "infer", "train"]
Effort: TypeAlias = Literal["quick", "full"]

Sha256: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Chapter: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]+(\.[a-z]+)?$", max_length=60)]
Interface: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(-[a-z0-9.]+)?$", max_length=60)]
_UNSHOWN = r"\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"  # controls, turns of direction
FileName: TypeAlias = Annotated[
    str, StringConstraints(pattern=rf"^[^./\\{_UNSHOWN}][^/\\{_UNSHOWN}]*$", max_length=200)
]
"""A bare file name that shows as it is: no separator, so it cannot leave the folder it is put in."""
RelativePath: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_+][A-Za-z0-9._+-]*(/[A-Za-z0-9_+][A-Za-z0-9._+-]*)*$", max_length=400),
]
"""A path inside the report folder; no part begins with a dot, so `..` cannot be written."""
RuleId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^FL-[A-Z]+-[0-9]{3}$")]
Instant: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$")
]
"""UTC time, RFC 3339 with a final Z."""


def _is_a_day(text: str) -> str:
    datetime.fromisoformat(text.replace("Z", "+00:00"))
    return text


RealInstant: TypeAlias = Annotated[Instant, AfterValidator(_is_a_day)]
"""The same, and there is such a day and hour: for times that are computed with as soon as they are read."""
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Cases: TypeAlias = Annotated[int, Field(ge=0, le=2**40)]
"""Of one row: any number of rows that fits into a document has a sum that is a Count."""
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e9)]
Ratio: TypeAlias = Annotated[float, Field(ge=0)] | Literal["inf", "nan"]
"""err/T of one element; "inf" for any error where T is 0, "nan" for a wrong class (NaN, inf, sign)."""


class Part(BaseModel):
    """Base of every part: strict, closed, immutable, finite numbers only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SubjectFile(Part):
    """The file under test: the plugin's library. The gate takes no second one."""

    name: FileName
    sha256: Sha256
    size: Annotated[int, Field(ge=1, le=2**63 - 1)]  # bytes


class Library(Part):
    """A shared library that the plugin loaded at run time."""

    path: str  # absolute; file systems take longer ones than names are
    sha256: Sha256


class Subject(Part):
    """What was tested, down to its bytes."""

    vendor: Name
    version: Name
    files: list[SubjectFile] = Field(min_length=1)
    libraries: list[Library] = []


class Abi(Part):
    """The interface as the plugin presented it."""

    header_id: str  # as the plugin states it, whatever that is
    minor: Count
    table_hash: Sha256


class Suite(Part):
    """What tested it. The digests bind the sources of the suite and the compiled operator registry."""

    version: Name
    source_digest: Sha256
    registry_digest: Sha256


class Run(Part):
    """How it was tested."""

    seed: Annotated[int, Field(ge=0, le=2**64 - 1)]
    effort: Effort
    profile: Profile
    start: Instant
    end: Instant
    workers: Annotated[int, Field(ge=1, le=2**31 - 1)]
    partial: bool  # a selection of the rows only
    interrupted: bool
    in_process: bool  # the plugin lived in the judge's process: for debugging, never for a certificate
    exit: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
    cases: Count
    seconds: Seconds
    command: str | None = None
    options: dict[str, str] = {}  # given to device_open


class Environment(Part):
    """Where it was tested."""

    os: str
    kernel: str
    cpu: str
    machine: str
    python: str
    torch: str
    env: dict[str, str] = {}  # the variables passed through to the driver


class Labels(Part):
    """What the draws of a row met: hits per label, and the labels without which the row has no power."""

    hit: dict[str, Count] = {}
    required: list[str] = []


class Worst(Part):
    """The element that came closest to its budget, or went farthest beyond it."""

    err_over_t: Ratio
    where: JsonValue = None


class RowBase(Part):
    """What rule rows and operator rows share."""

    id: Name
    chapter: Chapter
    profile: Profile | None = None
    extra: bool = False  # beyond what the run's profile requires; judged like any other row
    verdict: Verdict
    cases: Cases
    seconds: Seconds
    labels: Labels | None = None
    worst: Worst | None = None
    violates: list[RuleId] = []  # rules that the smallest failing case may break, likeliest first
    message: str | None = None  # the failure in words
    case: dict[str, JsonValue] | None = None  # facts of the smallest failing case
    reproducer: RelativePath | None = None  # folder inside the report
    waiver: str | None = None  # id of the waiver that covers a `waived` row
    notes: list[str] = []


class RuleRow(RowBase):
    """One vendor rule of SPEC.md. Its id is the rule's."""

    kind: Literal["rule"]
    rule: RuleId

    @model_validator(mode="after")
    def _id_is_the_rule(self) -> RuleRow:
        if self.id != self.rule:
            raise ValueError(f"row id {self.id!r} is not its rule {self.rule!r}")
        return self


class OperatorRow(RowBase):
    """One operator, variant and tuple of dtypes. Its id: op/r<revision>/<variant>/<dtypes with commas>."""

    kind: Literal["operator"]
    op: Name
    revision: Annotated[int, Field(ge=1, le=2**32 - 1)]
    variant: Name  # "-" when no kernel claims the row
    dtypes: list[Name] = Field(min_length=1)
    tier: Name | None = None  # EXACT, ACCURATE or FAST; absent when unclaimed
    layout: str | None = None

    @model_validator(mode="after")
    def _id_is_the_parts(self) -> OperatorRow:
        built = operator_row_id(self.op, self.revision, self.variant, self.dtypes)
        if self.id != built:
            raise ValueError(f"row id {self.id!r} does not name its parts {built!r}")
        return self


Row: TypeAlias = Annotated[RuleRow | OperatorRow, Field(discriminator="kind")]


class Waiver(Part):
    """A published exception. Valid only while the registry's policy holds the very same one."""

    id: Name
    kind: Literal["suite-defect", "erratum"]
    rows: list[Name] = Field(min_length=1)
    vendor: Name | None = None  # absent: all vendors (suite defects only)
    expires: RealInstant
    text: Name
    link: str | None = None


class Totals(Part):
    """Sums over the rows. For readers only: every consumer that decides recomputes them."""

    rows: Count
    cases: Count
    verdicts: dict[Verdict, Count]
    certified: bool


class Control(Part):
    """A plugin with a known defect, run on the same machine and seed: the harness worked there."""

    name: Name
    sha256: Sha256
    expected: Literal["refused", "fail", "crash", "hang"]
    seen: Literal["refused", "fail", "crash", "hang", "pass"]


class Report(Part):
    """One certification run."""

    # `schema` would hide a deprecated attribute of BaseModel, hence the alias.
    schema_: Literal["torch-fl-report/v1"] = Field(alias="schema")
    report_id: Sha256  # sha256 of the canonical JSON of everything else
    interface: Interface
    subject: Subject
    abi: Abi
    suite: Suite
    run: Run
    environment: Environment
    declarations: Declarations
    rows: list[Row]
    waivers: list[Waiver] = []
    controls: list[Control] = []
    totals: Totals

    def plain(self) -> dict[str, Any]:
        """The report as JSON data, absent fields absent."""
        data: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return data
