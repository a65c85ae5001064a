"""Device memory and pinned memory as torch sees them."""

from __future__ import annotations

import copy
import gc
import itertools
from typing import Any

import pytest
import torch
from torch_fl import fl

from .processes import prints
from .stalling import Gate, fail_next

pytestmark = pytest.mark.usefixtures("devices")

ALL = ["fl:0", "fl:1", "fl:2", "fl:3"]
MEBI = 1 << 20


@pytest.fixture(autouse=True)
def clean() -> None:
    """Nothing cached, nothing pending, peaks and sums at their start."""
    gc.collect()
    for index in range(4):
        fl.synchronize(index)
    fl.empty_cache()
    for index in range(4):
        fl.reset_peak_memory_stats(index)
        fl.reset_accumulated_memory_stats(index)


@pytest.mark.parametrize("device", ALL)
def test_allocated_and_reserved_follow_tensors(device: str) -> None:
    before, reserved = fl.memory_allocated(device), fl.memory_reserved(device)
    x = torch.empty(3 * MEBI, dtype=torch.uint8, device=device)
    assert fl.memory_allocated(device) == before + 3 * MEBI
    assert fl.memory_reserved(device) >= reserved + 3 * MEBI
    del x
    assert fl.memory_allocated(device) == before
    assert fl.max_memory_allocated(device) == before + 3 * MEBI
    assert fl.memory_reserved(device) > reserved  # kept for the next
    fl.empty_cache()
    assert fl.memory_reserved(device) == reserved
    fl.reset_peak_memory_stats(device)
    assert fl.max_memory_allocated(device) == before
    assert fl.max_memory_reserved(device) == reserved


def test_statistics_are_those_of_torch_accelerator() -> None:
    x = torch.empty(5 * MEBI, dtype=torch.uint8, device="fl:1")
    stats = fl.memory_stats("fl:1")
    assert {name: stats[name] for name in torch.accelerator.memory_stats(1)} == torch.accelerator.memory_stats(1)
    assert stats["allocation.all.allocated"] == stats["segment.all.allocated"] == 1
    assert stats["allocated_bytes.all.allocated"] == x.nbytes
    assert stats["allocated_bytes.all.freed"] == 0
    assert torch.accelerator.memory_allocated(1) == fl.memory_allocated(1)
    del x
    stats = fl.memory_stats("fl:1")
    assert stats["allocated_bytes.all.freed"] == stats["allocated_bytes.all.allocated"] == 5 * MEBI
    hits = stats["num_cache_hits"]
    torch.empty(5 * MEBI, dtype=torch.uint8, device="fl:1")
    assert fl.memory_stats(1)["num_cache_hits"] == hits + 1
    torch.accelerator.reset_accumulated_memory_stats(1)
    assert fl.memory_stats(1)["allocation.all.allocated"] == 0


def test_free_memory_is_the_vendors() -> None:
    free, total = fl.mem_get_info(0)
    assert total == fl.get_device_properties(0).total_memory
    x = torch.empty(64 * MEBI, dtype=torch.uint8, device="fl:0")
    assert fl.mem_get_info(0) == torch.accelerator.get_memory_info(0)
    assert fl.mem_get_info(0)[0] <= free - x.nbytes


def test_summary_and_snapshot_tell_of_a_tensor() -> None:
    x = torch.empty(2 * MEBI - 100, dtype=torch.uint8, device="fl:3")
    (block,) = [b for b in fl.memory_snapshot("fl:3") if b["address"] == x.data_ptr()]
    assert block["allocated"]
    assert block["requested_size"] == x.nbytes <= block["size"]
    summary = fl.memory_summary("fl:3")
    assert "fl:3" in summary
    assert "2.00 MiB" in summary
    assert "freed" not in fl.memory_summary("fl:3", abbreviated=True)


@pytest.mark.parametrize("device", ALL)
def test_beyond_the_device_is_out_of_memory(device: str) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=rf"{device} .*4.00 TiB"):
        torch.empty(1 << 42, dtype=torch.uint8, device=device)
    assert fl.memory_stats(device)["num_ooms"] == 1
    assert torch.ones(2, device=device).tolist() == [1, 1]


def test_memory_fraction_bounds_the_process() -> None:
    total = fl.get_device_properties(1).total_memory
    try:
        fl.set_per_process_memory_fraction(16 * MEBI / total, 1)
        x = torch.empty(12 * MEBI, dtype=torch.uint8, device="fl:1")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(12 * MEBI, dtype=torch.uint8, device="fl:1")
        del x
        torch.empty(12 * MEBI, dtype=torch.uint8, device="fl:1")
    finally:
        fl.set_per_process_memory_fraction(1.0, 1)
    for wrong in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="fraction"):
            fl.set_per_process_memory_fraction(wrong, 1)


def test_addresses_are_unique_over_devices_and_vendors() -> None:
    tensors = [torch.empty(1000, dtype=torch.uint8, device=device) for device in ALL for _ in range(20)]
    ranges = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in tensors)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert all(start % 64 == 0 for start, _ in ranges)


@pytest.mark.parametrize("device", ALL)
def test_tensors_without_bytes_have_no_memory(device: str) -> None:
    before = fl.memory_allocated(device)
    x = torch.empty(0, 3, device=device)
    assert (x.data_ptr(), x.device, fl.memory_allocated(device)) == (0, torch.device(device), before)
    assert x.cpu().shape == (0, 3)
    empty: Any = torch.UntypedStorage(0, device=device)  # type: ignore[no-untyped-call]
    assert empty.device == torch.device(device)


@pytest.mark.parametrize("device", ALL)
def test_storages_resize_and_keep_their_bytes(device: str) -> None:
    x = torch.arange(6, dtype=torch.uint8, device=device)
    storage: Any = x.untyped_storage()
    storage.resize_(10)
    assert storage.nbytes() == 10
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    storage.resize_(3)
    assert bytes(storage.tolist()) == bytes([0, 1, 2])
    storage.resize_(0)
    assert (storage.nbytes(), storage.data_ptr()) == (0, 0)


def test_resize_on_another_stream_reads_the_old_bytes_first() -> None:
    stream = fl.Stream(0)
    x = torch.arange(100_000, dtype=torch.int32, device="fl:0")
    fl.synchronize(0)
    with Gate(stream) as gate:
        with fl.stream(stream):
            x.untyped_storage().resize_(800_000)
        # What the resize still has to read is no longer x's, and must not be given to anybody else.
        others = [torch.full((100_000,), -1, dtype=torch.int32, device="fl:0") for _ in range(4)]
        gate.open()
        stream.synchronize()
    assert torch.equal(x.cpu(), torch.arange(100_000, dtype=torch.int32))
    del others


def test_freed_memory_waits_for_streams_that_record_stream_named() -> None:
    stream = fl.Stream(0)
    x = torch.zeros(MEBI, dtype=torch.uint8, device="fl:0")
    address = x.data_ptr()
    fl.synchronize(0)
    with Gate(stream) as gate:
        with fl.stream(stream):
            y = x.clone()
        x.record_stream(stream)
        del x
        assert torch.empty(MEBI, dtype=torch.uint8, device="fl:0").data_ptr() != address
        assert fl.memory_stats(0)["active.all.current"] > fl.memory_stats(0)["allocation.all.current"]
        gate.open()
        stream.synchronize()
    del y
    again = [torch.empty(MEBI, dtype=torch.uint8, device="fl:0") for _ in range(3)]
    assert address in {x.data_ptr() for x in again}


@pytest.mark.parametrize("device", ALL)
def test_deepcopy_shares_nothing_and_keeps_views(device: str) -> None:
    base = torch.arange(6.0, device=device)
    copied, view = copy.deepcopy((base, base[2:4]))
    base.zero_()
    view.add_(10)
    assert copied.tolist() == [0, 1, 12, 13, 4, 5]


@pytest.mark.parametrize("device", ["cpu", *ALL])
def test_pinned_memory_is_known_as_such(device: str) -> None:
    x = torch.arange(5.0)
    assert not x.is_pinned()
    with fl.device(device if device != "cpu" else None):
        pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned[2:].is_pinned()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    assert pinned.data_ptr() % 64 == 0
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.equal(pinned.to(device, non_blocking=True).cpu(), x)


def test_pinned_memory_is_not_reused_while_a_copy_reads_it() -> None:
    fl.empty_host_cache()
    stream = fl.Stream(0)
    source = torch.full((5000,), 7, dtype=torch.int32).pin_memory()
    address = source.data_ptr()
    target = torch.zeros(5000, dtype=torch.int32, device="fl:0")
    fl.synchronize(0)
    with Gate(stream) as gate:
        with fl.stream(stream):
            target.copy_(source, non_blocking=True)
        del source
        other = torch.full((5000,), 9, dtype=torch.int32).pin_memory()
        assert other.data_ptr() != address
        gate.open()
        stream.synchronize()
    assert target.tolist() == [7] * 5000
    del other
    again = [torch.empty(5000, dtype=torch.int32, pin_memory=True) for _ in range(2)]
    assert address in {x.data_ptr() for x in again}


def test_pinned_memory_is_not_reused_while_a_copy_writes_it() -> None:
    fl.empty_host_cache()
    stream = fl.Stream(0)
    source = torch.full((5000,), 7, dtype=torch.int32, device="fl:0")
    fl.synchronize(0)
    with Gate(stream) as gate:
        with fl.stream(stream):
            target = source.to("cpu", non_blocking=True)
            landing = torch.empty(5000, dtype=torch.int32, pin_memory=True)
            landing.copy_(source, non_blocking=True)
            address = landing.data_ptr()
        del landing
        other = torch.full((5000,), 9, dtype=torch.int32).pin_memory()
        assert other.data_ptr() != address
        gate.open()
        stream.synchronize()
    assert target.tolist() == [7] * 5000
    assert other.tolist() == [9] * 5000


def test_pinned_memory_of_a_failed_copy_comes_back_when_the_failure_has_surfaced() -> None:
    fl.empty_host_cache()
    stream = fl.Stream(0)
    source = torch.ones(5000, pin_memory=True)
    address = source.data_ptr()
    target = torch.zeros(5000, device="fl:0")
    fl.synchronize(0)
    fail_next(stream)
    with fl.stream(stream):
        target.copy_(source, non_blocking=True)
    del source
    with pytest.raises(RuntimeError, match="FL_ASYNC_FAILURE"):
        stream.synchronize()
    assert torch.empty(5000, pin_memory=True).data_ptr() == address


def test_vendors_without_pinned_memory_get_ordinary_memory(devices: tuple[str, ...]) -> None:
    code = """
        import torch, torch_fl
        from torch_fl_spec import loader
        find = loader.Plugin.extension_address
        loader.Plugin.extension_address = lambda plugin, name: 0 if name == "fl.pinned" else find(plugin, name)
        print(torch.fl.get_device_properties(0).pinned_memory)
        x = torch.arange(1000.0).pin_memory()
        print(x.is_pinned(), x.data_ptr() % 64)
        print(torch.equal(x.to("fl:0", non_blocking=True).cpu(), torch.arange(1000.0)))
        y = torch.empty(1000, pin_memory=True).copy_(x.to("fl:1"), non_blocking=True)
        torch.fl.synchronize(1)
        print(torch.equal(x, y))
    """
    assert prints(code) == ["False", "True 0", "True", "True"]


def test_host_memory_goes_back_to_the_vendor() -> None:
    x = torch.empty(MEBI, dtype=torch.uint8, pin_memory=True)
    address = x.data_ptr()
    del x
    assert torch.empty(MEBI, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    fl.empty_host_cache()
    x = torch.empty(MEBI, dtype=torch.uint8, pin_memory=True)
    assert x.is_pinned()
