"""Does to one vendor what discovery does, and notes how far it comes."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch_fl_spec import abi
from torch_fl_spec.loader import Plugin, PluginRefused, error_text, new_error

from . import bridgeless, nodes
from .children import Notes

ffi = abi.ffi

#: Of the plugin's own lines, which it may write without end.
_MOST_LINES = 200


def main(path: str, request: str) -> None:
    """request: JSON of word, registry, count (None: all devices) and certified, as the configuration has them.

    Notes: step; library of the kit; failed and reason; vendor, version, count, seconds, certification and
    doubtful; device with free and total or with refused; files: device files that are open; line: the plugin's.
    """
    wish = json.loads(request)
    notes = Notes(path)
    bridgeless.prepare()
    from torch_fl.vendor_probe import ProbeFailed, probe

    _note_steps(notes)
    try:
        found = probe(wish["word"], Path(wish["registry"]), _lines_to(notes))
    except ProbeFailed as failure:
        notes.write(failed=failure.step, reason=str(failure))
        notes.end()
    file = found.file
    notes.write(
        vendor=file.vendor, version=file.version, library=file.library, count=found.count, seconds=found.seconds
    )
    shut_out = False
    if wish["certified"] != "ignore":
        notes.write(step="certificate")
        certification = file.certification
        shut_out = wish["certified"] == "require" and not certification.valid
        notes.write(certification=str(certification), valid=certification.valid, doubtful=certification.reason)
    notes.write(files=nodes.open_here())
    if not shut_out:
        _open_devices(notes, found.plugin, found.kit.option_string, min(found.count, wish["count"] or found.count))
        notes.write(files=nodes.open_here())
    notes.end()


def _note_steps(notes: Notes) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            step, made = getattr(record, "step", None), getattr(record, "made", None)
            if step is not None:
                notes.write(step=step)
            if isinstance(made, Path):
                notes.write(library=made)

    log = logging.getLogger("torch_fl.devices")
    log.setLevel(logging.DEBUG)
    log.addHandler(Handler())


def _lines_to(notes: Notes) -> tuple[Any, Any] | None:
    """What a plugin may call with a line for its host's log; from any of its threads."""
    numbers = itertools.count()

    def line(_: Any, level: int, message: Any) -> None:
        if next(numbers) < _MOST_LINES and message != ffi.NULL:
            notes.write(line=ffi.string(message).decode("utf-8", "backslashreplace"), level=level)

    with suppress(MemoryError, SystemError):  # a system that lets nobody make code at run time
        function = ffi.callback("void(void*, int32_t, const char*)", line)
        _kept.append(function)
        return function, ffi.NULL
    return None


_kept: list[Any] = []


def _open_devices(notes: Notes, plugin: Plugin, options: str, count: int) -> None:
    """As the bridge does, one after the other; what does not open keeps no other from being tried."""
    from torch_fl.device_inspect import Inspector

    inspector = Inspector(plugin)
    for index in range(count):
        notes.write(step=f"open of device {index}")
        try:
            handle = _open(plugin, index, options)
            kernels = inspector.inspect(index, int(ffi.cast("uintptr_t", handle)))
        except PluginRefused as refused:
            notes.write(device=index, refused="; ".join(refused.reasons))
            continue
        free, total = _memory(plugin, handle)
        notes.write(device=index, operators=len(kernels.operators), free=free, total=total)


def _open(plugin: Plugin, index: int, options: str) -> Any:
    text = ffi.new("char[]", options.encode())
    fields = {"struct_size": ffi.sizeof("fl_device_open_args"), "kind": abi.FL_KIND_DEVICE_OPEN_ARGS, "options": text}
    args, out = ffi.new("fl_device_open_args*", fields), ffi.new("fl_device*")
    error, message = new_error()
    status = plugin.table["device.open"](index, args, out, error)
    if status != abi.FL_OK:
        raise PluginRefused([f"device_open({index}): {abi.status_name(status)}: {error_text(error, message)}"])
    return out[0]


def _memory(plugin: Plugin, handle: Any) -> tuple[int, int] | tuple[None, None]:
    """(free, total) bytes, None where the device does not say."""
    out = ffi.new("uint64_t[2]")
    if plugin.table["memory.info"](handle, out, out + 1, ffi.NULL) != abi.FL_OK:
        return None, None
    return int(out[0]), int(out[1])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:  # a vendor's package may even end the process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)  # nothing of the plugin's runs any longer
