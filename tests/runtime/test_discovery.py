"""Discovery through the compiled bridge: what the device list says is what torch then finds."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from torch_fl import config
from torch_fl_spec import kits
from torch_fl_spec.describe_process import describe

from . import certificates


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home without a settings file."""
    return tmp_path


def run(home: Path, code: str, **environment: str) -> str:
    """What code prints in a process of its own, which ends well; indentation is removed."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"TORCH_FL_CONFIG", *config.ENVIRONMENT}
    }
    cache = os.environ.get("TORCH_FL_CACHE") or str(Path.home() / ".cache" / "torch-fl")
    done = subprocess.run(
        [sys.executable, "-c", "import torch, torch_fl\n" + textwrap.dedent(code)],
        env=inherited | {"HOME": str(home), "TORCH_FL_CACHE": cache} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_importing_loads_no_plugin(home: Path) -> None:
    assert run(home, "print('libfl_' in open('/proc/self/maps').read())") == "False\n"


def test_the_list_is_what_torch_finds(home: Path) -> None:
    code = """
    devices = torch_fl.list_devices()
    assert torch.fl.device_count() == len(devices) == 4
    for device in devices:
        made = torch.empty(1 << 20, dtype=torch.uint8, device=f"fl:{device.index}")
        assert made.device.index == device.index
        properties = torch.fl.get_device_properties(device.index)
        assert (properties.name, properties.uuid, properties.vendor) == (device.name, device.uuid, device.vendor)
        assert torch.fl.mem_get_info(device.index)[1] == device.total_memory
        assert torch_fl.list_devices()[device.index].free_memory < device.free_memory
        print(device.vendor, device.vendor_index, device.execution_model, device.uuid)
    """
    shown = run(home, code, TORCH_FL_VENDORS="reference_inline,reference", FL_REFERENCE_DEVICES="2")
    expected = []
    for vendor, model in (("reference_inline", "inline"), ("reference", "async")):
        for info in describe(kits.resolve(vendor).ensure_built())["devices"][:2]:
            expected.append(f"{vendor} {info['index']} {model} {info['uuid']}")
    assert shown.splitlines() == expected


@pytest.mark.parametrize("first", ["torch.empty(1, device='fl')", "torch.fl.device_count()", "torch_fl.list_devices()"])
def test_whatever_comes_first_finds_the_devices(home: Path, first: str) -> None:
    assert run(home, f"{first}; print(len(torch_fl.probe_report()[0].devices))", FL_REFERENCE_DEVICES="3") == "3\n"


def test_a_device_without_a_certificate_raises_the_reason(home: Path) -> None:
    code = """
    import warnings
    warnings.simplefilter("ignore", torch_fl.devices.DeviceWarning)
    torch.fl.set_device(1)  # what torch's own threads do with every index
    print([device.usable for device in torch_fl.list_devices()])
    try:
        torch.empty(1, device="fl:1")
    except RuntimeError as error:
        print(error)
    """
    shown = run(home, code, TORCH_FL_CERTIFIED="require", FL_REFERENCE_DEVICES="2").splitlines()
    assert shown[0] == "[False, False]"
    assert shown[1].startswith(
        "fl:1 (reference) cannot be used: its plugin is built here, not certified: no entry for "
    )


def test_a_certified_device_computes(home: Path) -> None:
    library = kits.resolve("reference").ensure_built()
    certificates.enter(certificates.registry(home, "reference"), library, vendor="reference")
    code = """
    print((torch.ones(3, device="fl:0") + 1).tolist(), torch_fl.list_devices()[0].certification)
    """
    shown = run(home, code, TORCH_FL_CERTIFIED="require", TORCH_FL_REGISTRY=str(home / "registry"))
    assert shown.startswith("[2.0, 2.0, 2.0] core-1.0-candidate, self-run, until ")


def test_autograd_passes_by_the_devices_that_must_not_be_used(home: Path) -> None:
    """Its engine has a thread for each device, and sets that as the current one where no exception may come."""
    library = kits.resolve("reference").ensure_built()
    certificates.enter(certificates.registry(home, "reference"), library, vendor="reference")
    code = """
    import warnings
    warnings.simplefilter("ignore")
    x = torch.ones(3, device="fl:2", requires_grad=True)
    (x * x).sum().backward()
    print([device.usable for device in torch_fl.list_devices()], x.grad.tolist())
    torch.fl.manual_seed_all(1)
    torch.fl.empty_cache()
    """
    shown = run(
        home,
        code,
        TORCH_FL_CERTIFIED="require",
        TORCH_FL_REGISTRY=str(home / "registry"),
        TORCH_FL_VENDORS="reference_inline,reference",
        FL_REFERENCE_DEVICES="2",
    )
    assert shown == "[False, False, True, True] [2.0, 2.0, 2.0]\n"


def test_a_wrong_configuration_is_what_a_tensor_raises(home: Path) -> None:
    code = """
    for _ in range(2):
        try:
            torch.empty(1, device="fl:0")
        except Exception as error:
            print(type(error).__name__, error)
    """
    (line, again) = run(home, code, TORCH_FL_PRECISION="quick").splitlines()
    assert line == again
    assert line.endswith(
        "environment variable TORCH_FL_PRECISION: precision: 'quick' is not allowed; allowed: accurate, fast"
    )


def test_memory_fraction_bounds_the_pool(home: Path) -> None:
    code = """
    torch.empty(60 << 20, dtype=torch.uint8, device="fl:0")
    torch.fl.empty_cache()
    try:
        torch.empty(70 << 20, dtype=torch.uint8, device="fl:0")
    except torch.OutOfMemoryError:
        print("out of memory")
    """
    assert run(home, code, TORCH_FL_MEMORY_FRACTION="0.5", FL_REFERENCE_MEMORY="128M") == "out of memory\n"
