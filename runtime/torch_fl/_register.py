"""Makes `fl` a device type of torch: the name, the module torch.fl, and Tensor.fl(), Module.fl() and the like."""

from __future__ import annotations

import atexit
from typing import Any

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

NAME = "fl"


def register() -> None:
    """Register `fl` with torch; later calls do nothing. The compiled bridge must have been loaded.

    Raises RuntimeError where another backend has the one place that torch keeps for backends from outside.
    """
    name = torch._C._get_privateuse1_backend_name()
    if name == NAME:
        return
    refuse_taken(name)
    from torch_fl import _bridge, data_parallel, dlpack, fl, printing

    atexit.register(_bridge.end_autograd_threads)
    rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, fl)  # type: ignore[no-untyped-call]
    generate_methods_for_privateuse1_backend(for_storage=True)
    data_parallel.register()
    dlpack.register()
    printing.register()
    if torch.distributed.is_available():  # so that whatever asks for one is told the same
        torch.distributed.Backend.register_backend(NAME, _no_process_group, devices=[NAME])


def refuse_taken(name: str | None = None) -> None:
    """Raise where another backend is registered; to be called before the bridge is loaded, which registers itself."""
    name = torch._C._get_privateuse1_backend_name() if name is None else name
    if name not in ("privateuseone", NAME):
        raise RuntimeError(
            f"torch has one place for a backend from outside, and {name!r} has taken it in this process: "
            f"import torch_fl in a process that does not import {name!r}"
        )


def _no_process_group(*args: Any) -> None:
    raise NotImplementedError(
        'no process group for fl yet: name a backend of the CPU ("gloo") and give collectives CPU tensors'
    )
