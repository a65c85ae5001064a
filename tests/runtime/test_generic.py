"""The generic tier: operators composed of others on the device, and when it leaves one to the CPU as a whole."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch_fl import _bridge as bridge
from torch_fl import counters, routing
from torch_fl.fallback import FallbackWarning

from .processes import prints

pytestmark = pytest.mark.usefixtures("devices")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    routing.reset_counters()
    yield
    bridge.set_on_fallback("ignore")


@contextlib.contextmanager
def disabled(*operators: str) -> Iterator[None]:
    """Without the devices' kernels for these."""
    for operator in operators:
        routing.disable(operator)
    yield
    for operator in operators:
        routing.disable(operator, disabled=False)


def steps(tier: str) -> dict[str, int]:
    """Operator -> steps down to the tier on fl:0."""
    return {name: values[tier] for name, values in counters().get("fl:0", {}).items() if values[tier]}


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """The function gives what it gives on the CPU, without leaving the device."""
    from torch.utils._pytree import tree_flatten, tree_map

    expected = function(*tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, arguments))
    actual = function(*tree_map(lambda a: a.to("fl:0") if isinstance(a, torch.Tensor) else a, arguments))
    for wanted, got in zip(tree_flatten(expected)[0], tree_flatten(actual)[0], strict=True):
        assert (got.device.type, got.dtype, got.shape) == ("fl", wanted.dtype, wanted.shape)
        torch.testing.assert_close(got.cpu(), wanted, equal_nan=True)
    assert steps("cpu") == {}
    assert steps("generic") != {}


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def test_torchs_decompositions() -> None:
    x, y = numbers(4, 5), numbers(5, 4)
    for function, arguments in (
        (torch.triu, [x]),
        (lambda t: t.triu_(1), [x]),
        (lambda t: torch.triu(t, out=torch.empty(0, device=t.device)), [x]),
        (torch.nn.functional.leaky_relu, [x]),
        (torch.nn.functional.hardswish, [x]),
        (torch.nn.functional.mse_loss, [x, y.t()]),
        (torch.dot, [x.flatten(), y.flatten()]),
        (torch.std, [x]),
        (torch.linalg.vector_norm, [x]),
        (torch.baddbmm, [numbers(2, 3, 3), numbers(2, 3, 4), numbers(2, 4, 3)]),
        (lambda t: t.masked_fill(t > 0, 7.0), [x]),
    ):
        check(function, *arguments)
        routing.reset_counters()


def test_statistics_of_batch_norm_are_updated() -> None:
    x = numbers(4, 3, 5)
    mean, deviation = torch.zeros(3), torch.ones(3)
    of_device = mean.to("fl:0"), deviation.to("fl:0")
    expected = torch.nn.functional.batch_norm(x, mean, deviation, training=True)
    actual = torch.nn.functional.batch_norm(x.to("fl:0"), *of_device, training=True)
    for got, wanted in ((actual, expected), (of_device[0], mean), (of_device[1], deviation)):
        torch.testing.assert_close(got.cpu(), wanted)
    assert steps("cpu") == {}


@pytest.mark.parametrize("weighted", [True, False])
def test_batch_norm_with_update(weighted: bool) -> None:
    weight = numbers(3) if weighted else None

    def run(device: str) -> tuple[torch.Tensor, ...]:
        statistics = torch.zeros(3, device=device), torch.ones(3, device=device)
        given = numbers(4, 3, 5).to(device), None if weight is None else weight.to(device), None
        return *torch.ops.aten._batch_norm_with_update(*given, *statistics, 0.25, 1e-5), *statistics

    for got, wanted in zip(run("fl:0"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)
    assert steps("cpu") == {}


def test_own_decompositions() -> None:
    x = numbers(4, 5, 6)
    x[0, 3, 2] = x[2, 1, 1] = 9.0
    for function, arguments in (
        (torch.max, [x]),
        (torch.min, [x]),
        (torch.max, [x > 0, 1]),
        (torch.max, [x, 1]),
        (torch.min, [x, 2, True]),
        (torch.max, [torch.tensor([1.0, float("nan"), 3.0])]),
        (torch.max, [torch.tensor([3, -7, 3]), 0]),
        (torch.argmin, [x]),
        (torch.argmin, [x, 0]),
        (torch.addbmm, [numbers(3, 5), numbers(4, 3, 2), numbers(4, 2, 5)]),
        (torch.mv, [numbers(4, 5), numbers(5)]),
        (torch.mv, [torch.arange(12).view(3, 4), torch.arange(4)]),
        (torch.mv, [numbers(4, 0), numbers(0)]),
        (lambda a, b: a.view(5, 4).t() @ b, [numbers(4, 5), numbers(5)]),
        (lambda s, a, b: torch.addmv(s, a, b, beta=2, alpha=0.5), [numbers(1), numbers(4, 5), numbers(5)]),
        (lambda s, a, b: torch.addmv(s, a, b, beta=0), [torch.full((4,), float("nan")), numbers(4, 5), numbers(5)]),
        (lambda s, a, b: s.addmv_(a, b), [numbers(4), numbers(4, 5), numbers(5)]),
        (lambda s, a, b: torch.addbmm(s, a, b, beta=2, alpha=0.5), [numbers(5), numbers(4, 3, 2), numbers(4, 2, 5)]),
    ):
        check(function, *arguments)
        routing.reset_counters()


def squares(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(t * t).sum() for t in tensors]).sum()


def recurrent(layer: Callable[..., torch.nn.Module], again: bool, **options: Any) -> Callable[[torch.Tensor], Any]:
    """What two layers that read both ways give for a sequence, and all gradients; again: those of the gradients."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = layer(x.shape[2], 4, 2, bidirectional=True, **options).to(x)
        x = x.detach().requires_grad_()
        output, state = model(x)
        states = state if isinstance(state, tuple) else (state,)
        wanted = [x, *model.parameters()]
        found = torch.autograd.grad(squares((output, *states)), wanted, create_graph=again)
        if again:
            found = torch.autograd.grad(squares(found), wanted)
        return [output.detach(), *(t.detach() for t in states), *found]

    return run


@pytest.mark.parametrize("again", [False, True], ids=["gradients", "second gradients"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers(layer: Callable[..., torch.nn.Module], bias: bool, again: bool) -> None:
    check(recurrent(layer, again, bias=bias), numbers(5, 2, 3).double())  # singles add up to more than a rounding


def test_a_projected_lstm() -> None:
    check(recurrent(torch.nn.LSTM, again=False, proj_size=2), numbers(5, 2, 3))


def test_a_recurrent_cell_whose_hidden_state_nobody_asks_for() -> None:
    def of_cell_state(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        cell = torch.nn.LSTMCell(3, 4).to(x.device)
        (found,) = torch.autograd.grad(cell(x)[1].sum(), cell.weight_hh)
        return found

    check(of_cell_state, numbers(2, 3))


def test_equal_leaves_both_tensors_on_the_device() -> None:
    x = numbers(4, 5)
    changed = x.clone()
    changed[3, 4] = 0
    for other in (x.clone(), changed, x.t(), x[:, :4], x.view(-1), torch.full((4, 5), float("nan"))):
        assert torch.equal(x.to("fl:0"), other.to("fl:0")) is torch.equal(x, other)
    assert torch.equal(x[:0].to("fl:0"), x[:0].to("fl:0"))
    assert (steps("cpu"), steps("generic")["aten::equal"]) == ({}, 7)


def test_equal_of_two_devices_raises_as_torch_does() -> None:
    number = torch.ones((), device="fl:0")
    for other in (torch.ones(()), torch.ones(2), torch.ones((), device="fl:1"), torch.ones(2, device="fl:1")):
        for a, b in ((number, other), (other, number)):
            with pytest.raises(RuntimeError, match=f"on different devices. Got: {a.device} and {b.device}"):
                torch.equal(a, b)


INDICES: tuple[Callable[[torch.device], tuple[Any, ...]], ...] = (
    lambda d: (torch.tensor([2, 0, -1, 2], device=d),),
    lambda d: (torch.tensor([[2, 0], [1, 1]], device=d),),
    lambda d: (slice(None), torch.tensor([4, 0, 4], device=d)),
    lambda d: (slice(None), torch.tensor([[4], [1]], device=d), torch.tensor([0, -6, 5], device=d)),
    lambda d: (torch.tensor([1, 3], device=d), slice(None), torch.tensor([[0], [5]], device=d)),
    lambda d: (torch.tensor([1, 3], device=d), torch.tensor([0, 2], device=d), torch.tensor([3, 3], device=d)),
    lambda d: (torch.tensor([1, 3], dtype=torch.int32, device=d), slice(1, 4)),
    lambda d: (torch.tensor([1, 3]), slice(1, 4, 2)),
    lambda d: (torch.tensor([], dtype=torch.int64, device=d),),
    lambda d: (torch.tensor([2], device=d), slice(None), torch.tensor(1, device=d)),
)


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("transposed", [False, True])
def test_indexing(transposed: bool, indices: Callable[[torch.device], tuple[Any, ...]]) -> None:
    x = numbers(6, 5, 4).permute(2, 1, 0) if transposed else numbers(4, 5, 6)
    check(lambda t: t[indices(t.device)], x)

    def accumulate(t: torch.Tensor) -> torch.Tensor:
        wanted = tuple(i for i in indices(t.device) if isinstance(i, torch.Tensor))
        if len(wanted) != len(indices(t.device)):
            return t.amax()
        return t.index_put(wanted, torch.ones((), device=t.device), accumulate=True)

    expected, actual = accumulate(x), accumulate(x.to("fl:0"))
    torch.testing.assert_close(actual.cpu(), expected)


def test_gradients_of_indexing_stay_on_the_device() -> None:
    def gradient(t: torch.Tensor) -> torch.Tensor:
        leaf = t.clone().requires_grad_()
        loss = (leaf[:, torch.tensor([4, 0, 4], device=t.device)] ** 2).sum()
        return torch.autograd.grad(loss, leaf)[0]

    check(gradient, numbers(4, 5, 6))


def test_indices_out_of_range_raise_what_torch_raises() -> None:
    x = numbers(4, 5)
    for index in ((torch.tensor([4]),), (slice(None), torch.tensor([0, -6]))):
        with pytest.raises(IndexError) as expected:
            x[index]
        with pytest.raises(IndexError) as actual:
            x.to("fl:0")[index]
        assert str(actual.value) == str(expected.value)


def test_random_decompositions() -> None:
    p = torch.full((20000,), 0.3, device="fl:0")
    torch.manual_seed(7)
    draws = [torch.bernoulli(p), torch.empty_like(p).bernoulli_(0.3), torch.empty_like(p).bernoulli_(p)]
    dropped = torch.nn.functional.dropout(torch.ones_like(p), 0.7)
    for draw in draws:
        assert set(draw.tolist()) == {0.0, 1.0}
        assert abs(draw.mean().item() - 0.3) < 0.02
    assert not torch.equal(draws[0], draws[1])
    assert abs(dropped.mean().item() - 1) < 0.1
    torch.manual_seed(7)
    assert torch.equal(torch.bernoulli(p), draws[0])
    assert "aten::bernoulli_.float" not in steps("cpu")
    with pytest.raises(RuntimeError, match=r"bernoulli_ expects p to be in \[0, 1\]"):
        torch.empty(3, device="fl:0").bernoulli_(1.5)


def test_the_whole_operator_goes_to_the_cpu_where_a_part_would() -> None:
    x = numbers(4, 5).to("fl:0")
    torch.nn.functional.mish(x)  # its decomposition needs log1p
    assert steps("generic") == {}
    assert list(steps("cpu")) == ["aten::mish.out"]


def test_a_change_in_place_is_made_once() -> None:
    x = numbers(4, 5)
    on_device = x.to("fl:0")
    torch.testing.assert_close(torch.nn.functional.mish(on_device, inplace=True).cpu(), torch.nn.functional.mish(x))
    assert steps("cpu") == {"aten::mish.out": 1}


def test_disabled_kernels_step_down() -> None:
    x = numbers(4, 5)
    with disabled("aten::silu"):
        check(torch.nn.functional.silu, x)
        assert "aten::silu" in steps("generic")
        routing.reset_counters()
        with disabled("aten::sigmoid", "aten::exp"):
            actual = torch.nn.functional.silu(x.to("fl:0"))
        torch.testing.assert_close(actual.cpu(), torch.nn.functional.silu(x))
        assert (steps("generic"), steps("cpu")) == ({}, {"aten::silu": 1})


def test_convolution_has_no_composite_form_that_serves() -> None:
    x, w = numbers(1, 2, 6), numbers(3, 2, 3)
    with disabled("aten::convolution"):
        actual = torch.nn.functional.conv1d(x.to("fl:0"), w.to("fl:0"))
    torch.testing.assert_close(actual.cpu(), torch.nn.functional.conv1d(x, w))
    assert steps("cpu") == {"aten::convolution": 1}


def test_each_tier_can_be_switched_off() -> None:
    x = numbers(4, 5)
    on_device = x.to("fl:0")
    with routing.wishes(generic=False):
        torch.testing.assert_close(torch.triu(on_device).cpu(), x.triu())
        assert (steps("generic"), steps("cpu")) == ({}, {"aten::triu.out": 1})
    with routing.wishes(cpu=False):
        torch.testing.assert_close(torch.triu(on_device).cpu(), x.triu())
        with pytest.raises(NotImplementedError) as refusal:
            torch.lgamma(on_device)
        assert "the CPU tier is switched off" in str(refusal.value)
    with routing.wishes(generic=False, cpu=False):
        with pytest.raises(NotImplementedError) as refusal:
            torch.triu(on_device)
        for part in (
            "aten::triu",
            "f32[4, 5]",
            "fl:0 (reference)",
            "generic tier is switched off",
            "CPU tier is switched",
        ):
            assert part in str(refusal.value)
        assert counters()["fl:0"]["aten::triu.out"]["errors"] == 1
        assert torch.equal((on_device + 1).cpu(), x + 1)
        with pytest.raises(NotImplementedError, match="the CPU tier is switched off"):
            on_device.to(torch.complex64)
    with routing.wishes(native=False):
        torch.testing.assert_close((on_device + on_device).cpu(), x + x)
        assert steps("cpu")["aten::add.Tensor"] == 1


def test_one_warning_per_tier() -> None:
    bridge.set_on_fallback("warn")
    x = numbers(4, 5).to("fl:0")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.triu(x)
        torch.triu(x)
    assert [warning.category for warning in seen] == [FallbackWarning]
    assert "is composed of other operators" in str(seen[0].message)


def test_users_modes_do_not_see_decompositions() -> None:
    from torch.overrides import TorchFunctionMode

    class Spy(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = numbers(4, 5).to("fl:0")
    seen: list[Any] = []
    with Spy():
        torch.triu(x)
    assert seen == [torch.triu]


def test_an_interrupted_look_up_leaves_nothing_half_known() -> None:
    code = """
        import torch._decomp
        import torch_fl.decompositions as decompositions

        def interrupted():
            raise KeyboardInterrupt

        whole = torch._decomp.core_aten_decompositions
        for torch._decomp.core_aten_decompositions in (interrupted, whole):
            try:
                names = ("aten::equal", "aten::triu", "aten::grid_sampler_2d", "aten::uniform_")
                print([decompositions.find(name, "") is not None for name in names])
            except KeyboardInterrupt:
                print("interrupted")
    """
    assert prints(code) == ["interrupted", "[True, True, False, False]"]
