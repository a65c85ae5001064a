"""Copies between all pairs of devices: values, layouts, dtypes, and what torch raises."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch_fl import _bridge as bridge

from .layouts import COMPLEX, DTYPES, EIGHT_BITS, FLOATS, INTEGERS, LAYOUTS, REPEATED, ROOM, UNSIGNED, bits, buffer

pytestmark = pytest.mark.usefixtures("devices")

PLACES = ("cpu", "fl:0", "fl:1", "fl:2", "fl:3")
PAIRS = [pair for pair in itertools.product(PLACES, PLACES) if pair != ("cpu", "cpu")]


def check_copy(source_view: str, source: torch.Tensor, view: str, dtype: torch.dtype, pair: tuple[str, str]) -> None:
    """Copy between layouts on a pair of devices as on the CPU, bit by bit, with all that lies around."""
    views = LAYOUTS | REPEATED
    expected, actual = buffer(dtype, seed=1), buffer(dtype, seed=1).to(pair[1])
    views[view](expected).copy_(views[source_view](source))
    views[view](actual).copy_(views[source_view](source.to(pair[0])))
    assert torch.equal(bits(actual), bits(expected)), (source_view, view, source.dtype, dtype)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_layout_to_every_layout(pair: tuple[str, str]) -> None:
    for source_view, view in itertools.product(LAYOUTS | REPEATED, LAYOUTS):
        check_copy(source_view, buffer(torch.int32), view, torch.int32, pair)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_every_dtype_is_copied_bit_by_bit(dtype: torch.dtype, pair: tuple[str, str]) -> None:
    noise = torch.randint(0, 256, (ROOM * dtype.itemsize,), dtype=torch.uint8)
    source = noise.view(dtype) if dtype is not torch.bool else noise % 2 == 0
    for source_view, view in [
        ("contiguous", "offset"),
        ("gaps", "permuted"),
        ("permuted", "gaps"),
        ("expanded", "gaps"),
    ]:
        check_copy(source_view, source, view, dtype, pair)


@pytest.mark.parametrize(
    "pair", [("cpu", "fl:0"), ("fl:0", "cpu"), ("fl:0", "fl:0"), ("fl:0", "fl:1"), ("fl:3", "fl:1")]
)
@pytest.mark.parametrize("layouts", [("contiguous", "contiguous"), ("gaps", "permuted gaps")], ids=":".join)
def test_every_cast(layouts: tuple[str, str], pair: tuple[str, str]) -> None:
    numbers = (torch.bool, *INTEGERS, *FLOATS)
    for dtype, target in itertools.product(numbers, numbers):
        check_copy(layouts[0], buffer(dtype), layouts[1], target, pair)


@pytest.mark.parametrize("pair", [("cpu", "fl:0"), ("fl:0", "cpu"), ("fl:0", "fl:0"), ("fl:2", "fl:1")])
def test_casts_that_no_kernel_does(pair: tuple[str, str]) -> None:
    for rare in (*UNSIGNED, *EIGHT_BITS):
        for dtype in (torch.float32, torch.int64):
            check_copy("gaps", buffer(rare), "gaps", dtype, pair)
            check_copy("gaps", buffer(dtype), "gaps", rare, pair)
    for dtype, target in itertools.product(COMPLEX, COMPLEX):
        check_copy("permuted", buffer(dtype), "gaps", target, pair)
    for dtype in COMPLEX:
        check_copy("gaps", buffer(torch.float32), "gaps", dtype, pair)


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_complex_to_real_discards_the_imaginary_part() -> None:
    source = buffer(torch.complex64)
    assert torch.equal(source.to("fl:0").to(torch.float32).cpu(), source.real)


@pytest.mark.parametrize("place", PLACES[1:])
def test_values_that_casts_can_only_approximate(place: str) -> None:
    source = torch.tensor([1.5, -1.5, 2**31 - 0.5, 0.1, -0.0, float("inf"), float("nan"), 65504.0, 1e-8, 3e38])
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.testing.assert_close(source.to(place).to(dtype).cpu(), source.to(dtype), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(source[:2].to(place).to(torch.int8).cpu(), source[:2].to(torch.int8))
    assert torch.equal(source.to(place).to(torch.bool).cpu(), source.to(torch.bool))


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_scalars_and_tensors_without_elements(pair: tuple[str, str]) -> None:
    scalar = torch.tensor(3.25).to(pair[0])
    assert scalar.to(pair[1]).cpu().item() == 3.25
    assert torch.zeros(2, 3, device=pair[1]).copy_(scalar).cpu().tolist() == [[3.25] * 3] * 2
    for sizes in [(0,), (2, 0, 3)]:
        empty = torch.empty(sizes, device=pair[0])
        assert empty.to(pair[1]).shape == sizes
        assert empty.to(pair[1], torch.int8).dtype == torch.int8


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_source_is_broadcast(pair: tuple[str, str]) -> None:
    for sizes in [(1,), (5,), (4, 1), (1, 4, 1), (3, 1, 5)]:
        source = torch.randn(sizes)
        expected, actual = torch.zeros(3, 4, 5), torch.zeros(3, 4, 5, device=pair[1])
        assert torch.equal(actual.copy_(source.to(pair[0])).cpu(), expected.copy_(source))


def test_a_large_broadcast() -> None:
    row = torch.randn(1, 3001)
    for source in (row, row.to("fl:0"), row.to("fl:1"), row.to("fl:2")):
        assert torch.equal(torch.zeros(100, 3001, device="fl:0").copy_(source).cpu(), row.expand(100, 3001))


@pytest.mark.parametrize(
    "pair", [("cpu", "fl:0"), ("fl:0", "cpu"), ("fl:0", "fl:0"), ("fl:0", "fl:1"), ("fl:0", "fl:2")]
)
def test_wrong_sizes_raise_what_torch_raises(pair: tuple[str, str]) -> None:
    for target, source in [((2, 3), (4,)), ((3,), (2, 3)), ((2, 3), (3, 2)), ((1,), (2,)), ((0,), (2,))]:
        with pytest.raises(RuntimeError) as expected:
            torch.zeros(target).copy_(torch.zeros(source))
        with pytest.raises(RuntimeError) as actual:
            torch.zeros(target, device=pair[1]).copy_(torch.zeros(source, device=pair[0]))
        assert str(actual.value) == str(expected.value)


def test_repeated_elements_cannot_be_written() -> None:
    for source in ("cpu", "fl:0", "fl:1", "fl:2"):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            torch.zeros(1, device="fl:0").expand(3).copy_(torch.zeros(3, device=source))


def test_meta_and_sparse_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        torch.zeros(2, device="fl:0").copy_(torch.zeros(2, device="meta"))
    assert torch.zeros(2, device="meta").copy_(torch.zeros(2, device="fl:0")).is_meta


@pytest.mark.parametrize("place", ["fl:0", "fl:2"])
def test_source_and_destination_may_overlap(place: str) -> None:
    def shifted(t: torch.Tensor) -> None:
        t[1:].copy_(t[:-1].clone() if t.is_cpu else t[:-1])

    def transposed(t: torch.Tensor) -> None:
        square = t[:36].view(6, 6)
        square.copy_(square.t().clone() if t.is_cpu else square.t())

    def interleaved(t: torch.Tensor) -> None:
        t[1:-1:2].copy_(t[::2][:-1])

    def onto_itself(t: torch.Tensor) -> None:
        t.copy_(t.view(-1))

    for change in (shifted, transposed, interleaved, onto_itself):
        expected = torch.arange(40.0)
        actual = expected.to(place)
        change(expected)
        change(actual)
        assert torch.equal(actual.cpu(), expected), change.__name__
    expected = torch.arange(8, dtype=torch.int32)
    actual = expected.to(place)
    actual.view(torch.float32).copy_(actual)
    assert torch.equal(actual.view(torch.float32).cpu(), torch.arange(8.0))


COMPLEX_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "itself": lambda t: t,
    "conj": lambda t: t.conj(),
    "adjoint": lambda t: t.mH,
    "neg": lambda t: t._neg_view(),
    "conj and neg": lambda t: t.mT.conj()._neg_view(),
}
REAL_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "imag": lambda t: t.imag,
    "imag of conj": lambda t: t.conj().imag,
    "imag of adjoint": lambda t: t.mH.imag,
}


@pytest.mark.parametrize(
    "pair", [("cpu", "fl:0"), ("fl:0", "cpu"), ("fl:0", "fl:0"), ("fl:1", "fl:0"), ("fl:2", "fl:0")]
)
def test_conj_and_neg_bits(pair: tuple[str, str]) -> None:
    source = torch.randn(3, 3, dtype=torch.complex64)
    for dtype in (torch.complex64, torch.complex128):
        for of_source, view in itertools.product(COMPLEX_VIEWS.values(), COMPLEX_VIEWS.values()):
            expected, actual = torch.zeros(3, 3, dtype=dtype), torch.zeros(3, 3, dtype=dtype, device=pair[1])
            view(expected).copy_(of_source(source))
            view(actual).copy_(of_source(source.to(pair[0])))
            assert torch.equal(actual.cpu(), expected)
    for of_source, view in itertools.product(REAL_VIEWS.values(), REAL_VIEWS.values()):
        expected, actual = (
            torch.zeros(3, 3, dtype=torch.complex64),
            torch.zeros(3, 3, dtype=torch.complex64).to(pair[1]),
        )
        view(expected).copy_(of_source(source))
        view(actual).copy_(of_source(source.to(pair[0])))
        assert torch.equal(actual.cpu(), expected)


def test_conjugation_that_is_written_to_memory() -> None:
    for values in (torch.randn(3, 4, dtype=torch.complex64).t(), torch.randn(3)):
        there = values.to("fl:0")
        assert torch.equal(there.conj().resolve_conj().cpu(), values.conj_physical())
        assert torch.equal(torch.conj_physical(there).cpu(), values.conj_physical())
        assert torch.equal(torch.conj_physical(there, out=torch.empty_like(there)).cpu(), values.conj_physical())
        assert torch.equal(there.conj_physical_().cpu(), values.conj_physical())


def test_to_keeps_strides_as_torch_does() -> None:
    cases = [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 5).t(),
        torch.randn(4, 5)[:, ::2],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(2, 3, 4).permute(2, 0, 1)[1:],
    ]
    for case in cases:
        expected = case.to(torch.float64).stride()
        on_device = torch.empty_strided(case.shape, case.stride(), device="fl:0")
        assert case.to("fl:0").stride() == expected
        assert (
            on_device.to(torch.float64).stride()
            == on_device.cpu().stride()
            == on_device.to("fl:2").stride()
            == expected
        )
        assert on_device.clone().stride() == case.clone().stride()
        assert case.to("fl:0", memory_format=torch.contiguous_format).is_contiguous()
    assert torch.randn(2, 3, 4, 5, device="fl:0").to(memory_format=torch.channels_last).stride() == cases[0].stride()


def test_to_the_same_device_is_the_same_tensor() -> None:
    tensor = torch.zeros(3, device="fl:1")
    assert tensor.to("fl:1") is tensor
    copied = tensor.to("fl:1", copy=True)
    assert copied.data_ptr() != tensor.data_ptr()


def test_copies_between_vendors_larger_than_the_staging_memory() -> None:
    source = torch.randint(0, 256, (40 * 2**20 + 3,), dtype=torch.uint8)
    there = source.to("fl:0").to("fl:2")
    assert torch.equal(there.cpu(), source)
    assert torch.equal(there[1:].to("fl:1").cpu(), source[1:])


def test_devices_of_one_vendor_do_not_wait_for_each_other() -> None:
    source = torch.randn(1000, device="fl:0")
    before = bridge.host_waits()
    assert torch.equal(source.to("fl:1").cpu(), source.cpu())
    assert torch.equal(source.to("fl:1").to("fl:0").cpu(), source.cpu())
    assert bridge.host_waits() == before


def test_items_of_every_dtype() -> None:
    for dtype in DTYPES:
        values = buffer(dtype)
        for place in ("fl:1", "fl:3"):
            assert values.to(place)[200].item() == values[200].item(), dtype
    assert torch.randn(3, dtype=torch.complex64).to("fl:0").conj()[1].imag.item() != 0


def test_numpy_and_lists() -> None:
    tensor = torch.arange(6, device="fl:0").view(2, 3)
    assert tensor.t().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert tensor.cpu().numpy().sum() == 15
    assert torch.tensor([[1, 2]], device="fl:2").tolist() == [[1, 2]]


@pytest.mark.parametrize("place", ["fl:0", "fl:2"])
@pytest.mark.parametrize("view", LAYOUTS)
def test_zero(view: str, place: str) -> None:
    for dtype in DTYPES:
        expected = buffer(dtype)
        actual = expected.to(place)
        LAYOUTS[view](expected).zero_()
        LAYOUTS[view](actual).zero_()
        assert torch.equal(bits(actual), bits(expected)), dtype


@pytest.mark.parametrize("place", PLACES[1:])
def test_copies_to_a_copy_on_write_tensor_are_its_own(place: str) -> None:
    for sizes in ((4,), (2, 3)):
        original = torch.zeros(sizes)
        clones = [torch._lazy_clone(original) for _ in range(2)]
        source = torch.arange(1.0, original.numel() + 1).view(sizes).to(place)
        clones[0].copy_(source)
        clones[1][1:].copy_(source[1:], non_blocking=True)
        torch.accelerator.synchronize(source.device)
        assert (clones[0] == source.cpu()).all()
        assert (clones[1][1:] == source.cpu()[1:]).all()
        assert not original.any()
        assert not clones[1][0].any()


def test_moved_bytes_are_those_between_device_and_host() -> None:
    bridge.forget_steps_down()
    grown = torch.empty(10, device="fl:0").resize_(0)  # what its memory holds moves along when it grows
    torch.lgamma(torch.ones(64, device="fl:0"), out=grown)
    moved = {op: rest[-1] for device, op, *rest in bridge.fallback_counters() if device == 0 and rest[-1]}
    assert moved == {"aten::lgamma.out": 2 * 256}
