"""DLPack: memory that the host can reach is shared with other libraries, and no other is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack

from .processes import ROOT, prints, run_python

MINIMAL = str(ROOT / "examples" / "minimal_vendor")
NOT_SHARED = r"the host cannot reach the memory of fl:[02], .* a copy, \.cpu\(\)"


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    run_python("import torch_fl; torch_fl.list_devices()", TORCH_FL_VENDORS=MINIMAL)  # which says what it builds


def on_accessible(code: str) -> list[str]:
    head = "import gc, numpy as np, torch, torch_fl\nfrom torch_fl import fl\n"
    return prints(head + code, TORCH_FL_VENDORS=MINIMAL, TORCH_FL_ON_FALLBACK="ignore")


def test_numpy_and_torch_share_the_devices_memory() -> None:
    lines = on_accessible(
        """
x = torch.arange(24.0).view(2, 3, 4).to("fl:0")
part = x[1].t()[1:]
print(tuple(map(int, x.__dlpack_device__())))
seen, of_torch = np.from_dlpack(part), torch.from_dlpack(part)
print(seen.shape, np.array_equal(seen, part.cpu().numpy()))
print(of_torch.device, of_torch.stride() == part.stride(), torch.equal(of_torch, part.cpu()))
of_torch[0, 0] = -1
print(seen[0, 0], part[0, 0].item())
part.fill_(7)
fl.synchronize()
print(set(seen.flat), of_torch.unique().tolist())
""",
    )
    assert lines == ["(1, 0)", "(3, 3) True", "cpu True True", "-1.0 -1.0", "{np.float32(7.0)} [7.0]"]


def test_the_consumer_keeps_the_memory() -> None:
    lines = on_accessible(
        """
x = torch.arange(100_000.0).to("fl:0")
held = fl.memory_allocated()
seen = np.from_dlpack(x[10:20])
del x
gc.collect()
print(fl.memory_allocated() == held > 0)
other = torch.zeros(100_000, device="fl:0")
fl.synchronize()
print(seen.tolist() == list(range(10, 20)))
del seen, other
gc.collect()
print(fl.memory_allocated())
capsule = torch.ones(3, device="fl:0").__dlpack__()
print(fl.memory_allocated() > 0)
del capsule
gc.collect()
print(fl.memory_allocated())
""",
    )
    assert lines == ["True", "True", "0", "True", "0"]


def test_every_dtype_and_no_elements() -> None:
    lines = on_accessible(
        """
for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64, torch.float64):
    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    assert torch.equal(torch.from_dlpack(x.to("fl:0")), x), dtype
    assert torch.from_dlpack(x.to("fl:0")).dtype is dtype
print(np.from_dlpack(torch.empty(3, 0, device="fl:0")).shape, torch.from_dlpack(torch.tensor(5, device="fl:0")).item())
""",
    )
    assert lines == ["(3, 0) 5"]


def test_copies_where_they_are_asked_for() -> None:
    lines = on_accessible(
        """
x = torch.zeros(3, device="fl:0")
copied = torch.from_dlpack(x, copy=True)
copied += 1
np.from_dlpack(x, copy=False)[0] = 5
print(copied.tolist(), x.tolist())
print(torch.from_dlpack(np.ones(2), device="fl:0"))
print(torch.from_dlpack(x, device="fl:0").device)
""",
    )
    assert lines == [
        "[1.0, 1.0, 1.0] [5.0, 0.0, 0.0]",
        "tensor([1., 1.], device='fl:0', dtype=torch.float64)",
        "fl:0",
    ]


def test_what_cannot_be_exported_says_what_to_do() -> None:
    lines = on_accessible(
        """
x = torch.ones(2, 2, device="fl:0", dtype=torch.complex64)
for tensor, how in (
    (torch.ones(1, device="fl:0", requires_grad=True), {}),
    (x.conj(), {}),
    (x.conj().imag, {}),
    (x, {"dl_device": (2, 0)}),
):
    try:
        tensor.__dlpack__(**how)
    except BufferError as error:
        print(error)
""",
    )
    assert lines == [
        "a tensor that requires a gradient is not exported: use .detach()",
        "a lazy conjugate or negative is not exported: use .resolve_conj() and .resolve_neg()",
        "a lazy conjugate or negative is not exported: use .resolve_conj() and .resolve_neg()",
        "a tensor on fl:0 is not exported to the DLPack device (2, 0): move it with .to() first",
    ]


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("device", ["fl:0", "fl:2"])
def test_memory_out_of_reach_is_shared_with_its_own_device_alone(device: str) -> None:
    x = torch.arange(6.0, device=device)[2:]
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, torch.device(device).index)
    for consumer in (np.from_dlpack, from_dlpack):
        with pytest.raises(BufferError, match=NOT_SHARED):
            consumer(x)
    same = from_dlpack(x, device=device)
    same[0] = -1
    assert (same.device, x.tolist()) == (torch.device(device), [-1, 3, 4, 5])


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("device", ["fl:0", "fl:2"])
def test_who_asks_for_the_cpu_gets_a_copy_unless_that_is_refused(device: str) -> None:
    x = torch.arange(3.0, device=device)
    on_cpu: Any = {"dl_device": (DLDeviceType.kDLCPU, 0)}
    copied = from_dlpack(x.__dlpack__(**on_cpu))
    copied += 1
    assert (copied.tolist(), x.tolist()) == ([1, 2, 3], [0, 1, 2])
    with pytest.raises(BufferError, match=NOT_SHARED):
        x.__dlpack__(**on_cpu, copy=False)
    with pytest.raises(BufferError, match=NOT_SHARED):
        x.__dlpack__(copy=True)


@pytest.mark.usefixtures("devices")
def test_cpu_tensors_are_exported_as_ever() -> None:
    x = torch.zeros(2)
    np.from_dlpack(x)[1] = 4
    assert x.tolist() == [0, 4]
    assert x.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    with pytest.raises(BufferError, match="require gradient"):
        torch.zeros(1, requires_grad=True).__dlpack__()
