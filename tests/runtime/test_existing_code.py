"""Pieces of ordinary training code: only the device's name is another, and the numbers are those of the CPU."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch_fl import fl

pytestmark = pytest.mark.usefixtures("devices")

FL = "fl:0"


def small_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(dtype)


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def close(actual: Any, expected: Any, steps: int = 1) -> None:
    """Equal but for rounding: torch's relative tolerance of the dtype, for the largest element, times the steps.

    Sums round by their largest terms, whatever is left of them.
    """
    if isinstance(expected, (tuple, list)):
        for got, wanted in zip(actual, expected, strict=True):
            close(got, wanted, steps)
        return
    rtol, _ = torch.testing._comparison.default_tolerances(expected.dtype)
    atol = rtol * steps * expected.detach().abs().max().item()
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=0, atol=atol)


def on_both(run: Callable[[str], Any], steps: int = 1) -> None:
    close(run(FL), run("cpu"), steps)


def parameters(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


# ---- Data ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"pin_memory_device": "fl"}, {"persistent_workers": True}], ids=str)
@pytest.mark.filterwarnings("ignore:.*pin_memory_device")
def test_workers_that_fork_feed_the_device(options: dict[str, Any]) -> None:
    data = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork", pin_memory=True, **options)
    for _ in range(2):
        total, numbers = torch.zeros(2, device=FL), []
        for x, number in loader:
            assert x.is_pinned()
            assert number.is_pinned()
            total += x.to(FL, non_blocking=True).sum(0)
            numbers += number.to(FL, non_blocking=True).tolist()
        assert (total.tolist(), numbers) == ([132.0, 144.0], list(range(12)))


# ---- Mixed precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_and_a_scaler_train(dtype: torch.dtype) -> None:
    def train(device: str, scaled: bool) -> tuple[list[Tensor], float]:
        model = small_model().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=64.0, growth_interval=2, enabled=scaled)
        x = inputs(5, 6).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(torch.device(device).type, dtype=dtype):
                out = model(x)
                assert out.dtype == dtype
                loss = out.float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return parameters(model), scaler.get_scale()

    actual, scale = train(FL, scaled=True)
    expected, _ = train("cpu", scaled=False)
    assert scale == 128.0  # grown once, after two good steps
    # What half precision loses, once in each of three steps of 0.1, in parameters of about 1.
    torch.testing.assert_close([p.cpu() for p in actual], expected, rtol=0, atol=3 * torch.finfo(dtype).eps)


def test_a_step_with_infinite_gradients_is_skipped() -> None:
    model = small_model().to(FL)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("fl", init_scale=8.0)
    before = parameters(model)
    for factor, scale in ((float("inf"), 4.0), (float("nan"), 2.0)):
        optimizer.zero_grad()
        scaler.scale(model(inputs(5, 6).to(FL)).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
    assert all(map(torch.equal, parameters(model), before))
    optimizer.zero_grad()
    scaler.scale(model(inputs(5, 6).to(FL)).sum()).backward()
    scaler.unscale_(optimizer)
    close(gradients(model), [g * 1.0 for g in _plain_gradients()], steps=4)
    scaler.step(optimizer)
    assert not any(map(torch.equal, parameters(model), before))


def _plain_gradients() -> list[Tensor]:
    model = small_model()
    model(inputs(5, 6)).sum().backward()
    return gradients(model)


# ---- Gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_computes_the_same_again(reentrant: bool) -> None:
    model = nn.Sequential(small_model(), nn.Dropout(0.5), nn.Linear(3, 2)).to(FL)

    def run(forward: Callable[[Tensor], Tensor]) -> list[Tensor]:
        model.zero_grad()
        x = inputs(5, 6).to(FL).requires_grad_()
        torch.manual_seed(3)  # dropout draws the same mask when it is computed again
        forward(x).square().sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return [x.grad, *(g.clone() for g in gradients(model))]

    expected = run(model)
    actual = run(lambda x: checkpoint(model, x, use_reentrant=reentrant))
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("foreach", [True, False])
def test_clipping(foreach: bool) -> None:
    def clipped(device: str) -> list[Tensor]:
        model = small_model().to(device)
        model(inputs(5, 6).to(device)).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
        kept = [g.clone() for g in gradients(model)]
        nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
        return [norm, *kept, *gradients(model)]

    on_both(clipped, steps=4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_modules_give_what_eager_ones_give(dynamic: bool) -> None:
    torch._dynamo.reset()
    model = small_model().to(FL)
    compiled = torch.compile(model, backend="aot_eager", dynamic=dynamic)

    def run(forward: Callable[[Tensor], Tensor]) -> list[Tensor]:
        model.zero_grad()
        x = inputs(5, 6).to(FL).requires_grad_()
        y = forward(x)
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return [y.detach().cpu(), x.grad.cpu(), *(g.cpu().clone() for g in gradients(model))]

    close(run(compiled), run(model))


# ---- Recurrent layers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"proj_size": 2}),
        (nn.LSTM, {"bias": False, "bidirectional": True}),
        (nn.GRU, {"bidirectional": True}),
        (nn.GRU, {"bias": False}),
        (nn.RNN, {"nonlinearity": "tanh"}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(value) or "plain",
)
def test_recurrent_layers(layer: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = layer(4, 5, num_layers=2, **options).to(device, dtype)
        x = inputs(6, 3, 4, dtype=dtype).to(device).requires_grad_()
        y, state = module(x)
        (y.square().sum() + sum(s.sum() for s in (state if isinstance(state, tuple) else (state,)))).backward()
        assert x.grad is not None
        return [y, x.grad, *gradients(module)]

    on_both(run, steps=12)  # of time, twice


def test_recurrent_layers_take_packed_sequences() -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = nn.GRU(4, 5).to(device)
        packed: Any = nn.utils.rnn.pack_sequence([inputs(3, 4), inputs(2, 4), inputs(1, 4)])
        y, lengths = nn.utils.rnn.pad_packed_sequence(module(packed.to(device))[0])
        assert lengths.tolist() == [3, 2, 1]
        y.sum().backward()  # type: ignore[no-untyped-call]
        return [y, *gradients(module)]

    on_both(run, steps=3)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_gradients_of_gradients_of_cells(cell: Any) -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(0)
        module = cell(4, 3).to(device, torch.float64)
        x = inputs(2, 4, dtype=torch.float64).to(device).requires_grad_()
        out = module(x)
        (first,) = torch.autograd.grad(
            sum(o.sum() for o in (out if isinstance(out, tuple) else (out,))), x, create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), x)[0]

    on_both(run, steps=4)


# ---- Optimizers ----------------------------------------------------------------------------------------------------

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {}),
    "RMSprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
}


def stepped(device: str, optimizer: str, schedule: Any = None, **options: Any) -> list[Tensor]:
    """The parameters after three steps."""
    kind, more = OPTIMIZERS[optimizer]
    model = small_model().to(device)
    made = kind(model.parameters(), lr=0.01, **more, **options)
    scheduler = schedule(made) if schedule else None
    for _ in range(3):
        made.zero_grad()
        model(inputs(5, 6).to(device)).square().mean().backward()
        made.step()
        if scheduler is not None:
            scheduler.step()
    return parameters(model)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer: str, foreach: bool) -> None:
    # Adam and its like divide a gradient by its own size: where that is near 0, its rounding is the whole result.
    on_both(lambda device: stepped(device, optimizer, foreach=foreach), steps=10)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_fused_optimizers(optimizer: str) -> None:
    on_both(lambda device: stepped(device, optimizer, fused=True), steps=10)


def test_an_optimizer_that_has_no_fused_form_refuses() -> None:
    with pytest.raises(TypeError, match="fused"):
        stepped(FL, "RMSprop", fused=True)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 3),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=4),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    ],
    ids=["StepLR", "CosineAnnealingLR", "OneCycleLR", "LambdaLR"],
)
def test_schedulers(schedule: Any) -> None:
    on_both(lambda device: stepped(device, "SGD", schedule), steps=10)


# ---- Copies of models ----------------------------------------------------------------------------------------------


def test_moving_averages_and_deep_copies_stay_on_the_device() -> None:
    def averaged(device: str) -> list[Tensor]:
        model = small_model().to(device)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))  # type: ignore[no-untyped-call]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(inputs(5, 6).to(device)).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
        clone = copy.deepcopy(average)
        assert all(p.device == torch.device(device) for p in clone.parameters())
        assert {p.data_ptr() for p in clone.parameters()}.isdisjoint(p.data_ptr() for p in average.parameters())
        return parameters(clone)

    on_both(averaged, steps=4)


def test_training_goes_on_from_a_checkpoint_on_another_device() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(inputs(5, 6).to(device)).square().mean().backward()
            optimizer.step()

    model = small_model().to(FL)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    train(model, optimizer, FL)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, FL)
    for device in ("cpu", "fl:1"):
        file.seek(0)
        state = torch.load(file, map_location=device)
        other = small_model().to(device)
        other.load_state_dict(state["model"])
        resumed = torch.optim.Adam(other.parameters(), 0.01)
        resumed.load_state_dict(state["optimizer"])
        train(other, resumed, device)
        close([p.cpu() for p in parameters(other)], [p.cpu() for p in parameters(model)], steps=10)


# ---- Several devices -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL")
@pytest.mark.parametrize("indices", [[0], [0, 1], [0, 1, 2, 3]], ids=str)
def test_data_parallel_is_the_module_itself(indices: list[int]) -> None:
    def run(device: str, wrap: Callable[[nn.Module], nn.Module]) -> list[Tensor]:
        module = small_model().to(device)
        x = inputs(10, 6).to(device).requires_grad_()
        y = wrap(module)(x)
        assert y.device == torch.device(device)
        y.square().sum().backward()
        assert x.grad is not None
        return [y, x.grad, *gradients(module)]

    expected = run("cpu", lambda module: module)
    close(run(FL, lambda module: nn.DataParallel(module, device_ids=indices)), expected, steps=4)


def test_what_data_parallel_moves_can_be_moved_by_hand() -> None:
    comm: Any = nn.parallel.comm
    x = torch.arange(6.0, device=FL)
    parts = comm.scatter(x, [0, 3], [2, 4])
    assert [(part.device.index, part.tolist()) for part in parts] == [(0, [0, 1]), (3, [2, 3, 4, 5])]
    assert torch.equal(comm.gather(parts, destination=1), x.to("fl:1"))
    assert comm.gather(parts, destination="cpu").tolist() == x.tolist()
    assert [copy.device.index for copy in comm.broadcast(x, [0, 2])] == [0, 2]
    targets = tuple(torch.empty(n, device=f"fl:{n - 1}") for n in (2, 4))
    comm.scatter(x, out=targets)
    assert [target.tolist() for target in targets] == [[0, 1], [2, 3, 4, 5]]


# ---- Exchange with other libraries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["fl:0", "fl:2"])
def test_memory_that_the_host_cannot_use_is_not_handed_to_it(device: str) -> None:
    assert not fl.get_device_properties(device).host_accessible
    dlpack: Any = torch.utils.dlpack
    x = torch.arange(6.0, device=device)[2:]
    with pytest.raises(TypeError, match=rf"can't convert {device} device type tensor to numpy. Use Tensor.cpu()"):
        x.numpy()
    with pytest.raises(BufferError, match=rf"the host cannot reach the memory of {device}, .* a copy, \.cpu\(\)"):
        dlpack.from_dlpack(x)
    assert x.numpy(force=True).tolist() == [2, 3, 4, 5]
    # A capsule leads back to the same memory of the same device.
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    y[0] = -1
    assert (y.device, x.tolist()) == (torch.device(device), [-1, 3, 4, 5])


def test_what_does_not_fit_is_refused_before_it_moves() -> None:
    comm: Any = nn.parallel.comm
    x = torch.arange(6.0, device=FL)
    with pytest.raises(RuntimeError, match="3 chunk_sizes for 2 devices"):
        comm.scatter(x, [0, 3], [1, 2, 3])
    target = torch.zeros(4, 6, device=FL)
    with pytest.raises(RuntimeError, match=r"an output has shape \[4, 6\], where \[6\] is needed"):
        comm.broadcast(x, out=[target])
    with pytest.raises(RuntimeError, match=r"an output has shape \[4, 6\], where \[12\] is needed"):
        comm.gather([x, x], out=target)
    assert not target.any()
