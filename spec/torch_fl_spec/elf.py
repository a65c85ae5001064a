"""What an ELF file says about itself: is it a shared library, what it exports and imports, which libraries it needs.

Read before dlopen, so that a wrong file gets one clear line, by the check that a plugin exports one symbol only, and by
whoever looks for the library that keeps a plugin from loading. Format: System V gABI, chapters "ELF header",
"Program header", "Dynamic section", "Symbol table"; the GNU hash table as GNU ld writes it.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

_MACHINES = {62: "x86_64", 183: "aarch64", 3: "i386", 40: "arm", 243: "riscv"}
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_PLTRELSZ, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 1, 2, 4, 5, 6, 7, 8, 23
_DT_GNU_HASH = 0x6FFFFEF5
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
    """(defined, undefined) global names of the dynamic symbol table, sorted; raises ValueError.

    Found as ld.so finds them, by way of the program headers: section headers are for linkers and may say anything.
    """
    return _read(path, _symbols)


def needed_libraries(path: Path) -> list[str]:
    """Names of the libraries that the loader has to find before this one, in its order; raises ValueError, OSError."""
    return _read(path, _needed)


def _read(path: Path, table: Callable[[bytes], _T]) -> _T:
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    try:
        return table(data)
    except (struct.error, IndexError, OverflowError):
        raise ValueError(f"{path}: a table of its dynamic section does not lie within the file") from None


def _needed(data: bytes) -> list[str]:
    segments = _segments(data)
    names = _offset(segments, _dynamic(data, segments)[_DT_STRTAB])
    return [_string(data, names + value) for tag, value in _entries(data, segments) if tag == _DT_NEEDED]


def _symbols(data: bytes) -> tuple[list[str], list[str]]:
    segments = _segments(data)
    dynamic = _dynamic(data, segments)
    table, names = (_offset(segments, dynamic[tag]) for tag in (_DT_SYMTAB, _DT_STRTAB))
    defined: set[str] = set()
    undefined: set[str] = set()
    for index in range(1, _symbol_count(data, segments, dynamic)):
        name_at, info, _, where = struct.unpack_from("<IBBH", data, table + 24 * index)
        # An absolute symbol has no address in the library: linkers define one for each name of a version script.
        if info >> 4 == _BIND_LOCAL or name_at == 0 or where == _SHN_ABS:
            continue
        name = _string(data, names + name_at)
        (undefined if where == _SHN_UNDEF else defined).add(name)
    return sorted(defined), sorted(undefined)


def _segments(data: bytes) -> list[tuple[int, int, int, int]]:
    """(type, file offset, address, bytes in the file) of each program header."""
    (headers,) = struct.unpack_from("<Q", data, 32)
    entry_size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for index in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, headers + index * entry_size)
        found.append((kind, offset, address, size))
    return found


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Where in the file an address of the loaded library lies; a later segment covers an earlier one."""
    for kind, offset, start, size in reversed(segments):
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    raise IndexError


def _entries(data: bytes, segments: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
    """(tag, value) of each entry of the dynamic section."""
    at = _offset(segments, next((segment[2] for segment in reversed(segments) if segment[0] == _PT_DYNAMIC), -1))
    while True:
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == 0:
            break
        yield tag, value
        at += 16


def _dynamic(data: bytes, segments: list[tuple[int, int, int, int]]) -> dict[int, int]:
    """The same as a dict; of equal tags the last one counts."""
    found = dict(_entries(data, segments))
    if not {_DT_SYMTAB, _DT_STRTAB} <= found.keys():
        raise IndexError
    return found


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError
    return data[at:end].decode("utf-8", "replace")


def _symbol_count(data: bytes, segments: list[tuple[int, int, int, int]], dynamic: dict[int, int]) -> int:
    """How many entries the symbol table has at least: those that a hash table or a relocation leads to."""
    count = 0
    if _DT_HASH in dynamic:
        (count,) = struct.unpack_from("<I", data, _offset(segments, dynamic[_DT_HASH]) + 4)
    if _DT_GNU_HASH in dynamic:
        at = _offset(segments, dynamic[_DT_GNU_HASH])
        buckets, first, words, _ = struct.unpack_from("<IIII", data, at)
        at += 16 + 8 * words
        last = max(struct.unpack_from(f"<{buckets}I", data, at), default=0)
        at += 4 * buckets
        if last >= first:  # the end of a chain has its lowest bit set
            while not struct.unpack_from("<I", data, at + 4 * (last - first))[0] & 1:
                last += 1
            count = max(count, last + 1)
        count = max(count, first)
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table in dynamic and dynamic.get(size, 0):
            at = _offset(segments, dynamic[table])
            used = (struct.unpack_from("<I", data, at + step + 12)[0] for step in range(0, dynamic[size], 24))
            count = max(count, 1 + max(used))
    return count
