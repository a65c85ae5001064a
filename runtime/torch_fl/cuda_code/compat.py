"""torch_fl.cuda_compat: code written for CUDA runs on fl devices, unchanged."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from . import names


@contextlib.contextmanager
def cuda_compat() -> Iterator[None]:
    """Context, or decorator, in which code written for CUDA runs on fl devices: "cuda:1" is fl:1.

        with torch_fl.cuda_compat():
            model = Model().cuda()
            x = torch.randn(8, 3, device="cuda")

    With TORCH_FL_CUDA_COMPAT=1 in the environment, `import torch_fl` enters it for good.

    Translated are: what torch.cuda and torch.fl both have, torch.cuda.amp; `device=` of any function of torch; `.to()`,
    `.cuda()` and `.type()` of tensors, modules and storages; torch.load, whatever its map_location; torch.Generator;
    torch.set_default_device and `with torch.device("cuda")`; torch.autocast, GradScaler and what asks about autocast.
    Functions of torch.cuda that ask about CUDA hardware raise NotImplementedError.

    The attributes of torch that this replaces are everybody's: while any thread is inside, all see them. Arguments are
    translated for the thread that entered, for threads that are started inside, and in their backward passes. After
    the last thread has left, all attributes are what they were; tensors stay on fl devices. It may be nested, and
    entered from several threads. A call of torch takes a few microseconds longer inside.

    What it does not do:

    - A tensor on fl says so: `x.is_cuda` is False, `x.device.type` is "fl" and `x.device == torch.device("cuda", 0)` is
      False. torch.device("cuda") itself stays what it is until a function of torch is given it.
    - C++ and Triton code that asks for CUDA itself, CUDA graphs, nvtx, NCCL and torch.cuda.FloatTensor(...) are not
      there.
    - What was taken out of torch.cuda before (`from torch.cuda import is_available`) is CUDA's.
    - A real CUDA device cannot be named inside.
    """
    with _in_force():
        from .mode import CudaCodeMode

        with CudaCodeMode():
            yield


_lock = threading.RLock()
_inside = 0
_patched = contextlib.ExitStack()


@contextlib.contextmanager
def _in_force() -> Iterator[None]:
    """What is everybody's: put in place by the first who enters, taken away by the last who leaves."""
    global _inside
    from .patches import applied, patches

    with _lock:
        if _inside == 0:
            _patched.enter_context(applied(patches()))
            names.in_force = True
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                names.in_force = False
                _patched.close()


def enter_for_good() -> None:
    """For TORCH_FL_CUDA_COMPAT=1: in force until the process ends, in this thread and those that it starts."""
    _for_good.enter_context(cuda_compat())


_for_good = contextlib.ExitStack()
