"""Random state: seeds, states, and counters that are used once."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch_fl import fl

from .processes import prints

pytestmark = pytest.mark.usefixtures("devices")

ALL = ["fl:0", "fl:1", "fl:2", "fl:3"]


def state(seed: int, offset: int) -> list[int]:
    """get_state() of a generator that has used `offset` counters of the seed."""
    return [*seed.to_bytes(8, "little"), *offset.to_bytes(8, "little")]


@pytest.mark.parametrize("device", ALL)
def test_a_seed_gives_the_same_numbers_again(device: str) -> None:
    torch.manual_seed(3)
    first = torch.rand(100, device=device)
    second = torch.rand(100, device=device)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(100, device=device), first)
    assert torch.equal(torch.rand(100, device=device), second)
    assert not torch.equal(first, second)


def test_devices_of_one_seed_give_the_same_numbers() -> None:
    fl.manual_seed_all(11)
    numbers = [torch.rand(1000, device=device).cpu() for device in ALL]
    assert all(torch.equal(x, numbers[0]) for x in numbers)


@pytest.mark.parametrize("device", ALL)
def test_state_is_seed_and_offset(device: str) -> None:
    generator = torch.Generator(device)
    assert generator.device == torch.device(device)
    assert generator.manual_seed(258) is generator
    assert generator.get_state().tolist() == state(258, 0)
    torch.rand(9, device=device, generator=generator)
    used = generator.get_offset()
    assert used > 0
    assert generator.get_state().tolist() == state(258, used)
    assert generator.initial_seed() == 258
    generator.set_offset(2**40)
    assert generator.get_state().tolist() == state(258, 2**40)


def test_a_state_can_be_gone_back_to() -> None:
    generator = torch.Generator("fl:1")
    torch.rand(7, device="fl:1", generator=generator)
    before = generator.get_state()
    first = torch.rand(50, device="fl:1", generator=generator)
    assert torch.equal(torch.rand(50, device="fl:1", generator=generator.set_state(before)), first)
    twin = generator.set_state(before).clone_state()
    assert torch.equal(torch.rand(50, device="fl:1", generator=twin), first)
    assert generator.get_state().tolist() == before.tolist()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (torch.zeros(16), TypeError),
        (torch.zeros(8, dtype=torch.uint8), ValueError),
        (torch.zeros(32, dtype=torch.uint8)[::2], RuntimeError),
    ],
    ids=["dtype", "size", "strides"],
)
def test_wrong_states_are_refused(wrong: torch.Tensor, error: type[Exception]) -> None:
    generator = torch.Generator("fl:0").manual_seed(5)
    with pytest.raises(error):
        generator.set_state(wrong)
    assert generator.get_state().tolist() == state(5, 0)


def test_generators_copy_and_pickle() -> None:
    generator = torch.Generator("fl:3").manual_seed(21)
    generator.set_offset(77)
    for twin in (copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))):
        assert (twin.device, twin.get_state().tolist()) == (torch.device("fl:3"), state(21, 77))


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"expected a generator of fl:0, got one of fl:1.*torch.Generator"):
        torch.rand(3, device="fl:0", generator=torch.Generator("fl:1"))
    with pytest.raises(RuntimeError, match=r"generator"):
        torch.rand(3, device="fl:0", generator=torch.Generator())


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1, -1, -(2**63)])
def test_seeds_mean_what_they_mean_on_the_cpu(seed: int) -> None:
    expected = torch.Generator().manual_seed(seed).initial_seed()
    fl.manual_seed_all(seed)
    assert [fl.get_rng_state(device).tolist() for device in ALL] == [state(expected, 0)] * 4
    fl.manual_seed(seed)
    assert fl.initial_seed() == expected


def test_manual_seed_is_the_current_devices() -> None:
    fl.manual_seed_all(1)
    with fl.device(2):
        fl.manual_seed(9)
        assert fl.initial_seed() == 9
    assert [fl.get_rng_state(index).tolist() for index in range(4)] == [state(s, 0) for s in (1, 1, 9, 1)]


def test_unforeseen_seeds_differ() -> None:
    assert fl.seed() != fl.seed()
    chosen = fl.seed_all()
    assert [generator.initial_seed() for generator in fl.default_generators] == [chosen] * 4
    assert torch.Generator("fl:0").seed() != torch.Generator("fl:0").seed()


def test_states_of_all_devices() -> None:
    fl.manual_seed_all(4)
    fl.default_generators[2].set_offset(10)
    states = fl.get_rng_state_all()
    assert [s.tolist() for s in states] == [state(4, 0), state(4, 0), state(4, 10), state(4, 0)]
    expected = [torch.rand(10, device=device).cpu() for device in ALL]
    fl.set_rng_state_all(states)
    assert all(torch.equal(torch.rand(10, device=d).cpu(), e) for d, e in zip(ALL, expected, strict=True))


def test_fork_rng_restores_devices_and_the_cpu() -> None:
    torch.manual_seed(6)
    with torch.random.fork_rng(devices=range(4)):
        inside = [torch.rand(5), *(torch.rand(5, device=device) for device in ALL)]
        torch.manual_seed(1)
    after = [torch.rand(5), *(torch.rand(5, device=device) for device in ALL)]
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(inside, after, strict=True))


def test_checkpoint_draws_the_same_numbers_again() -> None:
    masks: list[torch.Tensor] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        mask = torch.rand(x.shape, device=x.device)
        masks.append(mask)
        return x * mask

    x = torch.ones(50, device="fl:1", requires_grad=True)
    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1])
    assert x.grad is not None
    assert torch.equal(x.grad, masks[0])


def test_threads_never_get_the_same_counters() -> None:
    generator = torch.Generator("fl:0").manual_seed(8)
    in_order = [torch.rand(16, device="fl:0", generator=generator).tolist() for _ in range(400)]
    used = generator.get_offset()
    drawn: list[torch.Tensor] = []

    def draw() -> None:
        drawn.extend([torch.rand(16, device="fl:0", generator=generator) for _ in range(100)])

    generator.manual_seed(8)
    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert generator.get_offset() == used
    assert sorted(x.tolist() for x in drawn) == sorted(in_order)


def test_seeding_looks_for_no_device() -> None:
    code = """
        import torch, torch_fl
        torch.manual_seed(12)
        torch.fl.manual_seed_all(13)
        print(torch.fl.is_initialized())
        print(torch.fl.get_rng_state("fl:3").tolist()[:2], torch.fl.is_initialized())
    """
    assert prints(code) == ["False", "[13, 0] False"]


def test_unseeded_processes_and_devices_differ() -> None:
    code = "import torch, torch_fl; print(*(torch.fl.get_rng_state(n).tolist() for n in range(3)), sep='\\n')"
    states = prints(code) + prints(code)
    assert len(set(states)) == 6


def test_tensors_of_the_cpu_are_not_drawn_by_a_devices_generator() -> None:
    generator = torch.Generator("fl:0")
    draws: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: torch.rand(2, generator=generator),
        lambda: torch.ones(2).normal_(generator=generator),
        lambda: torch.normal(torch.ones(2), 1.0, generator=generator),
        lambda: torch.ones(2).bernoulli_(generator=generator),
        lambda: torch.ones(2).exponential_(generator=generator),
        lambda: torch.randint(0, 4, (2,), generator=generator),
        lambda: torch.randperm(4, generator=generator),
        lambda: torch.multinomial(torch.ones(3), 2, generator=generator),
    )
    for draw in draws:
        with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'fl'"):
            draw()
    assert sorted(torch.randperm(4, device="fl:0", generator=generator).tolist()) == [0, 1, 2, 3]
