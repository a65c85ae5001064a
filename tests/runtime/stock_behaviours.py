"""A transcript of stock torch: what each behaviour below returns, raises and warns of, as text. A program:

    python -m tests.runtime.stock_behaviours [torch_fl]

prints it as JSON; with the argument, torch_fl is imported first. Nothing here uses an `fl` device.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import hashlib
import io
import json
import multiprocessing
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_BEHAVIOURS: dict[str, Callable[[], Any]] = {}


def behaviour(function: Callable[[], Any]) -> Callable[[], Any]:
    """Adds a function to the transcript."""
    _BEHAVIOURS[function.__name__] = function
    return function


def digest(value: Any) -> str:
    """Bytes of tensors, bit by bit."""
    state = hashlib.sha256()
    for tensor in value if isinstance(value, (list, tuple)) else [value]:
        state.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def seeded(*shape: int) -> torch.Tensor:
    """The same normal numbers each time, whatever the global generator is at."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def small_model() -> torch.nn.Module:
    """Convolution, batch norm and a linear layer, always with the same weights."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )


@behaviour
def defaults() -> Any:
    return torch.get_default_dtype(), torch.get_default_device(), torch.empty(0).device, torch.tensor(1.0).dtype


@behaviour
def current_accelerator() -> Any:
    return torch.accelerator.current_accelerator()


@behaviour
def device_module_of_cpu() -> Any:
    return torch.get_device_module("cpu").__name__


@behaviour
def devices() -> Any:
    return [str(torch.device(name)) for name in ("cpu", "cuda:1", "meta", "xpu", "mps", "cuda")]


@behaviour
def unknown_device() -> Any:
    return torch.device("nosuch:0")


@behaviour
def tensor_on_absent_cuda() -> Any:
    return torch.zeros(2, device="cuda")


@behaviour
def absent_cuda() -> Any:
    return torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized()


@behaviour
def move_to_absent_cuda() -> Any:
    return torch.nn.Linear(2, 2).to("cuda")


@behaviour
def generators() -> Any:
    return torch.Generator().device, torch.default_generator.device, torch.Generator().initial_seed()


@behaviour
def generator_of_absent_cuda() -> Any:
    return torch.Generator("cuda").manual_seed(1)


@behaviour
def random_stream() -> Any:
    torch.manual_seed(11)
    drawn = [
        torch.rand(5),
        torch.randn(5),
        torch.randint(0, 9, (5,)),
        torch.randperm(9),
        torch.bernoulli(torch.rand(9)),
    ]
    drawn += [torch.nn.functional.dropout(torch.ones(20)), torch.empty(4).exponential_(), torch.get_rng_state()]
    return torch.initial_seed(), digest(drawn)


@behaviour
def forked_generator() -> Any:
    torch.manual_seed(12)
    with torch.random.fork_rng(devices=[]):
        inner = torch.rand(3)
    return digest([inner, torch.rand(3)])


@behaviour
def numbers() -> Any:
    a, b = seeded(17, 23), seeded(23, 5)
    results = [
        a @ b,
        a.softmax(1),
        a.sum(0),
        a.cumsum(1),
        a.std(),
        torch.linalg.svdvals(a),
        a.sort(1).values,
        a.half() * 3,
    ]
    return digest(results)


@behaviour
def convolutions() -> Any:
    return digest(
        [torch.nn.functional.conv2d(seeded(2, 3, 9, 9), seeded(4, 3, 3, 3)), small_model()(seeded(2, 1, 8, 8))]
    )


@behaviour
def foreach_and_sparse() -> Any:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (3,))
    return digest([*torch._foreach_add([seeded(3), seeded(4)], 2), sparse.to_dense(), (sparse + sparse).to_dense()])


@behaviour
def functional_transforms() -> Any:
    return digest(torch.vmap(torch.dot)(seeded(4, 3), seeded(4, 3)))


@behaviour
def script() -> Any:
    graph = torch.jit.trace(lambda x: torch.relu(x) + 1, seeded(3), check_trace=False)
    return digest(graph(seeded(5))), str(graph.graph)


@behaviour
def strides_and_views() -> Any:
    base = torch.arange(24.0).reshape(2, 3, 4)
    view = base.transpose(0, 2)[1:, ::2]
    return view.stride(), view.storage_offset(), view.is_contiguous(), base.data_ptr() == view.data_ptr() - 4


@behaviour
def representation() -> Any:
    return repr([torch.arange(3.0), torch.zeros(2, 0), torch.tensor([1 + 2j]), torch.nn.Linear(2, 3), torch.float16])


@behaviour
def attributes() -> Any:
    return sorted(dir(torch.Tensor)), sorted(dir(torch.nn.Module)), sorted(dir(torch.UntypedStorage))


@behaviour
def names_of_torch() -> Any:
    return sorted(dir(torch))


@behaviour
def shape_errors() -> Any:
    return torch.ones(2, 3) + torch.ones(4)


@behaviour
def dtype_errors() -> Any:
    return torch.ones(2, 3) @ torch.ones(3, 2, dtype=torch.int64)


@behaviour
def device_errors() -> Any:
    return torch.ones(2) + torch.ones(2, device="meta")


@behaviour
def missing_kernel() -> Any:
    return torch.ones(2, device="meta").item()


@behaviour
def index_errors() -> Any:
    return torch.ones(2)[5]


@behaviour
def warning_of_numpy() -> Any:
    array = torch.ones(2).numpy()
    array.flags.writeable = False
    return torch.from_numpy(array)


@behaviour
def warning_of_resize() -> Any:
    return torch.add(torch.ones(2), torch.ones(2), out=torch.ones(3)).shape


@behaviour
def autocast_on_cpu() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = (seeded(3, 3) @ seeded(3, 3)).dtype, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return inside, torch.is_autocast_enabled("cpu"), torch.amp.is_autocast_available("cpu")


@behaviour
def autocast_on_unknown() -> Any:
    return torch.autocast("nosuch").__enter__()


@behaviour
def gradient_scaler() -> Any:
    return torch.amp.GradScaler("cpu").scale(torch.ones(2)).sum()


@behaviour
def threads() -> Any:
    return torch.get_num_threads(), torch.get_num_interop_threads()


@behaviour
def modes() -> Any:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_deterministic_debug_mode(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.is_available(),
        torch.backends.cpu.get_cpu_capability(),
        torch.is_grad_enabled(),
        torch._C._get_cublas_allow_tf32(),
    )


@behaviour
def configuration() -> Any:
    return torch.__config__.show(), torch.__config__.parallel_info()


@behaviour
def dispatch_on_cpu() -> Any:
    """Tables of kernels, less the rows of PrivateUse1."""
    operators = ("add.Tensor", "mm", "convolution", "copy_", "empty.memory_format", "set_.source_Storage", "item")
    tables = [torch._C._dispatch_dump_table(f"aten::{name}") for name in operators]
    return [line for table in tables for line in table.splitlines() if "PrivateUse1" not in line]


@behaviour
def registered_operators() -> Any:
    return sorted(torch._C._dispatch_get_all_op_names())


@behaviour
def saved_files() -> Any:
    buffer = io.BytesIO()
    torch.save({"weights": small_model().state_dict(), "step": 3}, buffer)
    buffer.seek(0)
    return digest(list(torch.load(buffer)["weights"].values())), hashlib.sha256(buffer.getvalue()).hexdigest()


@behaviour
def pickles() -> Any:
    return digest(pickle.loads(pickle.dumps(seeded(3, 3)))), copy.deepcopy(torch.nn.Linear(2, 2)).weight.device


@behaviour
def pinned_memory() -> Any:
    return torch.ones(2).is_pinned()


def _loaded(**options: Any) -> str:
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5), **options
    )
    return digest([batch for (batch,) in loader])


@behaviour
def data_loader() -> Any:
    return _loaded()


@behaviour
def data_loader_with_workers() -> Any:
    return _loaded(num_workers=2, multiprocessing_context="fork")


def _child(connection: Any, tensor: torch.Tensor) -> None:
    connection.send(digest([tensor * 2, torch.rand(2, generator=torch.Generator().manual_seed(1))]))


@behaviour
def forked_child() -> Any:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there, seeded(100, 100)))
    process.start()
    text = here.recv() if here.poll(60) else "nothing came"
    process.join(60)
    return text, process.exitcode


@behaviour
def profile() -> Any:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        seeded(4, 4) @ seeded(4, 4)
    return sorted(event.key for event in profiler.key_averages())


@behaviour
def plugins_loaded_so_far() -> Any:
    return "libfl_" in Path("/proc/self/maps").read_text()


# From here on devices are asked for: torch wants the accelerator itself, pins memory for it, and its autograd engine
# has a thread for each device of every backend.


@behaviour
def generic_device_module() -> Any:
    return torch.get_device_module().__name__


@behaviour
def pinning() -> Any:
    return torch.ones(2).pin_memory().is_pinned()


@behaviour
def data_loader_with_pinning() -> Any:
    return _loaded(pin_memory=True)


@behaviour
def gradients() -> Any:
    model = small_model()
    model(seeded(2, 1, 8, 8)).square().sum().backward()
    return digest([parameter.grad for parameter in model.parameters()])


@behaviour
def training() -> Any:
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(seeded(4, 1, 8, 8)), torch.arange(4)).backward()
        optimizer.step()
    return digest(list(model.parameters()))


@behaviour
def checkpointed() -> Any:
    x = seeded(3).requires_grad_()
    torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
    return digest(x.grad)


@behaviour
def second_backward() -> Any:
    loss = seeded(3).requires_grad_().exp().sum()
    loss.backward()
    return loss.backward()


def transcript() -> dict[str, list[str]]:
    """Name -> [what came of it, its warnings...]."""
    lines = {}
    for name, function in _BEHAVIOURS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome = repr(function())
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
        lines[name] = [outcome, *(f"{warning.category.__name__}: {warning.message}" for warning in caught)]
    return lines


if __name__ == "__main__":
    if sys.argv[1:] == ["torch_fl"]:
        import torch_fl  # noqa: F401
    print(json.dumps(transcript()))
