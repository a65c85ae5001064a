"""One vendor, from its name to a loaded plugin that has said how many devices it has; opens none of them.

Everything that can be wrong on the way is a ProbeFailed that says at which step and why.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch_fl_spec import abi, kits, loader
from torch_fl_spec.kits import Kit

from torch_fl.certification import Certification, look_up
from torch_fl.mapped_file import Digest

_log = logging.getLogger("torch_fl.devices")
_T = TypeVar("_T")

#: Seconds after which a user is told which vendor keeps him waiting. The interface gives a plugin 1 s to count its
#: devices, and sets no limit to opening one.
SLOW = 5.0


class ProbeFailed(Exception):
    """A vendor that cannot be used. step: "find", "build", "read", "load" or "count"."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step


@dataclass(frozen=True)
class PluginFile:
    """The library behind a vendor's devices.

    vendor, version, header_id: as the plugin states them. sha256: of the bytes that were loaded, unless `doubt` says
    why that is not sure. built_here: by the kit's commands, on this machine. registry: where its certificate is looked
    up.
    """

    vendor: str
    version: str
    header_id: str
    library: Path
    sha256: str
    doubt: str | None
    built_here: bool
    registry: Path

    @functools.cached_property
    def certification(self) -> Certification:
        """Looked up when first asked for."""
        if self.doubt is not None:
            return Certification("unknown", self.doubt)
        return look_up(self.sha256, self.registry, vendor=self.vendor, built_here=self.built_here)


@dataclass(frozen=True)
class Found:
    """A loaded plugin. seconds: that loading and counting took."""

    kit: Kit
    plugin: loader.Plugin
    file: PluginFile
    count: int
    seconds: float


def probe(word: str, registry: Path, log: tuple[Any, Any] | None = None) -> Found:
    """Find, build where needed, load and count; raises ProbeFailed.

    word: a vendor's name, kit folder or library. log: what takes the plugin's own lines, as loader.load has it.
    """
    kit = _step("find", word, lambda: kits.resolve(word), lambda kit: f"kit folder {kit.folder}, library {kit.library}")
    library = _step("build", word, lambda: kit.ensure_built(_announce), str)
    digest = _step("read", word, lambda: Digest.take(library), lambda digest: f"{digest.path}, sha256 {digest.sha256}")
    began = time.monotonic()
    with patience(f"vendor {word}"):
        # By its real name: where a link was changed since, these are still the bytes that were read.
        plugin = _step("load", word, lambda: loader.load(digest.path, log=log), _named)
        count = _step("count", word, lambda: _count(plugin), lambda count: f"devices: {count}")
    seconds = time.monotonic() - began
    file = PluginFile(
        vendor=plugin.name,
        version=plugin.version,
        header_id=plugin.header_id,
        library=digest.path,
        sha256=digest.sha256,
        doubt=digest.doubt(int(abi.ffi.cast("uintptr_t", plugin.query))),
        built_here=bool(kit.build),
        registry=registry,
    )
    return Found(kit, plugin, file, count, seconds)


def _step(name: str, word: str, action: Callable[[], _T], told: Callable[[_T], str]) -> _T:
    """Whatever a vendor's package, compiler or driver comes up with is a reason not to use it, and no more.

    The log has a line before and a line behind each step, so that it shows which one never ended. told: what the second
    line says of the outcome. Whoever handles the records finds the step that begins as attribute `step` of the first,
    and what it made as `made` of the second.
    """
    _log.debug("%s: %s", word, name, extra={"step": name})
    began = time.monotonic()
    try:
        made = action()
    except loader.PluginRefused as refusal:
        raise ProbeFailed(name, "\n".join(refusal.reasons)) from None
    except (kits.KitError, OSError) as error:
        raise ProbeFailed(name, str(error)) from None
    except Exception as error:
        _log.debug("%s: %s failed", word, name, exc_info=True)
        raise ProbeFailed(name, f"{type(error).__name__}: {error}") from error
    seconds = time.monotonic() - began
    _log.debug("%s: %s took %.3f s: %s", word, name, seconds, told(made), extra={"made": made})
    return made


def _named(plugin: loader.Plugin) -> str:
    return f"{plugin.name} {plugin.version}, interface minor {plugin.minor}, header {plugin.header_id}"


def _count(plugin: loader.Plugin) -> int:
    count = plugin.device_count()
    if count < 0:
        raise loader.PluginRefused([f"device_count gave {count}"])
    return count


@contextmanager
def patience(who: str) -> Iterator[None]:
    """Say on stderr who is being waited for, once it has been SLOW seconds: a driver that hangs says nothing itself."""
    text = f"{who} has not answered for {SLOW:g} s; waiting"
    timer = threading.Timer(SLOW, _say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announce(command: str) -> None:
    """A build may take a while: say so, wherever stderr goes."""
    _say(f"building the plugin of {command}")


def _say(text: str) -> None:
    _log.info("%s", text)
    if sys.stderr is not None:
        sys.stderr.write(f"torch_fl: {text}\n")
        sys.stderr.flush()
