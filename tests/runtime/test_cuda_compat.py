"""torch_fl.cuda_compat: code written for CUDA runs on fl devices, and afterwards torch is what it was."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._device
import torch_fl
from torch import nn
from torch.utils.checkpoint import checkpoint

from .processes import prints

pytestmark = pytest.mark.usefixtures("devices")


@pytest.fixture
def compat() -> Iterator[None]:
    with torch_fl.cuda_compat():
        yield


# ---- What stays behind: nothing ------------------------------------------------------------------------------------

OWNERS = (
    torch,
    torch.cuda,
    torch.cuda.memory,
    torch.cuda.random,
    torch.cuda.streams,
    torch.cuda.amp,
    torch.amp,
    torch.amp.autocast_mode,
    torch.amp.autocast_mode.autocast,
    torch.amp.grad_scaler.GradScaler,
    torch.autograd,
    torch.autograd.graph,
    torch.serialization,
    torch.storage._StorageBase,
    torch.utils._device.DeviceContext,
    torch.Tensor,
    nn.Module,
    threading.Thread,
)


def everything() -> dict[tuple[str, str], object]:
    """Every attribute of all of these, and what lists of theirs hold."""
    seen: dict[tuple[str, str], object] = {
        (owner.__name__, name): value for owner in OWNERS for name, value in vars(owner).items()
    }
    seen |= {("packages", str(i)): entry for i, entry in enumerate(torch.serialization._package_registry)}
    seen["modes", ""] = torch.overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
    return seen


def test_nothing_stays_behind() -> None:
    before = everything()

    def unchanged() -> bool:
        now = everything()
        return now.keys() == before.keys() and all(now[name] is before[name] for name in before)

    with torch_fl.cuda_compat():
        changed = {name for name, value in everything().items() if value is not before.get(name)}
        assert {("torch.cuda", "is_available"), ("torch", "Generator"), ("autocast", "__init__")} <= changed
        with torch_fl.cuda_compat():
            assert torch.cuda.is_available()
        assert torch.cuda.is_available()
        assert torch.zeros(1, device="cuda").device == torch.device("fl:0")
    assert unchanged()
    with pytest.raises(ZeroDivisionError), torch_fl.cuda_compat(), torch_fl.cuda_compat():
        _ = 1 / 0
    assert unchanged()


def test_the_last_thread_that_leaves_clears_up() -> None:
    before = everything()
    inside, leave = threading.Barrier(5), threading.Barrier(5)
    found = []

    def work(number: int) -> None:
        for _ in range(20):
            with torch_fl.cuda_compat():
                torch.ones(1, device="cuda")
        with torch_fl.cuda_compat():
            inside.wait()
            found.append(torch.ones(1, device=f"cuda:{number}").device.index)
            leave.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert torch.cuda.is_available()
    leave.wait()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    now = everything()
    assert all(now[name] is value for name, value in before.items())
    assert not torch.cuda.is_available()


def test_a_thread_that_outlives_the_block_sees_torch_as_it_is() -> None:
    left, seen = threading.Event(), []

    def work() -> None:
        seen.append(torch.ones(1, device="cuda").device.type)
        left.wait()
        try:
            torch.ones(1, device="cuda")
        except (AssertionError, RuntimeError) as error:
            seen.append(str(error))

    with torch_fl.cuda_compat():
        thread = threading.Thread(target=work)
        thread.start()
        while not seen and thread.is_alive():
            thread.join(0.01)
    left.set()
    thread.join()
    assert seen[0] == "fl"
    assert "CUDA" in seen[1]
    assert "run" not in vars(thread)


def test_a_thread_that_could_not_start_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    refused = [RuntimeError("can't start new thread")]

    def start(thread: threading.Thread, start: Callable[[threading.Thread], None] = threading.Thread.start) -> None:
        if refused:
            raise refused.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with torch_fl.cuda_compat():
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="cuda").device.type))
        with pytest.raises(RuntimeError, match="can't start"):
            thread.start()
        thread.start()
        thread.join()
    assert seen == ["fl"]


# ---- Devices -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("compat")
def test_cuda_devices_are_fl_devices() -> None:
    x = torch.ones(2)
    second = torch.device("cuda", 1)
    for made, expected in (
        (x.cuda(), 0),
        (x.cuda(1), 1),
        (x.cuda("cuda:1", non_blocking=True), 1),
        (x.cuda(device=second), 1),
        (x.to("cuda"), 0),
        (x.to("cuda:1", torch.float16), 1),
        (x.to(second), 1),
        (x.to(device=second, dtype=torch.int64), 1),
        (x.to(1), 1),
        (x.type("torch.cuda.HalfTensor"), 0),
        (torch.zeros(2, device="cuda"), 0),
        (torch.tensor([1], device=second), 1),
        (torch.as_tensor([1], device="cuda"), 0),
        (torch.arange(3, device="cuda:1"), 1),
        (torch.empty_like(x, device="cuda:1"), 1),
        (x.new_zeros(3, device="cuda"), 0),
        (torch.rand(2, device="cuda:1", generator=torch.Generator("cuda:1").manual_seed(1)), 1),
        (nn.Linear(2, 2).cuda().weight, 0),
        (nn.Linear(2, 2).cuda(1).weight, 1),
        (nn.Linear(2, 2).to(second).weight, 1),
        (nn.Linear(2, 2, device="cuda:1").bias, 1),
        (nn.Linear(2, 2, device="meta").to_empty(device="cuda").bias, 0),
        (nn.utils.rnn.pack_sequence([torch.ones(2, 1)]).cuda().data, 0),
        (x.untyped_storage().cuda(), 0),
        (x.pin_memory().cuda(non_blocking=True), 0),
    ):
        assert made.device == torch.device("fl", expected)
    assert x.to("cpu").device.type == "cpu"
    with pytest.raises(RuntimeError, match="must be cuda device: cpu"):
        x.cuda("cpu")
    with pytest.raises(RuntimeError, match="fl:9 does not exist"):
        x.cuda(9)


@pytest.mark.usefixtures("compat")
def test_default_devices() -> None:
    try:
        torch.set_default_device("cuda:1")
        assert torch.ones(2).device == torch.device("fl:1")
        with torch.device("cuda"):
            assert nn.Linear(2, 2).weight.device == torch.device("fl:0")
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.usefixtures("compat")
def test_the_module_is_that_of_fl() -> None:
    cuda: Any = torch.cuda
    fl = torch_fl.fl
    assert cuda.is_available()
    assert cuda.device_count() == 4
    assert cuda.get_device_name("cuda:1") == fl.get_device_name(1)
    assert cuda.get_device_properties(torch.device("cuda")).total_memory == fl.mem_get_info()[1]
    cuda.set_device("cuda:1")
    assert (cuda.current_device(), torch.ones(1, device="cuda").device.index) == (1, 1)
    with cuda.device(2):
        assert cuda.current_device() == 2
    cuda.set_device(0)
    side, start, end = cuda.Stream("cuda:0"), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.stream(side):
        start.record()
        x = torch.ones(1000, device="cuda") + 1
        end.record()
    cuda.current_stream().wait_stream(side)
    x.record_stream(cuda.current_stream())
    cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    assert isinstance(side, cuda.Stream)
    assert x.sum().item() == 2000
    assert cuda.memory_allocated() >= 4000
    assert cuda.max_memory_allocated("cuda:0") >= 4000
    assert cuda.memory_cached() == cuda.memory_reserved("cuda:0") >= cuda.memory_allocated()
    cuda.reset_max_memory_allocated()
    cuda.empty_cache()
    cuda.ipc_collect()
    assert cuda.is_bf16_supported()
    assert issubclass(cuda.OutOfMemoryError, RuntimeError)
    with pytest.raises(NotImplementedError, match=r"torch\.cuda\.get_device_capability asks about CUDA hardware"):
        cuda.get_device_capability()


@pytest.mark.usefixtures("compat")
def test_seeds() -> None:
    draws = []
    for seed in (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        for _ in range(2):
            seed(5)
            draws.append(torch.rand(4, device="cuda").tolist())
    assert all(draw == draws[0] for draw in draws)
    state = torch.cuda.get_rng_state()
    after = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), after)
    with torch.random.fork_rng(devices=["cuda:0"]):
        inner = torch.rand(4, device="cuda")
    assert torch.equal(torch.rand(4, device="cuda"), inner)


# ---- Whole pieces --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("compat")
@pytest.mark.parametrize(
    ("map_location", "index"),
    [("cuda", 0), ("cuda:1", 1), (torch.device("cuda:1"), 1), ({"cpu": "cuda:1"}, 1), (lambda s, _: s.cuda(1), 1)],
)
def test_checkpoints_come_to_fl(map_location: Any, index: int) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.arange(3.0)}, file)
    file.seek(0)
    x = torch.load(file, map_location=map_location)["x"]
    assert (x.device, x.tolist()) == (torch.device("fl", index), [0, 1, 2])


def test_checkpoints_of_cuda_come_to_the_device_of_that_number(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
        torch.save(torch.arange(3.0), file)
    file.seek(0)
    with torch_fl.cuda_compat():
        assert torch.load(file).device == torch.device("fl:1")
    file.seek(0)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(file)


@pytest.mark.usefixtures("compat")
@pytest.mark.filterwarnings("ignore:`torch.cuda.amp:FutureWarning")
def test_mixed_precision() -> None:
    assert not torch.is_autocast_enabled("cuda")
    for context, dtype in (
        (torch.autocast("cuda"), torch.float16),
        (torch.autocast(device_type="cuda", dtype=torch.bfloat16), torch.bfloat16),
        (torch.amp.autocast("cuda"), torch.float16),
        (torch.cuda.amp.autocast(), torch.float16),
    ):
        with context:
            assert torch.is_autocast_enabled("cuda")
            assert torch.is_autocast_enabled()
            assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == dtype
            assert torch.mm(torch.ones(2, 2).cuda(), torch.ones(2, 2).cuda()).dtype == dtype
    for scaler in (torch.cuda.amp.GradScaler(), torch.amp.GradScaler("cuda"), torch.amp.GradScaler()):
        model = nn.Linear(3, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        before = model.bias.detach().clone()
        assert scaler.is_enabled()
        scaler.scale(model(torch.ones(2, 3, device="cuda")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before - model.bias, torch.ones(1, device="cuda"))


@pytest.mark.usefixtures("compat")
def test_backward_passes_and_threads_are_inside() -> None:
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(torch.cuda.is_available())
            return grad.cuda() * torch.full((), 2.0, device="cuda")

    def forward(x: torch.Tensor) -> Any:
        return Twice.apply(x * torch.ones(3, device="cuda"))  # type: ignore[no-untyped-call]

    x = torch.ones(3, device="cuda", requires_grad=True)
    forward(x).sum().backward()
    assert torch.autograd.grad(forward(x).sum(), x)[0].tolist() == [2, 2, 2]
    for reentrant in (True, False):
        checkpoint(forward, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6, 6]
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(2, device="cuda:1").cuda()))
    thread.start()
    thread.join()
    assert made[0].device == torch.device("fl:0")
    assert len(seen) == 4


@pytest.mark.usefixtures("compat")
def test_compiled_code() -> None:
    torch._dynamo.reset()
    model = nn.Linear(4, 4).cuda()

    def run(x: torch.Tensor) -> Any:
        return model(x.cuda()).relu() + torch.ones(4, device="cuda")

    x = torch.randn(2, 4)
    assert torch.equal(torch.compile(run, backend="aot_eager")(x), run(x))


def test_a_script_for_cuda_runs_unchanged() -> None:
    script = """
        import torch
        from torch import nn

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler(device.type)
        data = torch.utils.data.TensorDataset(torch.randn(32, 4))
        losses = []
        for epoch in range(5):
            for (x,) in torch.utils.data.DataLoader(data, batch_size=16, num_workers=1, pin_memory=True):
                x = x.cuda(non_blocking=True)
                with torch.autocast(device.type):
                    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            torch.cuda.synchronize()
            losses.append(loss.item())
        print(x.device, losses[-1] < losses[0])
    """
    environment = {"TORCH_FL_AUTOLOAD": "1", "TORCH_FL_CUDA_COMPAT": "1", "TORCH_FL_ON_FALLBACK": "ignore"}
    assert prints(script, **environment) == ["fl:0 True"]
