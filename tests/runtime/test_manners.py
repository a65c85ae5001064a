"""What torch's generic code expects of a device: it prints, saves, loads, pickles, forks, ends like any other."""

from __future__ import annotations

import io
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_fl
from torch_fl import _bridge, fl, routing

from .processes import prints, run_python

pytestmark = pytest.mark.usefixtures("devices")

ALL = ["fl:0", "fl:1", "fl:2", "fl:3"]


# Names


def test_fl_is_a_device_type() -> None:
    assert torch.device("fl").type == "fl"
    assert torch.device("fl:3") == torch.device("fl", 3)
    assert torch.get_device_module("fl") is fl is sys.modules["torch.fl"]
    x: Any = torch.ones(2, device="fl:1")
    assert (x.is_fl, x.device.type, x.get_device(), x.type()) == (True, "fl", 1, "torch.fl.FloatTensor")
    assert not x.cpu().is_fl


def test_methods_that_move_to_fl() -> None:
    x: Any = torch.ones(2)
    assert x.fl().device == torch.device("fl:0")
    assert x.fl(2).device == torch.device("fl:2")
    assert x.fl("fl:3").device == torch.device("fl:3")
    assert x.untyped_storage().fl(1).device == torch.device("fl:1")
    layer: Any = torch.nn.Linear(2, 2)
    assert layer.fl(1).weight.device == torch.device("fl:1")
    packed: Any = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 1), torch.ones(2, 1)])
    assert packed.fl().is_fl
    with fl.device(1):
        assert x.fl().device == torch.empty(1, device="fl").device == torch.device("fl:1")


@pytest.mark.parametrize("device", ALL)
def test_tensors_print(device: str) -> None:
    x = torch.tensor([[1.5, -2.0]], device=device)
    assert repr(x) == f"tensor([[ 1.5000, -2.0000]], device='{device}')"
    assert repr(x > 0) == f"tensor([[ True, False]], device='{device}')"
    assert repr(torch.nn.Parameter(x)).startswith("Parameter containing:")
    assert repr(torch.empty(0, device=device)) == f"tensor([], device='{device}')"


def test_devices_that_do_not_exist() -> None:
    for use in (
        lambda: torch.empty(1, device="fl:9"),
        lambda: fl.set_device(9),
        lambda: fl.Stream("fl:9"),
        lambda: fl.synchronize("fl:9"),
        lambda: fl.get_device_name(9),
        lambda: torch.ones(1).to("fl:9"),
        lambda: torch.Generator("fl:9"),
    ):
        with pytest.raises(RuntimeError, match="fl:9 does not exist: this process has 4 devices, fl:0 to fl:3"):
            use()
    with pytest.raises(ValueError, match=r"expected an fl device.*'cpu'"):
        fl.set_device("cpu")


@pytest.mark.parametrize("index", [-(1 << 31), -200, -2, 4, 63, 64, 127, 128, 200, 254, 255, 256, 260, (1 << 31) - 1])
def test_numbers_that_are_no_index_of_a_device(index: int) -> None:
    def within(context: Any) -> None:
        with context:
            pass

    uses: list[Callable[[], object]] = [
        lambda: fl.synchronize(index),
        lambda: fl.get_device_properties(index),
        lambda: fl.get_device_name(index),
        lambda: fl.mem_get_info(index),
        lambda: fl.memory_snapshot(index),
        lambda: fl.reset_peak_memory_stats(index),
        lambda: fl.set_per_process_memory_fraction(1.0, index),
        lambda: fl.current_stream(index),
        lambda: fl.default_stream(index),
        lambda: _bridge.cache_use(index),
        lambda: _bridge.set_stream(index, 0),
        lambda: _bridge.stream_priority(index, 0),
        lambda: _bridge.stream_handle(index, 0),
        lambda: _bridge.counters(index),
        lambda: _bridge.reset_counters(index),
        lambda: _bridge.disable(index, "aten::mm", False),
        lambda: routing.disable("aten::mm", index, disabled=False),
        lambda: torch_fl.supports("aten::mm", [torch.float32], index),
    ]
    if index >= 0:  # negative ones change nothing there
        uses += [lambda: fl.set_device(index), lambda: within(fl.device(index))]
    for use in uses:
        with pytest.raises(RuntimeError, match=rf"fl:{index} does not exist: this process has 4 devices"):
            use()
    for use in (lambda: fl.memory_stats(index), lambda: fl.memory_allocated(index)):  # torch's own
        with pytest.raises((RuntimeError, TypeError)):
            use()
    assert fl.current_device() == 0


def test_properties() -> None:
    properties = fl.get_device_properties("fl:2")
    assert (properties.index, properties.vendor, properties.execution_model) == (2, "reference_inline", "inline")
    assert fl.get_device_name(2) == properties.name
    assert fl.get_device_properties(0).uuid != fl.get_device_properties(1).uuid


def test_current_device() -> None:
    assert fl.current_device() == 0
    with fl.device("fl:2"):
        assert fl.current_device() == torch.accelerator.current_device_index() == 2
        with fl.device_of(torch.empty(1, device="fl:3")), fl.device_of(torch.empty(1)):
            assert fl.current_device() == 3
        fl.set_device("fl:1")
        assert fl.current_device() == 1
    assert fl.current_device() == 0
    for nothing in (fl.device(None), fl.device(-1), fl.device_of(torch.empty(1))):
        with nothing:
            fl.set_device(3)
        assert fl.current_device() == 3
        fl.set_device(0)


# torch.accelerator


def test_accelerator_is_fl() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("fl")
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == fl.device_count() == 4
    torch.accelerator.set_device_index(2)
    assert fl.current_device() == 2
    torch.accelerator.set_device_index("fl:0")
    with torch.accelerator.device_index(3):
        assert fl.current_device() == 3
    stream = torch.Stream("fl:1")
    torch.accelerator.set_stream(stream)
    assert (fl.current_device(), torch.accelerator.current_stream()) == (1, stream)
    fl.set_stream(fl.default_stream(1))
    fl.set_device(0)
    torch.accelerator.synchronize()
    dtypes = torch.accelerator.get_device_capability("fl:0")["supported_dtypes"]
    assert {torch.float32, torch.float8_e4m3fn, torch.complex128, torch.uint64} <= dtypes
    assert torch.qint8 not in dtypes


# Saving and loading


def saved(value: object, **options: object) -> io.BytesIO:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, **options)  # type: ignore[arg-type]
    file.seek(0)
    return file


@pytest.mark.parametrize("zipfile", [True, False])
@pytest.mark.parametrize("device", ALL)
def test_save_and_load_keep_device_and_sharing(device: str, zipfile: bool) -> None:
    base = torch.arange(6.0, device=device)
    loaded = torch.load(saved({"base": base, "view": base[2:4]}, _use_new_zipfile_serialization=zipfile))
    assert loaded["base"].device == loaded["view"].device == torch.device(device)
    loaded["view"].fill_(9)
    assert loaded["base"].tolist() == [0, 1, 9, 9, 4, 5]


@pytest.mark.parametrize(
    ("map_location", "expected"),
    [("cpu", "cpu"), ("fl:3", "fl:3"), (torch.device("fl:1"), "fl:1"), ({"fl:0": "fl:2"}, "fl:2"), ("fl", "fl:0")],
    ids=str,
)
def test_map_location(map_location: object, expected: str) -> None:
    file = saved(torch.arange(3.0, device="fl:0"))
    x = torch.load(file, map_location=map_location)  # type: ignore[arg-type]
    assert (x.device, x.tolist()) == (torch.device(expected), [0, 1, 2])


def test_checkpoints_move_to_fl_and_back() -> None:
    model = torch.nn.Linear(3, 2)
    x = torch.load(saved(model.state_dict()), map_location="fl:1")
    there = torch.nn.Linear(3, 2).to("fl:1")
    there.load_state_dict(x)
    assert torch.equal(there.weight.cpu(), model.weight)
    model.load_state_dict(torch.load(saved(there.state_dict()), map_location="cpu"))


def test_loading_onto_a_missing_device_names_it() -> None:
    file = saved(torch.ones(1, device="fl:3"))
    with pytest.raises(RuntimeError, match=r"device 9 .*device_count\(\) is 4.*map_location"):
        torch.load(file, map_location="fl:9")


@pytest.mark.parametrize("device", ALL)
def test_pickle(device: str) -> None:
    x = torch.arange(4, device=device)[1:].requires_grad_(False)
    y = pickle.loads(pickle.dumps(x))
    assert (y.device, y.tolist()) == (x.device, [1, 2, 3])
    parameter = pickle.loads(pickle.dumps(torch.nn.Parameter(torch.ones(2, device=device))))
    assert (parameter.device, parameter.requires_grad) == (x.device, True)


# Autograd


def test_backward_runs_on_every_device_whatever_is_current() -> None:
    inputs: list[Any] = [torch.full((3,), float(n), device=ALL[n], requires_grad=True) for n in range(4)]
    loss: Any = sum((x * x).sum().to("fl:0") for x in inputs)
    with fl.device(2):
        loss.backward()
        assert fl.current_device() == 2
    assert [x.grad.tolist() for x in inputs] == [[2.0 * n] * 3 for n in range(4)]
    assert [x.grad.device for x in inputs] == [x.device for x in inputs]


def test_backward_runs_on_the_stream_of_the_forward_pass() -> None:
    stream, seen = fl.Stream(1), list[Any]()
    with fl.stream(stream):
        x: Any = torch.ones(3, device="fl:1", requires_grad=True)
        y = x * 2
        y.register_hook(lambda grad: seen.append((fl.current_device(), fl.current_stream(1))))
        loss = y.sum()
    fl.default_stream(1).wait_stream(stream)
    loss.backward()
    assert seen == [(1, stream)]
    assert x.grad.tolist() == [2, 2, 2]


def test_first_backward_finds_the_devices() -> None:
    code = """
        import torch, torch_fl
        torch.ones(2, requires_grad=True).sum().backward()  # starts torch's threads, one per device
        x = torch.ones(2, device="fl:3", requires_grad=True)
        x.sum().backward()
        print(x.grad.tolist())
    """
    assert prints(code) == ["[1.0, 1.0]"]


def test_a_search_that_fails_within_backward_is_told(tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("precision: rough\n")
    code = """
        import torch, torch_fl
        x = torch.ones(2, requires_grad=True)
        x.sum().backward()
        print(x.grad.tolist())
    """
    done = run_python(code, TORCH_FL_CONFIG=str(settings))
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0]\n"), done.stderr
    logged = """
        import logging
        logging.basicConfig(format="%(name)s: %(message)s")
    """
    done = run_python(logged + code, TORCH_FL_CONFIG=str(settings))
    assert "torch_fl.devices: the search for devices failed" in done.stderr
    assert "precision: 'rough' is not allowed" in done.stderr


def test_ctrl_c_within_the_search_of_backward_is_not_lost() -> None:
    code = """
        import torch, torch_fl
        from torch_fl import devices
        def interrupted():
            raise KeyboardInterrupt
        devices._discover = interrupted
        try:
            torch.ones(2, requires_grad=True).sum().backward()
            for _ in range(1000):
                pass
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert "interrupted\n" in run_python(code).stdout


@pytest.mark.parametrize("device", ["fl:0", "fl:3"])
def test_a_process_may_end_right_after_backward(device: str) -> None:
    code = f"""
        import torch, torch_fl
        x = torch.ones(2, device="{device}", requires_grad=True)
        x.sum().backward()
    """
    for _ in range(3):
        assert prints(code) == []


def test_backward_from_many_threads() -> None:
    def train(device: str) -> None:
        for _ in range(20):
            x: Any = torch.ones(5, device=device, requires_grad=True)
            (x * 3).sum().backward()
            results.append(x.grad.tolist())

    results: list[list[float]] = []
    threads = [threading.Thread(target=train, args=(device,)) for device in ALL]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[3.0] * 5] * 80


# Processes


def test_forked_children_are_told_to_spawn() -> None:
    code = """
        import os, sys
        import torch, torch_fl
        x = torch.ones(3, device="fl:0")
        stream = torch.fl.Stream(0)
        child = os.fork()
        if child == 0:
            uses = [
                lambda: torch.ones(3, device="fl:0"), lambda: x + 1, lambda: x.cpu(), lambda: torch.fl.synchronize(),
                stream.synchronize, stream.query, lambda: torch.fl.Event().record(), lambda: x.backward(),
                lambda: torch.ones(2).pin_memory(), lambda: torch.fl.Stream(1), lambda: x.fill_(1), lambda: repr(x),
            ]
            for number, use in enumerate(uses):
                try:
                    use()
                    print("no error from", number)
                except RuntimeError as error:
                    if "use the 'spawn' start method" not in str(error) and "does not require grad" not in str(error):
                        print(number, error)
            print(torch.fl.device_count(), torch.fl.is_available(), torch.fl.is_initialized())
            torch.manual_seed(1)
            with torch.random.fork_rng():
                print(torch.rand(1).device)
            torch.ones(2, requires_grad=True).sum().backward()
            del x, stream
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(x.tolist())
    """
    assert prints(code) == ["0 False False", "cpu", "child 7", "[1.0, 1.0, 1.0]"]


def test_a_fork_before_the_first_use_is_fine() -> None:
    code = """
        import os, sys
        import torch, torch_fl
        torch.manual_seed(1)
        child = os.fork()
        print(torch.ones(2, device="fl:1").tolist(), flush=True)
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert prints(code) == ["[1.0, 1.0]"] * 2


def test_threads_that_come_first_at_once_find_the_same_devices() -> None:
    code = """
        import threading
        import torch, torch_fl
        start = threading.Barrier(8)
        def work(number):
            start.wait()
            x = torch.full((3,), float(number), device=f"fl:{number % 4}")
            results[number] = (x + 1).tolist() == [number + 1.0] * 3
        results = {}
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(torch.fl.device_count(), all(results[number] for number in range(8)))
    """
    assert prints(code) == ["4 True"]


def test_spawned_children_use_devices(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        "import torch, torch_fl, torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    assert torch.full((2,), 3.0, device=f'fl:{rank}').tolist() == [3, 3]\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1, device='fl:0')\n"
        "    mp.spawn(work, nprocs=2)\n"
        "    print('done')\n"
    )
    assert prints(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')") == ["done"]


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders_pin_memory(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    batches = list(loader)
    assert all(x.is_pinned() and y.is_pinned() for x, y in batches)
    assert [x.to("fl:1", non_blocking=True).tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "atexit.register(lambda: print('bye', flush=True))"])
def test_exit_with_work_pending_is_clean(ending: str) -> None:
    code = f"""
        import atexit, sys
        import torch, torch_fl
        kept = [torch.rand(1000, 100, device=f"fl:{{n}}") for n in range(4)]
        streams = [torch.fl.Stream(n % 4) for n in range(8)]
        for stream in streams:
            with torch.fl.stream(stream):
                x = torch.rand(300, 300, device="fl")
                for _ in range(50):
                    x = x @ x
                event = torch.fl.Event()
                event.record()
                pinned = torch.empty(300, 300, pin_memory=True)
                pinned.copy_(x, non_blocking=True)
        generator = torch.Generator("fl:1")
        print("pending", flush=True)
        {ending}
    """
    assert prints(code)[0] == "pending"


def test_exit_while_threads_wait_is_clean() -> None:
    code = """
        import threading
        import torch, torch_fl
        from tests.runtime.stalling import Gate
        stream = torch.fl.Stream(0)
        gate = Gate(stream)
        threading.Thread(target=stream.synchronize, daemon=True).start()
        print("waiting", flush=True)
    """
    assert prints(code) == ["waiting"]


def test_sigterm_ends_a_waiting_process() -> None:
    code = """
        import os, signal, threading
        import torch, torch_fl
        from tests.runtime.stalling import Gate
        stream = torch.fl.Stream(0)
        gate = Gate(stream)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        stream.synchronize()
    """
    assert run_python(code).returncode == -signal.SIGTERM


# Registration


def test_registering_twice_changes_nothing() -> None:
    code = """
        import torch, torch_fl
        from torch_fl import _register
        module = torch.fl
        _register.register()
        print(torch.fl is module)
    """
    assert prints(code) == ["True"]


def test_a_place_that_another_backend_has_is_one_clear_line() -> None:
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        try:
            import torch_fl
        except ImportError as error:
            print(error)
        print(torch.ones(2).sum().item())
    """
    line, value = prints(code)
    assert "'npu' has taken it" in line
    assert value == "2.0"


def test_the_module_has_what_torch_looks_for() -> None:
    for name in fl.__all__:
        assert getattr(fl, name) is not None
    assert fl._initialized
    assert not fl._is_in_bad_fork()
    assert fl._get_generator("fl:1") is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fl.nonsense  # noqa: B018
