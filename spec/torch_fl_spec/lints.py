"""Lints of a header's text: the rules of layout that no compiler checks [FL-LAYOUT-001, 002, 004, 008].

Each lint takes the text between the cdef marks and returns what it found, one line each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"^#define[ \t]+(\w+)(.*)$", re.MULTILINE)
_LITERAL = re.compile(r"-?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_STRUCT = re.compile(r"typedef (struct|union) (\w+) \{(.*?)\} (\w+);", re.DOTALL)
_FUNCTION_MEMBER = re.compile(r"\(\*\w+\)\s*\(")
_FORBIDDEN = (
    (r"\benum\b", "an enum, whose size is the compiler's choice"),
    (r"\b(bool|_Bool)\b", "bool"),
    (r"\b(size_t|ssize_t|ptrdiff_t|intptr_t|uintptr_t|wchar_t)\b", "a type of varying width"),
    (r"\b(short|int|long|unsigned|signed|float)\b", "a type without a fixed width"),
    (r"^\s*#\s*(include|if|ifdef|ifndef|else|elif|endif|pragma|undef)\b", "a preprocessor directive"),
    (r"\b(inline|static|extern|__attribute__|_Alignas|alignas|_Static_assert)\b", "more than a declaration"),
    (r"\w\s*:\s*\d+\s*;", "a bit field"),
    (r"//", "a // comment"),
)
# Types of fields that may stand in a struct by value.
_VALUES = {
    "double",
    "char",
    "void",
    *(f"{sign}int{bits}_t" for sign in ("u", "") for bits in (8, 16, 32, 64)),
}


@dataclass(frozen=True)
class Struct:
    """One struct or union of the header, comments removed."""

    name: str
    is_union: bool
    members: tuple[str, ...]  # declarations without the semicolon

    @property
    def growable(self) -> bool:
        """Whether it begins with struct_size and may get new fields at its end."""
        return bool(self.members) and self.members[0] == "uint32_t struct_size"


def structs(cdef: str) -> list[Struct]:
    """The structs and unions in a cdef section."""
    found = []
    for keyword, _, body, name in _STRUCT.findall(_COMMENT.sub("", cdef)):
        members = [" ".join(member.split()) for member in body.split(";")]
        found.append(Struct(name, keyword == "union", tuple(member for member in members if member)))
    return found


def subset(cdef: str) -> list[str]:
    """Constructs outside the subset that cffi, C11 and C++17 read alike [FL-LAYOUT-001]."""
    code = _COMMENT.sub("", cdef)
    found = []
    for pattern, what in _FORBIDDEN:
        for match in re.finditer(pattern, code, re.MULTILINE):
            found.append(f"{match.group().strip()!r} is {what}")
    for name, value in _DEFINE.findall(code):
        if not _LITERAL.fullmatch(value.strip()):
            found.append(f"#define {name}: {value.strip()!r} is no plain integer literal")
    return found


def tagged(cdef: str) -> list[str]:
    """Growable structs without kind as second field, or without size and kind constants [FL-LAYOUT-003]."""
    found = []
    defined = {name for name, _ in _DEFINE.findall(cdef)}
    for struct in structs(cdef):
        if not struct.growable:
            continue
        name = struct.name.removeprefix("fl_").upper()
        if struct.members[1:2] != ("uint32_t kind",):
            found.append(f"{struct.name}: the second field is not `uint32_t kind`")
        if f"FL_SIZE_V1_0_{name}" not in defined:
            found.append(f"{struct.name}: no FL_SIZE_V1_0_{name}")
        # fl_ext and fl_extension are common heads: each kind of node or block brings its own.
        own = {f"FL_KIND_{name}", f"FL_KIND_EXT_{name.removesuffix('_API')}"}
        if not own & defined and struct.name not in ("fl_ext", "fl_extension"):
            found.append(f"{struct.name}: no FL_KIND_{name}")
    return found


def chained(cdef: str) -> list[str]:
    """Args structs without `next`, and tables with one [FL-LAYOUT-003]."""
    found = []
    for struct in structs(cdef):
        has_chain = "const fl_ext* next" in struct.members
        if struct.name.endswith(("_args", "_call")) and not has_chain:
            found.append(f"{struct.name}: no `const fl_ext* next`")
        if struct.name.endswith(("_api", "_table", "fl_plugin")) and has_chain:
            found.append(f"{struct.name}: a table has no chain")
    return found


def embedded(cdef: str) -> list[str]:
    """Growable structs inside another by value, in a union, or in an array without stride [FL-LAYOUT-004]."""
    all_structs = structs(cdef)
    growable = {struct.name for struct in all_structs if struct.growable}
    known = _VALUES | {struct.name for struct in all_structs} | _handles(cdef)
    found = []
    for struct in all_structs:
        for member in struct.members:
            if _FUNCTION_MEMBER.search(member) or "*" in member:
                continue
            base = member.removeprefix("const ").removeprefix("struct ").split()[0]
            if base in growable:
                found.append(f"{struct.name}: {base} by value in `{member}`")
            elif base not in known:
                found.append(f"{struct.name}: unknown type in `{member}`")
        found += _arrays_without_stride(struct, growable)
    return found


def reserved(cdef: str) -> list[str]:
    """Reserved slots, and pads that are arrays [FL-LAYOUT-008]."""
    found = []
    for struct in structs(cdef):
        for member in struct.members:
            name = re.sub(r"\[.*", "", member).split()[-1]
            if re.search(r"reserved|unused|spare", name, re.IGNORECASE):
                found.append(f"{struct.name}: reserved slot `{member}`")
            if name.startswith("pad") and "[" in member:
                found.append(f"{struct.name}: pad array `{member}`")
    return found


def _handles(cdef: str) -> set[str]:
    """Handles, integer typedefs such as fl_status, and function pointer types."""
    code = _COMMENT.sub("", cdef)
    simple = re.findall(r"typedef (?:struct \w+\*|\w+) (\w+);", code)
    return {*simple, *re.findall(r"typedef \w+ \(\*(\w+)\)\(", code)}


def _arrays_without_stride(struct: Struct, growable: set[str]) -> list[str]:
    """Pointers to growable structs beside a count, without the stride that lets the struct grow."""
    found = []
    names = [re.sub(r"\[.*", "", member).split()[-1].lstrip("*") for member in struct.members]
    for member in struct.members:
        match = re.fullmatch(r"const (\w+)\* (\w+)", member)
        if match and match.group(1) in growable and match.group(2).endswith(("s", "entries")):
            singular = "row" if match.group(2) == "rows" else "entry"
            if f"{singular}_stride" not in names:
                found.append(f"{struct.name}: array `{member}` without {singular}_stride")
    return found
