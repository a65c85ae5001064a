"""New tensors, views, and tensors that change their size or their storage."""

from __future__ import annotations

import copy
import gc
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_fl import fl

from .layouts import DTYPES, buffer

pytestmark = pytest.mark.usefixtures("devices")

PLACES = ("fl:0", "fl:1", "fl:2", "fl:3")


@pytest.mark.parametrize("place", PLACES)
def test_empty(place: str) -> None:
    for dtype in DTYPES:
        tensor = torch.empty(2, 3, dtype=dtype, device=place)
        assert (tensor.dtype, str(tensor.device), tensor.shape) == (dtype, place, (2, 3))
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == 6 * dtype.itemsize
    strided = torch.empty_strided((2, 3), (5, 1), device=place)
    assert (strided.stride(), strided.untyped_storage().nbytes()) == ((5, 1), 8 * 4)
    last = torch.empty(2, 3, 4, 5, device=place, memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_the_device_is_the_current_one_unless_named() -> None:
    assert torch.empty(1, device="fl").device == torch.device("fl:0")
    with fl.device(3):
        assert torch.empty(1, device="fl").device == torch.device("fl:3")
        assert torch.zeros(1, device="fl:1").device == torch.device("fl:1")
        assert fl.current_device() == 3
    with torch.device("fl:2"):
        assert torch.ones(2).device == torch.device("fl:2")


def test_refused_requests() -> None:
    for request, error, text in (
        ({"size": (-1,)}, RuntimeError, "Trying to create tensor with negative dimension -1"),
        ({"size": (1,), "pin_memory": True}, RuntimeError, "Only dense CPU tensors can be pinned"),
        ({"size": (1,), "layout": torch.sparse_coo}, NotImplementedError, "fl"),
        ({"size": (1,), "dtype": torch.quint8}, NotImplementedError, "fl"),
    ):
        with pytest.raises(error, match=text):
            torch.empty(device="fl:0", **request)
    for size, stride, text in (((2, 3), (1,), "must match dimensionality"), ((2,), (-1,), "[Nn]egative strides")):
        with pytest.raises(RuntimeError, match=text):
            torch.empty_strided(size, stride, device="fl:0")


def test_tensors_without_bytes() -> None:
    for place in PLACES:
        tensor = torch.empty(0, device=place)
        assert (tensor.numel(), tensor.data_ptr(), str(tensor.device)) == (0, 0, place)
        assert torch.empty(3, 0, 2, device=place).stride() == torch.empty(3, 0, 2).stride()


def test_addresses_are_unique_over_all_devices() -> None:
    tensors = [torch.empty(100, device=place) for place in PLACES for _ in range(50)]
    ranges = sorted((t.data_ptr(), t.data_ptr() + 400) for t in tensors)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ranges))


def test_factories_give_what_they_give_on_the_cpu() -> None:
    makers: tuple[Callable[[str], torch.Tensor], ...] = (
        lambda device: torch.zeros(3, 4, device=device),
        lambda device: torch.ones(3, dtype=torch.int8, device=device),
        lambda device: torch.full((2, 2), 7.5, dtype=torch.float64, device=device),
        lambda device: torch.arange(3, 20, 2, device=device),
        lambda device: torch.linspace(0, 1, 7, device=device),
        lambda device: torch.eye(3, 5, device=device),
        lambda device: torch.tril_indices(3, 3, device=device),
        lambda device: torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16, device=device),
        lambda device: torch.as_tensor([True, False], device=device),
        lambda device: torch.scalar_tensor(4.5, device=device),
        lambda device: torch.empty_like(torch.empty(2, 3, device=device).t()).zero_(),
        lambda device: torch.zeros(2, 2, device=device).new_full((3,), 2),
    )
    for make in makers:
        expected, actual = make("cpu"), make("fl:1")
        assert (actual.dtype, actual.stride(), str(actual.device)) == (expected.dtype, expected.stride(), "fl:1")
        assert torch.equal(actual.cpu(), expected)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda t: t.view(4, 6),
    "reshape": lambda t: t.reshape(-1, 3),
    "as_strided": lambda t: t.as_strided((3, 4), (1, 2), 5),
    "transpose": lambda t: t.transpose(0, 2),
    "permute": lambda t: t.permute(1, 2, 0),
    "slice": lambda t: t[:, 1:3, ::2],
    "select": lambda t: t[1],
    "expand": lambda t: t[:1].expand(5, 3, 4),
    "unfold": lambda t: t.unfold(2, 2, 1),
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(),
    "narrow": lambda t: t.narrow(1, 1, 2),
    "flatten": lambda t: t.flatten(1),
    "split": lambda t: torch.ops.aten.split(t, 2, 1)[1],
    "chunk": lambda t: t.chunk(2, dim=2)[1],
    "unbind": lambda t: t.unbind(1)[2],
    "movedim": lambda t: t.movedim(0, -1),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "view dtype": lambda t: t.view(torch.int32),
    "view wider dtype": lambda t: t.view(torch.float64),
    "view narrower dtype": lambda t: t.view(torch.int16),
    "view_as_complex": lambda t: torch.view_as_complex(t.view(2, 3, 2, 2)),
    "view_as_real": lambda t: torch.view_as_real(torch.view_as_complex(t.view(2, 3, 2, 2))),
    "detach": lambda t: t.detach(),
    "alias": lambda t: torch.ops.aten.alias(t),
    "_reshape_alias": lambda t: torch.ops.aten._reshape_alias(t, [6, 4], [4, 1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name: str) -> None:
    view = VIEWS[name]
    expected = torch.arange(24.0).view(2, 3, 4)
    for place in ("fl:0", "fl:2"):
        actual = expected.to(place)
        of_device, of_cpu = view(actual), view(expected)
        assert of_device.untyped_storage().data_ptr() == actual.untyped_storage().data_ptr()
        assert (of_device.shape, of_device.stride()) == (of_cpu.shape, of_cpu.stride())
        assert of_device.storage_offset() == of_cpu.storage_offset()
        assert torch.equal(of_device.cpu(), of_cpu)
        if name not in ("expand", "unfold"):
            changed = expected.clone()
            view(changed).zero_()
            of_device.zero_()
            assert torch.equal(actual.cpu(), changed)


def test_views_out_of_bounds_raise() -> None:
    tensor = torch.zeros(10, device="fl:0")
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 40"):
        tensor.as_strided((11,), (1,))
    with pytest.raises(RuntimeError, match="invalid for input of size 10"):
        tensor.view(3, 4)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.zeros(3, 4, device="fl:0").t().view(12)


@pytest.mark.parametrize("place", ["fl:0", "fl:2"])
def test_resize_keeps_what_fits(place: str) -> None:
    tensor = torch.arange(6.0).to(place)
    storage = tensor.untyped_storage()
    tensor.resize_(2, 2)
    assert tensor.tolist() == [[0, 1], [2, 3]]
    assert storage.nbytes() == 24
    tensor.resize_(6)
    assert tensor.tolist() == [0, 1, 2, 3, 4, 5]
    tensor.resize_(1000)
    assert (tensor.shape, tensor[:6].tolist(), storage.nbytes()) == ((1000,), [0, 1, 2, 3, 4, 5], 4000)
    tensor.resize_(1, 2, 3, 4, memory_format=torch.channels_last)
    assert tensor.stride() == torch.empty(1, 2, 3, 4, memory_format=torch.channels_last).stride()
    tensor.resize_(0)
    assert (tensor.numel(), storage.nbytes()) == (0, 4000)
    with pytest.raises(RuntimeError, match="negative dimension"):
        tensor.resize_(-1)
    assert torch.empty(2, device=place).resize_as_(torch.empty(3, 4, device=place)).shape == (3, 4)


def test_resize_counts_the_storage_offset() -> None:
    tensor = torch.arange(10.0).to("fl:0")[4:6]
    tensor.resize_(8)
    assert tensor.untyped_storage().nbytes() == 48
    assert tensor[:6].tolist() == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("place", ["fl:0", "fl:2"])
def test_a_tensor_that_cannot_grow_stays_as_it_was(place: str) -> None:
    def changes(tensor: torch.Tensor, other: Any) -> list[Callable[[], object]]:
        return [
            lambda: tensor.resize_(1 << 45),
            lambda: tensor.resize_(1 << 20, 1 << 25),
            lambda: torch.neg(torch.ones(2, device=place), out=tensor.resize_(1 << 45)),
            lambda: tensor.set_(other, 0, (1 << 45,), (1,)),
            lambda: tensor.set_(other, 3, (1 << 22, 1 << 22), (1 << 23, 2)),
            lambda: tensor.set_(other, 1 << 45, (2,), (1,)),
        ]

    whole, other = torch.arange(6.0).to(place), torch.zeros(1, device=place).untyped_storage()
    tensor = whole[2:]
    for change in changes(tensor, other):
        with pytest.raises(RuntimeError):  # torch.OutOfMemoryError is one
            change()
        assert (tensor.shape, tensor.stride(), tensor.storage_offset()) == ((4,), (1,), 2)
        assert (tensor.tolist(), tensor.untyped_storage().nbytes(), other.nbytes()) == ([2, 3, 4, 5], 24, 4)
        assert tensor.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_new_memory_is_filled_where_the_user_wants_runs_to_repeat() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(100, device="fl:0").isnan().all()
        assert torch.empty_strided((3,), (1,), dtype=torch.int16, device="fl:0").tolist() == [32767] * 3
        assert torch.zeros(2, device="fl:0").resize_(5).isnan().tolist() == [False, False, True, True, True]
    finally:
        torch.use_deterministic_algorithms(False)


def test_storages_can_be_resized_and_shared() -> None:
    tensor = torch.arange(4.0).to("fl:1")
    storage = tensor.untyped_storage()
    storage.resize_(32)
    assert torch.empty(0, device="fl:1").set_(storage).shape == (8,)
    assert torch.empty(0, device="fl:1").set_(storage, 2, (2,), (1,)).tolist() == [2, 3]
    storage.resize_(0)
    assert storage.nbytes() == 0


def test_set() -> None:
    source = torch.arange(12.0).view(3, 4).to("fl:0")
    other = torch.ops.aten.set_(torch.empty(0, device="fl:0"), source)
    assert other.is_set_to(source)
    assert not torch.empty_like(source).is_set_to(source)
    other[1, 2] = 50
    assert source[1, 2].item() == 50
    strided = torch.empty(0, device="fl:0").set_(source.untyped_storage(), 1, (2, 3), (1, 4))
    assert torch.equal(strided.cpu(), source.cpu().as_strided((2, 3), (1, 4), 1))
    grown = torch.empty(0, device="fl:0").set_(torch.zeros(2, device="fl:0").untyped_storage(), 0, (2, 3), (4, 1))
    assert grown.untyped_storage().nbytes() == 28
    assert other.set_().numel() == 0
    assert other.device == torch.device("fl:0")
    with pytest.raises(RuntimeError, match="device"):
        torch.empty(0, device="fl:1").set_(source.untyped_storage(), 0, (1,), (1,))
    with pytest.raises(RuntimeError, match="invalid storage offset"):
        torch.empty(0, device="fl:0").set_(source.untyped_storage(), -1, (1,), (1,))
    assert torch.empty((), device="fl:0").set_(source.untyped_storage(), 5, (), ()).item() == 5


def test_storage_outlives_tensor() -> None:
    storage = torch.arange(5.0).to("fl:0").untyped_storage()
    gc.collect()
    assert torch.empty(0, device="fl:0").set_(storage).tolist() == [0, 1, 2, 3, 4]


def test_deepcopy_and_serialisation_keep_sharing() -> None:
    base = torch.arange(10.0).to("fl:2")
    pair = {"base": base, "part": base[2:5]}
    for twin in (copy.deepcopy(pair), _saved_and_loaded(pair)):
        assert str(twin["part"].device) == "fl:2"
        twin["base"].zero_()
        assert twin["part"].tolist() == [0, 0, 0]
    assert base[3].item() == 3


def _saved_and_loaded(value: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)  # type: ignore[no-any-return]


def test_record_stream_and_clone() -> None:
    tensor = torch.arange(3.0).to("fl:0")
    tensor.record_stream(fl.Stream(0))
    twin = tensor.clone()
    twin.zero_()
    assert tensor.tolist() == [0, 1, 2]


def test_printing() -> None:
    for dtype in (torch.float32, torch.int64, torch.bool):
        values = buffer(dtype)[:6].view(2, 3)
        assert repr(values.to("fl:1")) == repr(values)[:-1] + ", device='fl:1')"


@pytest.mark.parametrize("place", ["cpu", "fl:0", "fl:1", "fl:2"])
@pytest.mark.parametrize("of_value", ["cpu", "fl:0", "fl:2"])
def test_fill_with_a_tensor_of_another_device(place: str, of_value: str) -> None:
    for value in (torch.tensor(2.5), torch.tensor(3), torch.tensor(1 + 2j)):
        dtype = torch.complex64 if value.is_complex() else torch.float32
        tensor = torch.zeros(2, 3, dtype=dtype, device=place)
        assert tensor.fill_(value.to(of_value)) is tensor
        assert (tensor.device, tensor.tolist()) == (torch.device(place), [[value.item()] * 3] * 2)
    with pytest.raises(RuntimeError, match="0-dimension"):
        torch.zeros(2, device=place).fill_(torch.ones(2, device=of_value))
