"""torch.autocast("fl"): which dtype each operator runs in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch_fl import fl

pytestmark = pytest.mark.usefixtures("devices")

DEVICE = "fl:1"


def tensor(*sizes: int, dtype: torch.dtype = torch.float32, device: str = DEVICE) -> torch.Tensor:
    """Values between 0.5 and 1.5, the same ones each time."""
    generator = torch.Generator().manual_seed(sum(sizes))
    return (torch.rand(sizes, generator=generator) + 0.5).to(dtype).to(device)


def half(*sizes: int) -> torch.Tensor:
    return tensor(*sizes, dtype=torch.float16)


# Operator, arguments: run in the autocast dtype.
LOWER: dict[str, Callable[[], tuple[Callable[..., torch.Tensor], tuple[Any, ...]]]] = {
    "mm": lambda: (torch.mm, (tensor(3, 4), tensor(4, 2))),
    "linear": lambda: (functional.linear, (tensor(3, 4), tensor(2, 4), tensor(2))),
    "no bias": lambda: (functional.linear, (tensor(3, 4), tensor(2, 4), None)),
    "matmul": lambda: (torch.matmul, (tensor(2, 3, 4), tensor(4))),
    "baddbmm": lambda: (torch.baddbmm, (tensor(2, 3, 5), tensor(2, 3, 4), tensor(2, 4, 5))),
    "conv2d": lambda: (functional.conv2d, (tensor(1, 2, 5, 5), tensor(3, 2, 3, 3), tensor(3))),
    "einsum": lambda: (torch.einsum, ("ij,jk->ik", [tensor(3, 4), tensor(4, 2)])),
    "multi_dot": lambda: (torch.linalg.multi_dot, ([tensor(3, 4), tensor(4, 2), tensor(2, 3)],)),
}

# Run in float32.
FLOAT: dict[str, Callable[[], tuple[Callable[..., torch.Tensor], tuple[Any, ...]]]] = {
    "exp": lambda: (torch.exp, (half(7),)),
    "pow number": lambda: (torch.pow, (half(7), 3)),
    "pow tensor": lambda: (torch.pow, (half(7), half(7))),
    "number pow": lambda: (torch.pow, (2.0, half(7))),
    "layer_norm": lambda: (functional.layer_norm, (half(3, 4), (4,), half(4), half(4))),
    "mse_loss": lambda: (functional.mse_loss, (half(7), half(7))),
    "sum": lambda: (torch.sum, (half(7),)),
    "sum over a dim": lambda: (torch.sum, (half(3, 4), 1)),
    "softmax": lambda: (torch.softmax, (half(3, 4), 1)),
    "cumsum": lambda: (torch.cumsum, (half(3, 4), 0)),
    "norm": lambda: (torch.ops.aten.norm.Scalar, (half(3, 4), 2)),
    "norm over a dim": lambda: (torch.ops.aten.norm.ScalarOpt_dim, (half(3, 4), 2, [1])),
}

# Run in the widest dtype of their arguments.
WIDEST: dict[str, Callable[[], tuple[Callable[..., torch.Tensor], tuple[Any, ...]]]] = {
    "addcmul": lambda: (torch.addcmul, (half(7), tensor(7), half(7))),
    "atan2": lambda: (torch.atan2, (tensor(7), half(7))),
    "index_put": lambda: (torch.index_put, (half(7), (torch.tensor([1, 3], device=DEVICE),), tensor(2))),
    "tensordot": lambda: (torch.tensordot, (half(3, 4), tensor(4, 2), 1)),
}


def converted(value: Any, dtype: torch.dtype) -> Any:
    """The arguments as one would cast them by hand."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(converted(each, dtype) for each in value)
    return value


def judge(
    case: tuple[Callable[..., torch.Tensor], tuple[Any, ...]], autocast: torch.dtype, runs_in: torch.dtype
) -> None:
    operator, arguments = case
    with torch.autocast("fl", dtype=autocast):
        result = operator(*arguments)
    expected = operator(*converted(arguments, runs_in))
    assert result.dtype == expected.dtype == runs_in
    assert torch.equal(result.cpu(), expected.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", LOWER.values(), ids=LOWER)
def test_large_operators_run_in_the_autocast_dtype(case: Callable[[], Any], dtype: torch.dtype) -> None:
    judge(case(), dtype, dtype)


@pytest.mark.parametrize("case", FLOAT.values(), ids=FLOAT)
def test_delicate_operators_run_in_float32(case: Callable[[], Any]) -> None:
    judge(case(), torch.float16, torch.float32)


@pytest.mark.parametrize("case", WIDEST.values(), ids=WIDEST)
def test_the_widest_argument_decides(case: Callable[[], Any]) -> None:
    judge(case(), torch.float16, torch.float32)


def test_arguments_that_have_the_dtype_already() -> None:
    judge((torch.mm, (half(3, 4), tensor(4, 2))), torch.float16, torch.float16)
    judge((torch.mm, (half(3, 4), half(4, 2))), torch.bfloat16, torch.bfloat16)


def test_arguments_of_one_dtype_keep_it() -> None:
    judge((torch.atan2, (half(7), half(7))), torch.float16, torch.float16)


def test_every_operator_that_cuda_casts_is_cast() -> None:
    def cast(key: str) -> set[str]:
        names = torch._C._dispatch_get_all_op_names()
        return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}

    assert cast("AutocastPrivateUse1") == {name for name in cast("AutocastCUDA") if "cudnn" not in name}


def test_a_dtype_that_was_asked_for_stays() -> None:
    with torch.autocast("fl"):
        assert torch.sum(half(7), dtype=torch.float16).dtype == torch.float16
        assert torch.softmax(half(7), 0, dtype=torch.float64).dtype == torch.float64


def test_float64_integers_and_other_devices_are_left_alone() -> None:
    with torch.autocast("fl"):
        assert torch.mm(tensor(2, 2, dtype=torch.float64), tensor(2, 2, dtype=torch.float64)).dtype == torch.float64
        assert torch.sum(torch.ones(3, dtype=torch.int32, device=DEVICE)).dtype == torch.int64
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32
        assert torch.norm(tensor(3, dtype=torch.float64)).dtype == torch.float64


def test_default_and_nesting() -> None:
    x = tensor(2, 2)
    assert torch.get_autocast_dtype("fl") == torch.float16
    assert torch.mm(x, x).dtype == torch.float32
    with torch.autocast("fl"):
        assert torch.is_autocast_enabled("fl")
        assert torch.mm(x, x).dtype == torch.float16
        with torch.autocast("fl", enabled=False):
            assert torch.mm(x, x).dtype == torch.float32
        with torch.autocast("fl", dtype=torch.bfloat16):
            assert torch.mm(x, x).dtype == torch.bfloat16
        assert torch.mm(x, x).dtype == torch.float16
    assert torch.mm(x, x).dtype == torch.float32


def test_unsupported_dtypes_disable_it_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="float16"), torch.autocast("fl", dtype=torch.float64):
        assert not torch.is_autocast_enabled("fl")
    assert fl.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert fl.is_bf16_supported()


def test_binary_cross_entropy_is_refused_with_advice() -> None:
    p, target = tensor(3) / 2, torch.ones(3, device=DEVICE)
    with torch.autocast("fl"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        functional.binary_cross_entropy(p, target)
    assert functional.binary_cross_entropy(p, target).dtype == torch.float32


def test_weights_are_cast_once() -> None:
    class Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten._to_copy.default
            return func(*args, **(kwargs or {}))

    layer, x = torch.nn.Linear(4, 4, bias=False).to(DEVICE), half(2, 4)
    casts: Any = Casts()  # type: ignore[no-untyped-call]
    with casts, torch.autocast("fl"):
        layer(layer(x))
    assert casts.count == 1


def test_training_in_mixed_precision() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("fl", init_scale=1024.0)
    x, y = tensor(16, 4), tensor(16, 1)
    losses: list[float] = []
    loss: Any
    for _ in range(10):
        with torch.autocast("fl"):
            loss = functional.mse_loss(model(x), y)
        assert loss.dtype == torch.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert [p.grad.dtype for p in model.parameters() if p.grad is not None] == [torch.float32] * 4
    assert losses[-1] < losses[0] / 2


def test_custom_functions_take_their_part() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="fl", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled("fl")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="fl")  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x: Any = half(3).requires_grad_()
    with torch.autocast("fl"):
        y: Any = Twice.apply(x)  # type: ignore[no-untyped-call]
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("fl", dtype=torch.bfloat16):
            torch.mm(tensor(2, 2), tensor(2, 2))
