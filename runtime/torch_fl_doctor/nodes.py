"""Device files: which there are, who names them, and whether this user may open them.

A kit says nothing of device files, so three things are looked at: files below /dev that accelerators are known to have,
those that the plugin's libraries name in their texts, and those that the plugin had open. None is opened here: what an
unknown device does when it is opened, nobody knows.
"""

from __future__ import annotations

import glob
import grp
import mmap
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .finding import Finding, ok

#: Of the drivers of NVIDIA, of AMD and Intel, of the kernel's class of accelerators, of Huawei, Cambricon, Tenstorrent.
KNOWN = (
    *("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm"),
    *("/dev/kfd", "/dev/dri/renderD*", "/dev/accel/accel*"),
    *("/dev/davinci[0-9]*", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    *("/dev/cambricon_*", "/dev/tenstorrent/*"),
)

_EVERYBODYS = re.compile(
    r"/dev/(null|zero|full|u?random|tty.*|console|ptmx|pts.*|shm.*|log|std(in|out|err)|fd.*|k?mem|port|ptp.*|watchdog.*)"
)
_SYSTEMS = re.compile(r"(lib(c|m|pthread|dl|rt|resolv|util|stdc\+\+|gcc_s)|ld-linux.*|ld-musl.*)\.so.*")
_NAME = re.compile(rb"/dev/[A-Za-z0-9_][\x21-\x7e]{0,60}(?=\x00)")
_PLACEHOLDER = re.compile(r"%[-+ #0-9.]*[hlzj]*[diusxX]")


def open_here() -> list[str]:
    """Device files that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("/dev/") and not _EVERYBODYS.fullmatch(target):
                found.add(target)
    return sorted(found)


def named_in(libraries: Iterable[Path]) -> list[str]:
    """Patterns of device files that the texts in these libraries name: /dev/acme%d is "/dev/acme*".

    The system's own libraries, which every program has, are left out.
    """
    found: set[str] = set()
    for library in libraries:
        if _SYSTEMS.fullmatch(library.name):
            continue
        with suppress(OSError, ValueError):
            found |= _names_in(library)
    patterns = (_PLACEHOLDER.sub("*", glob.escape(name)) for name in found)
    return sorted(name for name in patterns if "%" not in name and not _EVERYBODYS.fullmatch(name))


def _names_in(library: Path) -> set[str]:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {name.decode("ascii") for name in _NAME.findall(data)}


def existing(patterns: Iterable[str]) -> list[str]:
    """The files that are there."""
    return sorted({path for pattern in patterns for path in glob.glob(pattern) if not Path(path).is_dir()})  # noqa: PTH207


def check(needed: Iterable[str], others: Iterable[str]) -> Iterator[Finding]:
    """Whether this user may open these device files. needed: those of vendors that the user wants."""
    needed = set(needed)
    paths = sorted(needed | set(others))
    may = [path for path in paths if os.access(path, os.R_OK | os.W_OK)]
    if may:
        yield ok(f"device files that this user may open: {', '.join(may)}")
    for path in paths:
        if path not in may:
            yield Finding("problem" if path in needed else "warning", *_refused(path))


def _refused(path: str) -> tuple[str, str]:
    """(why, advice)"""
    status = Path(path).stat()
    user, owner, group = _user(os.geteuid()), _user(status.st_uid), _group(status.st_gid)
    text = f"{path} is {stat.filemode(status.st_mode)} {owner}:{group}, and user {user} may not open it"
    if not status.st_mode & stat.S_IWGRP:
        return text, f"no group may: ask the administrator for a udev rule that gives {path} to a group"
    if user in _members(status.st_gid):
        return text, f"{user} is in group {group} since this session began: log in again, or `newgrp {group}`"
    return text, f"`sudo usermod -aG {group} {user}`, then log in again; a container needs --group-add {group}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _members(number: int) -> list[str]:
    try:
        return grp.getgrgid(number).gr_mem
    except KeyError:
        return []
