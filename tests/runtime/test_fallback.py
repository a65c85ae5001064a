"""Operators that no kernel serves: other operators on the device, the CPU, or a clear error, and always visible."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_fl import _bridge as bridge
from torch_fl import fl, routing
from torch_fl.fallback import FallbackWarning

pytestmark = pytest.mark.usefixtures("devices")

PLACES = ("fl:0", "fl:2")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    bridge.forget_steps_down()
    yield
    bridge.set_on_fallback("ignore")


def counts(device: int = 0) -> dict[str, tuple[int, ...]]:
    """Operator outside the registry -> generic, cpu, errors, bytes moved."""
    return {op: rest for index, op, *rest in bridge.fallback_counters() if index == device}  # type: ignore[misc]


def check(function: Callable[..., Any], *arguments: Any, place: str = "fl:0") -> None:
    """The function's result, and its arguments afterwards, are what they are on the CPU."""
    from torch.utils._pytree import tree_flatten, tree_map

    def moved(to: str) -> Any:
        return tree_map(lambda a: a.clone().to(to) if isinstance(a, torch.Tensor) else a, arguments)

    on_cpu, on_device = moved("cpu"), moved(place)
    expected, actual = function(*on_cpu), function(*on_device)
    pairs = zip(tree_flatten((expected, on_cpu))[0], tree_flatten((actual, on_device))[0], strict=True)
    for wanted, got in pairs:
        if isinstance(wanted, torch.Tensor):
            assert str(got.device) == place
            assert (got.shape, got.dtype, got.stride()) == (wanted.shape, wanted.dtype, wanted.stride())
            torch.testing.assert_close(got.cpu(), wanted, equal_nan=True)
        else:
            assert wanted == got


def square(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)) + 4 * torch.eye(4)


@pytest.mark.parametrize("place", PLACES)
def test_results(place: str) -> None:
    x, y = square(), square(1)
    for function, arguments in (
        (torch.linalg.inv, [x]),
        (torch.linalg.svd, [x]),
        (torch.linalg.eigh, [x + x.T]),
        (torch.lgamma, [x]),
        (torch.sort, [x]),
        (torch.topk, [x, 2]),
        (torch.kthvalue, [x, 2]),
        (torch.histc, [x, 5]),
        (torch.bincount, [torch.tensor([1, 1, 3])]),
        (torch.nonzero, [x > 0]),
        (torch.masked_select, [x, x > 0]),
        (torch.unique, [torch.tensor([3, 1, 3])]),
        (torch.searchsorted, [torch.arange(5.0), x]),
        (torch.cdist, [x, y]),
        (torch.fft.fft, [x]),
        (torch.equal, [x, x]),
        (torch.frexp, [x]),
        (lambda t: t[t > 0], [x]),
        (lambda t, i: t[i], [x, torch.tensor([2, 0])]),
        (lambda t: torch.tril(t.t()), [x]),
        (torch.complex, [x, y]),
        (torch.nn.functional.max_pool2d, [torch.randn(1, 2, 6, 6), 2]),
        (torch.nn.functional.interpolate, [torch.randn(1, 2, 6, 6), 3]),
        (lambda t: torch.einsum("ij,kj->ik", t, t), [x]),
    ):
        check(function, *arguments, place=place)


@pytest.mark.parametrize("place", PLACES)
def test_arguments_that_are_written(place: str) -> None:
    x, y = square(), square(1)
    for function, arguments in (
        (lambda t: t.lgamma_(), [x]),
        (lambda t: t.t().lgamma_(), [x]),
        (lambda t: t[1:, ::2].lgamma_(), [x]),
        (lambda t, u: t.atan2_(u), [x, y]),
        (lambda t: t.index_fill_(0, torch.tensor([1, 2], device=t.device), 5.0), [x]),
        (lambda t, u: torch.lgamma(t, out=u), [x, y]),
        (lambda t, u: torch.lgamma(t, out=u.t()), [x, y]),
        (lambda t: torch.lgamma(t, out=t), [x]),
        (lambda t, u, v: torch.sort(t, out=(u, v)), [x, y, torch.zeros(4, 4, dtype=torch.int64)]),
        (lambda t: t.index_put_((torch.tensor([0, 3], device=t.device),), t[1].clone()), [x]),
        (lambda t: t.masked_scatter_(t > 4, t.t().contiguous()), [x]),
    ):
        check(function, *arguments, place=place)


@pytest.mark.parametrize("place", PLACES)
def test_outputs_are_resized(place: str) -> None:
    for shape in ((0,), (2,), (4, 4), (30,)):
        expected, actual = torch.empty(shape), torch.empty(shape, device=place)
        x = square()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.lgamma(x, out=expected) is expected
            assert torch.lgamma(x.to(place), out=actual) is actual
        assert (actual.shape, actual.stride()) == (expected.shape, expected.stride())
        torch.testing.assert_close(actual.cpu(), expected)
    torch.nonzero(square().to(place), out=(out := torch.empty(0, dtype=torch.int64, device=place)))
    assert out.shape == (16, 2)


def test_arguments_that_share_memory() -> None:
    def shifted(t: torch.Tensor) -> torch.Tensor:
        return t[2:].addcmul_(t[2:], t[2:])

    def in_between(t: torch.Tensor) -> torch.Tensor:
        return t[:4].copysign_(t[4:8])

    def lists(t: torch.Tensor) -> torch.Tensor:
        torch._foreach_lgamma_([t[:3], t[3:]])
        return t

    for function in (shifted, in_between, lists):
        check(function, torch.randn(12))
    twice = torch.ones(4, device="fl:0")
    torch._foreach_add_([twice, twice], 1.0)
    assert twice.tolist() == [3.0] * 4


def test_lists_and_optional_tensors() -> None:
    x, y = square(), square(1)
    check(lambda a, b: torch._foreach_lgamma([a, b]), x, y)
    check(torch.ops.aten.block_diag, [x, y])
    check(lambda a, b: torch.linalg.multi_dot([a, b, a]), x, y)
    check(lambda a: torch.nn.functional.instance_norm(a), torch.randn(2, 3, 5))
    check(lambda a: torch.bucketize(a, torch.arange(3.0, device=a.device)), x)
    check(lambda a: a[:, None, [0, 2]], x)
    check(lambda a: torch.histogram(a.cpu(), 4)[0].to(a.device), x)


def test_results_belong_to_the_arguments_device() -> None:
    fl.set_device(0)
    assert torch.lgamma(torch.ones(2, device="fl:1")).device == torch.device("fl:1")
    assert torch.tril_indices(2, 2, device="fl:3").device == torch.device("fl:3")
    with fl.device(1):
        assert torch.triu_indices(2, 2, device="fl").device == torch.device("fl:1")


def test_tensors_of_two_devices_raise() -> None:
    here, there = torch.ones(2, device="fl:0"), torch.ones(2, device="fl:1")
    for other in (there, torch.ones(2)):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*fl:0 and"):
            torch.atan2(here, other)
    check(lambda t: torch.copysign(t, torch.tensor(-1.0)), torch.ones(2))
    check(lambda t: t[torch.tensor([1, 0])], torch.ones(2))


def test_random_operators_follow_the_devices_generator() -> None:
    def draw() -> list[float]:
        return torch.empty(5, device="fl:0").geometric_(0.3).tolist()

    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = draw(), draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert first != second
    torch.manual_seed(5)
    assert (draw(), draw()) == (first, second)
    generator = torch.Generator("fl:0").manual_seed(5)
    third = torch.empty(5, device="fl:0").geometric_(0.3, generator=generator).tolist()
    generator.manual_seed(5)
    assert torch.empty(5, device="fl:0").geometric_(0.3, generator=generator).tolist() == third


def test_views_are_refused() -> None:
    library: Any = torch.library.Library("torch_fl_test", "DEF")  # type: ignore[no-untyped-call]
    library.define("first(Tensor(a) self) -> Tensor(a)")
    library.impl("first", lambda t: t[0], "CPU")
    assert torch.ops.torch_fl_test.first(torch.arange(3)).item() == 0
    with pytest.raises(NotImplementedError, match=r"torch_fl_test::first.*fl:0.*returns a view"):
        torch.ops.torch_fl_test.first(torch.arange(3, device="fl:0"))
    assert counts()["torch_fl_test::first"][2] == 1


def test_operators_without_a_cpu_kernel_are_refused() -> None:
    library: Any = torch.library.Library("torch_fl_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("nowhere(Tensor self) -> Tensor")
    with pytest.raises(NotImplementedError, match=r"torch_fl_test::nowhere\(f32\[2, 3\]\).*fl:0.*no CPU kernel"):
        torch.ops.torch_fl_test.nowhere(torch.zeros(2, 3, device="fl:0"))


def test_operators_of_other_libraries() -> None:
    @torch.library.custom_op("torch_fl_test::twice", mutates_args=("out",))
    def twice(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(2 * x)

    out = torch.zeros(3, device="fl:0")
    twice(torch.arange(3.0, device="fl:0"), out)
    assert out.tolist() == [0, 2, 4]


def test_gradients_flow_through() -> None:
    expected, actual = square().requires_grad_(), square().to("fl:0").requires_grad_()
    for x in (expected, actual):
        torch.linalg.inv(x).lgamma().sum().backward()
    assert actual.grad is not None
    assert expected.grad is not None
    torch.testing.assert_close(actual.grad.cpu(), expected.grad)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        actual.lgamma_()


def test_errors_are_torchs() -> None:
    for function in (
        lambda t: torch.linalg.inv(t[:, :2]),
        lambda t: torch.kthvalue(t, 9),
        lambda t: torch.atan2(t, t[:3]),
    ):
        with pytest.raises(RuntimeError) as expected:
            function(square())
        with pytest.raises(RuntimeError) as actual:
            function(square().to("fl:0"))
        assert str(actual.value) == str(expected.value)


def test_a_failed_argument_is_unchanged() -> None:
    x = torch.zeros(3, 3, device="fl:0")
    with pytest.raises(RuntimeError):
        torch.linalg.inv(x)
    assert x.eq(0).all()


def test_every_step_is_counted() -> None:
    x = square().to("fl:0")
    for _ in range(3):
        torch.lgamma(x)
    generic, cpu, errors, moved = counts()["aten::lgamma.out"]
    assert (generic, cpu, errors) == (0, 3, 0)
    assert moved == 3 * 2 * 64  # the argument there, the result back
    torch.lgamma(x.to("fl:1"))
    assert counts()["aten::lgamma.out"][1] == 3
    assert counts(1)["aten::lgamma.out"][1] == 1


def test_one_warning_per_operator() -> None:
    bridge.set_on_fallback("warn")
    x = square().to("fl:0")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.lgamma(x)
    text = str(seen[0].message)
    assert [warning.category for warning in seen] == [FallbackWarning]
    for part in ("aten::lgamma", "f32[4, 4]", "fl:0 (reference)", "CPU"):
        assert part in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.lgamma(x.to("fl:2"))
        for _ in range(3):  # each time: nobody has been told who goes on
            with pytest.raises(FallbackWarning):
                torch.digamma(x)
            with pytest.raises(FallbackWarning, match="composed of other operators"):
                torch.triu(x)
    assert "aten::digamma.out" not in counts() or counts()["aten::digamma.out"][1] == 0
    assert counts()["aten::triu.out"][0] == 3  # these were computed before the warning
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.digamma(x)
        torch.digamma(x)
    assert len(seen) == 1


def test_a_step_down_can_be_made_an_error() -> None:
    bridge.set_on_fallback("error")
    with pytest.raises(NotImplementedError, match=r"aten::lgamma.*f32\[4, 4\].*fl:0 \(reference\).*on_fallback"):
        torch.lgamma(square().to("fl:0"))
    with pytest.raises(ValueError, match="on_fallback"):
        bridge.set_on_fallback("shout")


def test_many_threads() -> None:
    import threading

    x = square()
    expected = torch.linalg.inv(x)
    wrong: list[int] = []

    def work(seed: int) -> None:
        with fl.stream(fl.Stream(seed % 4)):
            for _ in range(50):
                y = torch.linalg.inv(x.to(f"fl:{seed % 4}"))
                if not torch.allclose(y.cpu(), expected):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(counts(device)["aten::linalg_inv_ex.inverse"][1] for device in range(4)) == 400


@pytest.mark.parametrize("place", PLACES)
def test_gradients_of_convolutions(place: str) -> None:
    functional = torch.nn.functional
    cases: tuple[tuple[Callable[..., Any], dict[str, int], tuple[tuple[int, ...], ...]], ...] = (
        (functional.conv1d, {"stride": 2}, ((2, 3, 7), (4, 3, 2), (4,))),
        (functional.conv2d, {"padding": 1, "groups": 2}, ((2, 4, 5, 6), (6, 2, 3, 2), (6,))),
        (functional.conv3d, {}, ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2))),
        (functional.conv_transpose2d, {"stride": 2, "output_padding": 1}, ((2, 3, 4, 4), (3, 2, 3, 3), (2,))),
    )
    for convolve, options, sizes in cases:

        def gradients(*given: torch.Tensor, convolve: Any = convolve, options: Any = options) -> Any:
            wanted = [t.detach().requires_grad_() for t in given]
            y = convolve(*wanted, **options)
            first = torch.autograd.grad((y * y).sum(), wanted, create_graph=True)
            return [*first, *torch.autograd.grad(torch.stack([(t * t).sum() for t in first]).sum(), wanted)]

        seeded = torch.Generator().manual_seed(7)
        given = (torch.randn(size, generator=seeded, dtype=torch.float64) for size in sizes)
        check(gradients, *given, place=place)
    served = routing.counters()[place]["aten::convolution_backward"]
    assert served["native"] > 0
    assert served["cpu"] > 0, "three spatial dimensions are not the registry's"


def test_a_convolutional_model_learns() -> None:
    def losses(place: str) -> list[float]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            *(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
            *(torch.nn.Flatten(), torch.nn.Linear(12, 4)),
        )
        x = torch.randn(2, 2, 6, 6)
        model, x, target = model.to(place), x.to(place), torch.tensor([1, 3]).to(place)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses("cpu")
    assert expected[-1] < expected[0]
    assert losses("fl:0") == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("place", PLACES)
def test_expanded_tensors_that_torch_writes_all_the_same(place: str) -> None:
    row = torch.tensor([0])
    for function in (
        lambda t, i: t.expand(3, 4).index_fill_(0, i, 1.0),
        lambda t, i: t.expand(3, 4).index_put_((i,), torch.ones(4, device=t.device)),
        lambda t, i: t.expand(3, 4).masked_fill_(torch.eye(3, 4, device=t.device) > 0, 1.0),
        lambda t, i: t[:, None].expand(3, 2, 1).index_fill_(0, i, 1.0),
    ):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            check(function, torch.zeros(3, 1), row, place=place)
        about = [str(each.message) for each in given if "expanded tensors is deprecated" in str(each.message)]
        assert len(about) == 2, "one for the CPU, one for the device"
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.zeros(3, 1, device=place).expand(3, 4).addcmul_(row.to(place), row.to(place))
