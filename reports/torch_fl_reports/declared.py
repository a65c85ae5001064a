"""What a plugin says of itself, field by field as the loader's `describe` returns it.

`expected_rows` is computed from these parts, so a gate that trusts no totals can still know which rows must
be there. Names and units are those of plugin.h.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Unsigned: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
Signed: TypeAlias = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class Declared(BaseModel):
    """Base of every declared part: strict, closed, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Device(Declared):
    """One device, from fl_device_info."""

    index: Unsigned
    name: str | None = None  # NULL breaks a rule, and is reported as what it is
    uuid: str
    execution_model: str  # ASYNC | INLINE; a defective plugin may say anything, and its report must still be written
    independent_streams: bool | Signed
    priority_least: Signed
    priority_greatest: Signed
    address_model: str  # LINEAR | HANDLE
    alloc_align: Unsigned  # bytes
    max_align: Unsigned  # bytes
    alloc_may_wait: bool | Signed
    host_accessible: bool | Signed
    total_bytes: Unsigned
    timer_resolution_ns: Unsigned
    numa_node: Signed


class KernelRow(Declared):
    """One dtype row that a kernel claims, with the numerics it declares."""

    dtypes: list[str]
    accumulator: str | None = None
    accumulator_bits: Unsigned | None = None
    path_length: Unsigned | None = None  # 0: no better than any order
    flags: list[str] = []


class Kernel(Declared):
    """One entry of a device's kernel table."""

    op: str
    revision: Unsigned
    variant: str
    n_types: Unsigned
    rows: list[KernelRow]
    ignored_rows: Unsigned = 0  # with a dtype that the suite's header does not know
    layouts: list[str]
    max_ndim: Unsigned
    flags: list[str]
    tier: str  # EXACT | ACCURATE | FAST
    priority: Signed
    data_align: Unsigned  # bytes


class Declarations(Declared):
    """Devices, their kernel tables (one list per device, same order) and extensions with revisions."""

    devices: list[Device]
    kernels: list[list[Kernel]]
    extensions: dict[str, Unsigned]
