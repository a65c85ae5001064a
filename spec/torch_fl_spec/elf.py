"""What an ELF file says about itself: is it a shared library, what it exports and imports.

Read before dlopen, so that a wrong file gets one clear line, and by the check that a plugin exports one
symbol only. Format: System V gABI, chapters "ELF header", "Sections", "Symbol table".
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path

_MACHINES = {62: "x86_64", 183: "aarch64", 3: "i386", 40: "arm", 243: "riscv"}
_ET_DYN = 3
_SHT_DYNSYM = 11
_SHN_UNDEF = 0
_SHN_ABS = 0xFFF1
_BIND_LOCAL = 0


def refusal(path: Path) -> str | None:
    """Why `path` cannot be a plugin for this machine, as one line; None when it looks like one."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return f"{path} is not a shared library: it does not begin with the ELF magic number"
    if head[4] != 2 or head[5] != 1:
        return f"{path} is not a 64-bit little-endian library [FL-LAYOUT-002]"
    kind, machine = struct.unpack_from("<HH", head, 16)
    name = _MACHINES.get(machine, f"machine number {machine}")
    if name != platform.machine():
        return f"{path} is built for {name}, this machine is {platform.machine()}"
    if kind != _ET_DYN:
        return f"{path} is an ELF file but not a shared library (object file or executable?)"
    return None


def dynamic_symbols(path: Path) -> tuple[list[str], list[str]]:
    """(defined, undefined) global names of the dynamic symbol table, sorted; raises ValueError."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    (sections,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)

    def section(index: int) -> tuple[int, int, int, int]:
        """(type, file offset, bytes, linked section)."""
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", data, sections + index * entry_size)
        return kind, offset, size, link

    defined: set[str] = set()
    undefined: set[str] = set()
    for index in range(count):
        kind, offset, size, link = section(index)
        if kind != _SHT_DYNSYM:
            continue
        _, names, _, _ = section(link)
        for at in range(offset, offset + size, 24):
            name_at, info, _, where = struct.unpack_from("<IBBH", data, at)
            # An absolute symbol has no address in the library: linkers define one for each name of a version script.
            if info >> 4 == _BIND_LOCAL or name_at == 0 or where == _SHN_ABS:
                continue
            end = data.index(b"\0", names + name_at)
            name = data[names + name_at : end].decode("utf-8", "replace")
            (undefined if where == _SHN_UNDEF else defined).add(name)
    return sorted(defined), sorted(undefined)
