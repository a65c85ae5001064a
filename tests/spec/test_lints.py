"""The lints over the header's text find what they are for, and nothing in the header as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch_fl_spec import abi, lints

CDEF = abi.cdef_section(abi.header_text())
LINTS = (lints.subset, lints.tagged, lints.chained, lints.embedded, lints.reserved)


@pytest.mark.parametrize("lint", LINTS)
def test_the_header_is_clean(lint: Callable[[str], list[str]]) -> None:
    assert lint(CDEF) == []


def test_all_structs_are_seen() -> None:
    names = [struct.name for struct in lints.structs(CDEF)]
    assert len(names) == len(set(names)) == CDEF.count("typedef struct fl_") + 1 - 3  # + fl_value, - 3 handles
    growable = {struct.name for struct in lints.structs(CDEF) if struct.growable}
    assert set(names) - growable == {"fl_arg", "fl_value", "fl_complex", "fl_rng"}


def test_growable_structs_are_never_embedded() -> None:
    assert lints.embedded(CDEF) == []
    by_value = CDEF.replace("  uint64_t token; ", "  fl_error token; ")
    assert lints.embedded(by_value) == ["fl_plan: fl_error by value in `fl_error token`"]
    in_union = CDEF.replace("  fl_rng rng;\n} fl_value;", "  fl_tensor rng;\n} fl_value;")
    assert lints.embedded(in_union) == ["fl_value: fl_tensor by value in `fl_tensor rng`"]
    no_stride = CDEF.replace("  uint32_t row_stride; /* bytes */\n", "  uint32_t pad;\n")
    assert lints.embedded(no_stride) == ["fl_kernel: array `const fl_kernel_row* rows` without row_stride"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("uint32_t minor; ", "bool minor;", "'bool' is bool"),
        ("uint64_t token; ", "size_t token; ", "'size_t' is a type of varying width"),
        ("uint64_t token; ", "unsigned long token; ", "'unsigned' is a type without a fixed width"),
        ("uint32_t flags;", "uint32_t flags : 3;", "a bit field"),
        ("#define FL_OK 0", "#define FL_OK (1u << 3)", "no plain integer literal"),
        ("#define FL_OK 0", "#define FL_OK 00", "no plain integer literal"),
        ("typedef int32_t fl_status;", "enum fl_status { A };", "an enum"),
        ("typedef int32_t fl_status;", "#include <x.h>", "a preprocessor directive"),
        ("typedef int32_t fl_status;", "static inline int f(void);", "more than a declaration"),
    ],
)
def test_constructs_outside_the_subset_are_found(old: str, new: str, says: str) -> None:
    changed = CDEF.replace(old, new)
    assert changed != CDEF
    assert any(says in line for line in lints.subset(changed))


def test_missing_tags_are_found() -> None:
    no_kind = CDEF.replace("  uint32_t kind; /* FL_KIND_EXT_FAULT */\n", "")
    assert lints.tagged(no_kind) == ["fl_fault_api: the second field is not `uint32_t kind`"]
    no_size = CDEF.replace("#define FL_SIZE_V1_0_PLAN 40", "")
    assert lints.tagged(no_size) == ["fl_plan: no FL_SIZE_V1_0_PLAN"]
    no_number = CDEF.replace("#define FL_KIND_PLAN 20", "")
    assert lints.tagged(no_number) == ["fl_plan: no FL_KIND_PLAN"]


def test_missing_and_misplaced_chains_are_found() -> None:
    first = CDEF.replace("  const fl_ext* next;\n", "", 1)
    assert lints.chained(first) == ["fl_device_open_args: no `const fl_ext* next`"]
    table = CDEF.replace("  uint32_t count;\n", "  uint32_t count;\n  const fl_ext* next;\n", 1)
    assert lints.chained(table) == ["fl_kernel_table: a table has no chain"]


def test_reserved_slots_are_found() -> None:
    array = CDEF.replace("  uint64_t token; ", "  uint64_t reserved[4]; ")
    assert lints.reserved(array) == ["fl_plan: reserved slot `uint64_t reserved[4]`"]
    pads = CDEF.replace("  uint64_t token; ", "  uint32_t pad[2]; ")
    assert lints.reserved(pads) == ["fl_plan: pad array `uint32_t pad[2]`"]
