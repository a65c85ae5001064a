"""The frozen layout: sizes and offsets of every struct of plugin.h, as a file that later headers must extend.

    python -m torch_fl_spec.layout --write     layouts/1.0-candidate.json and released_headers.json

A layout is {"structs": {name: {"size": bytes, "fields": [[name, offset, size], ...]}}, "constants": {name:
value}}, structs in the header's order and named as in C ("fl_error").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch_fl_spec import abi, lints

FOLDER = Path(__file__).with_name("layouts")
CURRENT = FOLDER / "1.0-candidate.json"
RELEASED_HEADERS = Path(__file__).with_name("released_headers.json")
# Compilers that must agree with cffi, with flags that turn every doubt into an error.
C_COMPILER = ("gcc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-x", "c")
CPP_COMPILER = ("g++", "-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-x", "c++")

Layout = dict[str, Any]


def layout_of_cffi() -> Layout:
    """The layout that cffi computes, with the header's integer constants."""
    cdef = abi.cdef_section(abi.header_text())
    structs = {}
    for name in (struct.name for struct in lints.structs(cdef)):
        ctype = abi.ffi.typeof(name)
        fields = [[field, info.offset, abi.ffi.sizeof(info.type)] for field, info in ctype.fields]
        structs[name] = {"size": abi.ffi.sizeof(ctype), "fields": fields}
    constants = {name: value for name, value in abi.CONSTANTS.items() if f"#define {name} " in cdef}
    return {"structs": structs, "constants": dict(sorted(constants.items()))}


def layout_of_compiler(compiler: Sequence[str], layout: Layout) -> Layout:
    """The same structs, fields and constants as a C or C++ compiler sees them.

    Raises subprocess.CalledProcessError where the compiler refuses the header, its text in `stderr`.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "probe", Path(folder) / "probe.out"
        source.write_text(_probe(layout), encoding="utf-8")
        command = [*compiler, f"-I{abi.INCLUDE_DIR}", str(source), "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return cast(Layout, json.loads(output))


def _probe(layout: Layout) -> str:
    """A program that prints the layout as JSON; nothing in it is specific to a compiler."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "torch_fl/plugin.h"', "int main(void) {"]
    lines.append('  printf("{\\"structs\\": {");')
    for number, (name, struct) in enumerate(layout["structs"].items()):
        comma = ", " if number else ""
        lines.append(f'  printf("{comma}\\"{name}\\": {{\\"size\\": %zu, \\"fields\\": [", sizeof({name}));')
        for position, (field, _, _) in enumerate(struct["fields"]):
            comma = ", " if position else ""
            size = f"sizeof((({name}*)0)->{field})"
            lines.append(
                f'  printf("{comma}[\\"{field}\\", %zu, %zu]", offsetof({name}, {field}), {size});',
            )
        lines.append('  printf("]}");')
    lines.append('  printf("}, \\"constants\\": {");')
    for number, name in enumerate(layout["constants"]):
        comma = ", " if number else ""
        lines.append(f'  printf("{comma}\\"{name}\\": %lld", (long long){name});')
    lines += ['  printf("}}\\n");', "  return 0;", "}", ""]
    return "\n".join(lines)


def padding(layout: Layout) -> list[str]:
    """Gaps that no field covers and sizes that are no multiple of 8 [FL-LAYOUT-002]; unions have neither."""
    found = []
    for name, struct in layout["structs"].items():
        if struct["size"] % 8:
            found.append(f"{name}: size {struct['size']} is no multiple of 8")
        fields = struct["fields"]
        if len(fields) > 1 and all(offset == 0 for _, offset, _ in fields):
            continue
        end = 0
        for field, offset, size in fields:
            if offset != end:
                found.append(f"{name}: {offset - end} bytes of padding before {field}")
            end = offset + size
        if end != struct["size"]:
            found.append(f"{name}: {struct['size'] - end} bytes of padding at the end")
    return found


def breaks(old: Layout, new: Layout) -> list[str]:
    """What in `new` is no prefix extension of `old` [FL-VERSION-003], empty where all is."""
    found = []
    for name, struct in old["structs"].items():
        later = new["structs"].get(name)
        if later is None:
            found.append(f"{name} is gone")
            continue
        if later["fields"][: len(struct["fields"])] != struct["fields"]:
            found.append(f"{name}: fields were moved, renamed, resized or removed")
        if name in FROZEN and later != struct:
            found.append(f"{name} is frozen for ever")
        if later["size"] < struct["size"]:
            found.append(f"{name} has shrunk")
    for name, value in old["constants"].items():
        if name not in _INFORMATIONAL and new["constants"].get(name) != value:
            found.append(f"{name} was {value}, is {new['constants'].get(name)}")
    return found


# Structs without struct_size: their size can never change.
FROZEN = ("fl_arg", "fl_value", "fl_complex", "fl_rng")
_INFORMATIONAL = ("FL_ABI_MINOR",)


def load_layout(path: Path = CURRENT) -> Layout:
    """A frozen layout file."""
    return cast(Layout, json.loads(path.read_text(encoding="utf-8")))


def known_headers() -> Mapping[str, Sequence[str]]:
    """Header ids by state: `candidate` and `released` [FL-VERSION-006, 007]."""
    return cast(Mapping[str, Sequence[str]], json.loads(RELEASED_HEADERS.read_text(encoding="utf-8")))


def write() -> None:
    """Freeze the current header as the candidate: its layout and its id."""
    CURRENT.write_text(_pretty(layout_of_cffi()), encoding="utf-8")
    headers = {**known_headers(), "candidate": [abi.HEADER_ID]} if RELEASED_HEADERS.exists() else None
    headers = headers or {"candidate": [abi.HEADER_ID], "released": []}
    RELEASED_HEADERS.write_text(json.dumps(headers, indent=2) + "\n", encoding="utf-8")


def _pretty(layout: Layout) -> str:
    """JSON with one line per field and constant, so that a diff shows what moved."""
    structs = []
    for name, struct in layout["structs"].items():
        fields = ",\n".join(f"        {json.dumps(field)}" for field in struct["fields"])
        head = f'    "{name}": {{\n      "size": {struct["size"]},\n      "fields": [\n'
        structs.append(f"{head}{fields}\n      ]\n    }}")
    constants = ",\n".join(f'    "{name}": {value}' for name, value in layout["constants"].items())
    body = ",\n".join(structs)
    return f'{{\n  "structs": {{\n{body}\n  }},\n  "constants": {{\n{constants}\n  }}\n}}\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m torch_fl_spec.layout", description=write.__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    write()
