"""The process that measures one combination: `python -m torch_fl.tuning.trial RESULT TASK`.

TASK is JSON: function (as torch_fl.named_function has it), path (sys.path, or null), parent (its process), device,
combination (name -> value), warm_up, repeats, seed. RESULT is written when all is done: {"seconds", "peak_bytes"}, or
{"out_of_memory": why}, or {"wrong": why} where the function cannot be tuned at all.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

import torch_fl
from torch_fl import fl, named_function, tuning

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class _Wrong(Exception):
    """Not this combination's fault."""


def main() -> None:
    """Measure, write the result, end without waiting for anything that the function has left running."""
    result, task = Path(sys.argv[1]), json.loads(sys.argv[2])
    _end_with(task["parent"])
    sys.excepthook = _complain
    tuning.in_trial = True
    if task["path"] is not None:
        sys.path[:] = task["path"]
    try:
        found = measure(task)
    except torch.OutOfMemoryError as error:
        found = {"out_of_memory": named_function.first_line(error)}
    except _Wrong as error:
        found = {"wrong": str(error)}
    result.write_text(json.dumps(found))
    os._exit(0)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the one that scans is gone, however it ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def _complain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python would say, beginning with the user's own code."""
    ours = (str(Path(torch_fl.__file__).parent), "<frozen ")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def measure(task: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each step, from its call until every device is done."""
    device = torch.device(task["device"])
    indices = [found.index for found in torch_fl.list_devices() if found.usable]
    fl.set_device(device)
    combination = dict(task["combination"])
    if "pool" in combination:  # set here, it holds whatever the settings say of this device
        fl.set_per_process_memory_fraction(combination["pool"], device)
    torch.manual_seed(task["seed"])
    step = _step(task["function"], combination, device)
    for _ in range(task["warm_up"]):
        step()
    _wait(indices)
    seconds = []
    for _ in range(task["repeats"]):
        began = time.perf_counter()
        step()
        _wait(indices)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "peak_bytes": fl.max_memory_reserved(device)}


def _wait(indices: list[int]) -> None:
    for index in indices:
        fl.synchronize(index)


def _step(where: str, combination: dict[str, Any], device: torch.device) -> Callable[[], object]:
    """What the function makes of those parameters that it has."""
    try:
        function = named_function.find(where)
    except named_function.NotFound as error:
        if error.__cause__ is None:
            raise _Wrong(str(error)) from None
        raise error.__cause__ from None  # its file was found, and failed
    offered = {**combination, "device": device}
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    taken = {name: value for name, value in offered.items() if takes_all or name in parameters}
    for name in combination.keys() - taken.keys() - {"pool"}:
        raise _Wrong(f"{where} has no parameter {name!r}: all of its values would measure the same")
    step = function(**taken)
    if not callable(step):
        raise _Wrong(f"{where} returns a {type(step).__name__}, not the function that does one step")
    return step  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
