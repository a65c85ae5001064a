"""Movement, index and random kernels of the reference vendor against torch, numpy and the published Philox vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .kernel_runner import DTYPES, KernelError, KernelRunner, Out, spread_strides
from .pointwise_values import ALL, FLOATS, INTEGERS, NUMBERS, agree, layouts, number, values


@pytest.mark.parametrize("dtype", ALL)
def test_cat(kernels: KernelRunner, dtype: str) -> None:
    for dim, sizes in [(0, (2, 0, 3)), (1, (4, 1)), (2, (1, 2, 3, 4))]:
        shapes = [tuple(size if d == dim else whole for d, whole in enumerate((3, 2, 5))) for size in sizes]
        tensors = [values(dtype, i, shape) for i, shape in enumerate(shapes)]
        tensors[0] = values(dtype, 7, shapes[0][::-1]).permute(2, 1, 0)
        expected = torch.cat(tensors, dim)
        for strides in (None, spread_strides(expected.shape)):
            out = Out(dtype, tuple(expected.shape), strides)
            (got,) = kernels.run("cat", [tensors, {"int": dim}], [out])
            agree(got, expected)


def test_cat_of_many(kernels: KernelRunner) -> None:
    tensors = [values("f32", i, (i % 3, 2)) for i in range(600)]
    expected = torch.cat(tensors)
    (got,) = kernels.run("cat", [tensors, {"int": 0}], [Out("f32", tuple(expected.shape))])
    agree(got, expected)


@pytest.mark.parametrize("dtype", ALL)
def test_flip(kernels: KernelRunner, dtype: str) -> None:
    a = values(dtype, 1, (7, 5, 3)).permute(2, 1, 0)
    for dims in ([], [0], [2], [0, 2], [0, 1, 2]):
        for strides in (None, spread_strides(a.shape)):
            (got,) = kernels.run("flip", [a, {"ints": dims}], [Out(dtype, tuple(a.shape), strides)])
            agree(got, torch.flip(a, dims))
    (got,) = kernels.run("flip", [a[:, :0], {"ints": [0, 1]}], [Out(dtype, (3, 0, 7))])
    assert got.numel() == 0


@pytest.mark.parametrize("dtype", ALL)
def test_constant_pad_nd(kernels: KernelRunner, dtype: str) -> None:
    fill = 0.1 if dtype in FLOATS else 1
    for shape, pad in [((3, 4), [1, 2, 0, 3]), ((3, 0), [2, 1, 0, 0]), ((2, 3, 2), [0, 0, 1, 0, 0, 2]), ((), [])]:
        a = values(dtype, 3, shape)
        expected = torch.constant_pad_nd(a, pad, fill)
        for strides in (None, spread_strides(expected.shape)):
            out = Out(dtype, tuple(expected.shape), strides)
            (got,) = kernels.run("constant_pad_nd", [a, {"ints": pad}, number(dtype, fill)], [out])
            agree(got, expected)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arange(kernels: KernelRunner, dtype: str) -> None:
    start, end, step = (0.5, 9.75, 0.25) if dtype in FLOATS else (3, 100, 7)
    expected = torch.arange(start, end, step, dtype=DTYPES[dtype])
    slots = [number(dtype, value) for value in (start, end, step)]
    for strides in (None, (3,)):
        (got,) = kernels.run("arange.start_step", slots, [Out(dtype, tuple(expected.shape), strides)])
        agree(got, expected)


def test_arange_of_large_integers_is_exact(kernels: KernelRunner) -> None:
    start, step = 2**62 + 1, -(2**53 + 1)
    slots = [{"int": start}, {"int": start + 4 * step}, {"int": step}]
    (got,) = kernels.run("arange.start_step", slots, [Out("i64", (4,))])
    assert got.tolist() == [start + i * step for i in range(4)]


@pytest.mark.parametrize("index_dtype", ["i64", "i32"])
@pytest.mark.parametrize("dtype", ALL)
def test_index_select(kernels: KernelRunner, dtype: str, index_dtype: str) -> None:
    a = values(dtype, 1, (7, 5, 3)).permute(2, 1, 0)
    for dim in range(3):
        index = torch.tensor([2, 0, 0, 1, 2], dtype=DTYPES[index_dtype])
        expected = torch.index_select(a, dim, index)
        for strides in (None, spread_strides(expected.shape)):
            out = Out(dtype, tuple(expected.shape), strides)
            (got,) = kernels.run("index_select", [a, {"int": dim}, index], [out])
            agree(got, expected)
    (got,) = kernels.run("index_select", [a[0, 0, 0], {"int": 0}, torch.tensor([0])], [Out(dtype, ())])
    agree(got, a[0, 0, 0])


@pytest.mark.parametrize("dtype", ALL)
def test_gather(kernels: KernelRunner, dtype: str) -> None:
    a = values(dtype, 1, (7, 5, 3)).permute(2, 1, 0)
    generator = torch.Generator().manual_seed(3)
    for dim, shape in [(0, (6, 5, 7)), (1, (3, 2, 4)), (2, (2, 5, 9)), (1, (3, 0, 7))]:
        index = torch.randint(0, a.shape[dim], shape, generator=generator)
        expected = torch.gather(a, dim, index)
        for strides in (None, spread_strides(shape)):
            (got,) = kernels.run("gather", [a, {"int": dim}, index], [Out(dtype, shape, strides)])
            agree(got, expected)


@pytest.mark.parametrize("index_dtype", ["i64", "i32"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(kernels: KernelRunner, dtype: str, index_dtype: str) -> None:
    weight = values(dtype, 1, (9, 11)).t()
    for shape in [(), (4,), (2, 3), (2, 0)]:
        indices = torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1)).to(DTYPES[index_dtype])
        expected = torch.nn.functional.embedding(indices, weight)
        for strides in (None, spread_strides(expected.shape)):
            (got,) = kernels.run("embedding", [weight, indices], [Out(dtype, tuple(expected.shape), strides)])
            agree(got, expected)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_scatter_add(kernels: KernelRunner, dtype: str) -> None:
    generator = torch.Generator().manual_seed(5)
    for dim, shape in [(0, (9, 5, 7)), (1, (3, 20, 4)), (2, (2, 5, 9)), (0, (0, 5, 7))]:
        a = torch.randint(0, 5, (7, 5, 3), generator=generator).to(DTYPES[dtype]).permute(2, 1, 0)
        index = torch.randint(0, a.shape[dim], shape, generator=generator)
        src = torch.randint(0, 5, [size + 1 for size in shape], generator=generator).to(DTYPES[dtype])
        expected = torch.scatter_add(a, dim, index, src)
        for strides in (None, spread_strides(a.shape)):
            out = Out(dtype, tuple(a.shape), strides)
            (got,) = kernels.run("scatter_add", [a, {"int": dim}, index, src], [out])
            agree(got, expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scatter_add_of_halves_rounds_once(kernels: KernelRunner, dtype: str) -> None:
    big, count = (2048.0, 8) if dtype == "f16" else (256.0, 8)
    a = torch.tensor([big], dtype=DTYPES[dtype])
    index, src = torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=DTYPES[dtype])
    (got,) = kernels.run("scatter_add", [a, {"int": 0}, index, src], [Out(dtype, (1,))])
    assert got.item() == big + count


@pytest.mark.parametrize("bad", [-1, 5, 2**62, -(2**62)])
def test_an_index_out_of_range_stays_inside(kernels: KernelRunner, bad: int) -> None:
    """The runner's sentinels catch a stray write; elements of good indices are right all the same."""
    a, index = values("f32", 1, (5,)), torch.tensor([1, bad, 4])
    (got,) = kernels.run("index_select", [a, {"int": 0}, index], [Out("f32", (3,))])
    agree(got[::2], a[[1, 4]])
    (got,) = kernels.run("gather", [a, {"int": 0}, index], [Out("f32", (3,))])
    agree(got[::2], a[[1, 4]])
    (got,) = kernels.run("embedding", [a.reshape(5, 1), index], [Out("f32", (3, 1))])
    agree(got[::2, 0], a[[1, 4]])
    (got,) = kernels.run("scatter_add", [torch.zeros(5), {"int": 0}, index, torch.ones(3)], [Out("f32", (5,))])
    assert got.tolist() == [0, 1, 0, 0, 1]


def philox(counter: int, seed: int) -> list[int]:
    """Philox4x32-10 as published, in Python integers."""
    x = [counter % 2**32, counter >> 32, 0, 0]
    key = [seed % 2**32, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(second >> 32) ^ x[1] ^ key[0], second % 2**32, (first >> 32) ^ x[3] ^ key[1], first % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return x


SEED, OFFSET = 0x1234567890ABCDEF, 2**32 - 2


def uniform_bits(dtype: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    draws: list[float] = []
    for group in range(count):
        w = philox((OFFSET + group) % 2**64, SEED)
        if dtype == "f64":
            draws += [((w[1] << 32 | w[0]) >> 11) * 2.0**-53, ((w[3] << 32 | w[2]) >> 11) * 2.0**-53]
        else:
            bits = {"f32": 24, "f16": 11, "bf16": 8}[dtype]
            draws += [(word >> (32 - bits)) * 2.0**-bits for word in w]
    return np.array(draws[:count])


def test_philox_has_the_published_answer() -> None:
    """The known-answer test of Random123 for counter 0 and key 0."""
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(kernels: KernelRunner, dtype: str) -> None:
    for shape, strides in [((5, 7), None), ((5, 7), spread_strides((5, 7))), ((), None), ((0,), None), ((1000,), None)]:
        count = int(np.prod(shape, dtype=int))
        slots = [{"float": 0.0}, {"float": 1.0}, {"rng": [SEED, OFFSET]}]
        (got,) = kernels.run("uniform", slots, [Out(dtype, shape, strides)])
        assert got.reshape(-1).double().numpy().tolist() == uniform_bits(dtype, count).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_never_reaches_the_end(kernels: KernelRunner, dtype: str) -> None:
    for low, high in [(-3.0, 5.0), (1.0, 1.0 + 2.0**-7), (-1.0, 0.0), (2.0, 2.0)]:
        slots = [{"float": low}, {"float": high}, {"rng": [SEED, OFFSET]}]
        (got,) = kernels.run("uniform", slots, [Out(dtype, (4000,))])
        assert got.double().min() >= low
        assert got.double().max() < high or low == high


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(kernels: KernelRunner, dtype: str) -> None:
    count = 1001
    slots = [{"float": 0.5}, {"float": 2.0}, {"rng": [SEED, OFFSET]}]
    (got,) = kernels.run("normal_functional", slots, [Out(dtype, (count,))])
    u = uniform_bits("f64", count + 1)
    radius, angle = np.sqrt(-2 * np.log(u[::2] + 2.0**-53)), 2 * np.pi * u[1::2]
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count]
    agree(got, torch.from_numpy(0.5 + 2 * z).to(DTYPES[dtype]), 1 if dtype != "f64" else 64)


def test_random_numbers_follow_from_place_and_offset(kernels: KernelRunner) -> None:
    def draw(offset: int, count: int) -> list[float]:
        slots = [{"float": 0.0}, {"float": 1.0}, {"rng": [SEED, offset]}]
        return [float(x) for x in kernels.run("uniform", slots, [Out("f32", (count,))])[0]]

    assert draw(5, 12) == draw(5, 4) + draw(6, 8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [0.0, 0.3, 0.875, 1.0])
def test_native_dropout(kernels: KernelRunner, p: float, dtype: str) -> None:
    for x, strides in layouts(dtype, 3):
        outs = [Out(dtype, tuple(x.shape), strides), Out("bool", tuple(x.shape), strides)]
        got, mask = kernels.run("native_dropout", [x, {"float": p}, {"rng": [SEED, OFFSET]}], outs)
        kept = uniform_bits("f32", x.numel()) >= p  # in every dtype the mask of f32
        assert mask.reshape(-1).tolist() == kept.tolist()
        exact = x.double() * mask / (1 - p) if p < 1 else x.double() * 0
        agree(got, exact.to(x.dtype), 2)


def test_a_probability_is_needed(kernels: KernelRunner) -> None:
    for p in (-0.1, 1.5, "nan"):
        slots = [torch.ones(4), {"float": p}, {"rng": [1, 2]}]
        with pytest.raises(KernelError) as refused:
            kernels.run("native_dropout", slots, [Out("f32", (4,)), Out("bool", (4,))])
        assert (refused.value.step, refused.value.status) == ("plan", 2)


def test_integers_have_no_uniform(kernels: KernelRunner) -> None:
    slots = [{"float": 0.0}, {"float": 1.0}, {"rng": [1, 0]}]
    for dtype in INTEGERS:
        with pytest.raises(KernelError) as caught:
            kernels.run("uniform", slots, [Out(dtype, (4,))])
        assert caught.value.status == 7
