"""The controls: plugins whose worthlessness is plain, made from the reference vendor's sources."""

from __future__ import annotations

from pathlib import Path

from .build import build
from .corpus import TWINS, Edit

CONTROLS = TWINS / "controls"
WRONG_KERNELS = ("garbage", "echo", "constant")

_THEIR_TABLE = (
    Edit(file="plugin.c", old="    .kernels = ref_kernels,", new="    .kernels = control_kernels,"),
    Edit(
        file="plugin.c",
        old="static const fl_kernel_api kernel_api",
        new="fl_status control_kernels(fl_device device, const fl_kernel_table** out, fl_error* err);\n\n"
        "static const fl_kernel_api kernel_api",
    ),
)


def build_control(name: str) -> Path:
    """The library of a control; raises BuildFailed."""
    source = CONTROLS / f"{name}.c"
    if name in WRONG_KERNELS:
        return build(_THEIR_TABLE, sources={"control.c": source})
    return build(sources={"plugin.c": source})
