"""The device list: which vendors are asked, how their devices are numbered, and what is said of those that fail."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch_fl import commands, config, devices, discovery, log, vendor_probe
from torch_fl.config import ConfigError
from torch_fl.devices import DeviceWarning, list_devices, probe_report
from torch_fl.dtypes import TORCH_DTYPES
from torch_fl_spec import __version__, abi, loader
from torch_fl_spec.describe_process import describe
from torch_fl_spec.registry import load_registry

from tests.spec.plugin_builder import PluginBuilder

from . import certificates
from .fake_bridge import FakeBridge
from .vendors import Point, Vendors

pytestmark = pytest.mark.filterwarnings("ignore::torch_fl.devices.DeviceWarning")  # pytest.warns sees them still


@pytest.fixture(autouse=True)
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBridge]:
    """A process in which nobody has looked for devices: no settings, no file, a bridge without any."""
    for name in ("TORCH_FL_CONFIG", *config.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    fake = FakeBridge()
    monkeypatch.setattr(devices, "_bridge", lambda: fake)
    monkeypatch.setattr(devices, "_found", None)
    monkeypatch.setattr(devices, "_bridge_knows_operators", False)
    monkeypatch.setattr(config, "_current", None)
    yield fake
    fake.close()
    log.configure(config.Logging())


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vendors:
    """vendors.kit(...) makes one, vendors.install(...) announces it."""
    folder = tmp_path / "kits"
    folder.mkdir()
    return Vendors(folder, monkeypatch)


def settings(tmp_path: Path, text: str) -> Path:
    """The user's file."""
    path = tmp_path / ".torch_fl" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def names() -> list[tuple[str, int]]:
    """(vendor, its number) of each device."""
    return [(device.vendor, device.vendor_index) for device in list_devices()]


def outcome(vendor: str) -> Any:
    """The probe of a vendor."""
    return next(probe for probe in probe_report() if probe.vendor == vendor)


# Order


@pytest.mark.parametrize("order", [("zeta", "reference", "acme"), ("acme", "zeta", "reference")])
def test_numbers_hang_on_names_and_not_on_the_order_of_installation(vendors: Vendors, order: tuple[str, ...]) -> None:
    vendors.kit("zeta", DEVICES=1)
    vendors.kit("acme", DEVICES=2)
    vendors.install(*order, "reference_inline")
    assert names() == [("acme", 0), ("acme", 1), ("zeta", 0)]
    assert outcome("reference").reason == "stands in where no other vendor has a device"
    assert outcome("reference_inline").reason == "serves only where it is named"


def test_the_reference_stands_in_where_no_other_vendor_has_a_device(vendors: Vendors) -> None:
    vendors.kit("acme", DEVICES=0)
    vendors.install("acme", "reference", "reference_inline")
    assert names() == [("reference", 0), ("reference", 1)]
    assert (outcome("acme").outcome, outcome("acme").devices) == ("used", ())


def test_both_references_in_one_process(vendors: Vendors, monkeypatch: pytest.MonkeyPatch) -> None:
    vendors.kit("acme")
    vendors.install("acme", "reference", "reference_inline")
    monkeypatch.setenv("TORCH_FL_VENDORS", "reference_inline,reference")
    assert [(d.vendor, d.execution_model) for d in list_devices()] == [
        *[("reference_inline", "inline")] * 2,
        *[("reference", "async")] * 2,
    ]
    assert outcome("acme").reason == "not named by environment variable TORCH_FL_VENDORS"


def test_the_configuration_chooses_order_and_counts_and_fractions(
    vendors: Vendors, bridge: FakeBridge, tmp_path: Path
) -> None:
    folder = vendors.kit("acme", DEVICES=3, options={"speed": "high", "mode": "a b"})
    vendors.kit("zeta", DEVICES=1)
    vendors.kit("yota", DEVICES=1)
    vendors.install("acme", "yota", "zeta", "reference")
    settings(
        tmp_path,
        f"devices: [{{type: zeta}}, {{type: {folder}, count: 2, memory_fraction: 0.5}}]\n"
        "pool: {memory_fraction: 0.75}\n",
    )
    assert names() == [("zeta", 0), ("acme", 0), ("acme", 1)]
    assert bridge.fractions == {0: 0.75, 1: 0.5, 2: 0.5}
    assert list_devices()[1].name == "card speed=high;mode=a b"
    assert [probe.vendor for probe in probe_report()] == ["zeta", str(folder), "acme", "reference", "yota"]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", {"generic": True, "cpu": True, "on_fallback": "warn", "admit_fast": False}),
        (
            "fallback: {enable_generic_kernel: false, on_fallback: error}\nprecision: fast",
            {"generic": False, "cpu": True, "on_fallback": "error", "admit_fast": True},
        ),
        (
            "fallback: {enable_cpu_fallback: false}",
            {"generic": True, "cpu": False, "on_fallback": "warn", "admit_fast": False},
        ),
    ],
)
def test_the_configuration_steers_the_tiers(
    vendors: Vendors, bridge: FakeBridge, tmp_path: Path, text: str, policy: dict[str, object]
) -> None:
    vendors.install()
    settings(tmp_path, text)
    list_devices()
    assert bridge.policy == policy


def test_a_library_can_be_named(vendors: Vendors, tmp_path: Path) -> None:
    library = vendors.kit("acme", DEVICES=1) / "libacme.so"
    vendors.install("reference")
    settings(tmp_path, f"devices: [{{type: {library}}}]")
    (device,) = list_devices()
    assert (device.vendor, device.plugin.library) == ("acme", library)
    assert not device.plugin.built_here


def test_no_vendor_at_all(vendors: Vendors) -> None:
    vendors.install()
    assert list_devices() == ()
    assert str(list_devices()) == "no devices\nno vendor is installed, and none is named by the configuration"


# When


def test_importing_loads_no_plugin() -> None:
    script = "import torch_fl.devices; print('libfl_' in open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_devices_are_looked_for_once(vendors: Vendors, bridge: FakeBridge) -> None:
    vendors.kit("acme")
    vendors.install("acme")
    first = list_devices()
    probe_report()
    assert list_devices() == first
    assert bridge.discoveries == 1


def test_a_wrong_configuration_raises_until_it_is_right(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme")
    vendors.install("acme")
    path = settings(tmp_path, "precision: quick")
    with pytest.raises(ConfigError, match="precision: 'quick' is not allowed"):
        list_devices()
    path.write_text("precision: fast")
    assert len(list_devices()) == 2


def test_warnings_as_errors_leave_no_half_list(vendors: Vendors, bridge: FakeBridge) -> None:
    vendors.kit("acme", OPEN_FAILS=0)
    vendors.install("acme")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeviceWarning):
            list_devices()
    assert bridge.places == []
    with pytest.warns(DeviceWarning):
        assert len(list_devices()) == 2
    assert set(bridge.operators) == {operator.op for operator in load_registry()}


# What a record says


def test_records_of_the_reference(vendors: Vendors) -> None:
    vendors.install("reference")
    library = vendors.folder / "reference" / "libfl_reference.so"
    described = describe(library)
    found = list_devices()
    assert [device.index for device in found] == [0, 1]
    known = {kernel["op"] for kernel in described["kernels"][0]} & {operator.op for operator in load_registry()}
    dtypes = {name for kernel in described["kernels"][0] for row in kernel["rows"] for name in row["dtypes"]}
    for device, info in zip(found, described["devices"], strict=True):
        assert (device.vendor, device.vendor_index) == ("reference", info["index"])
        assert (device.name, device.uuid, device.total_memory) == (info["name"], info["uuid"], info["total_bytes"])
        assert device.free_memory is not None
        assert 0 < device.free_memory <= device.total_memory
        assert device.execution_model == "async"
        assert device.operators == len(known) > 20
        assert set(device.dtypes) == {TORCH_DTYPES[name] for name in dtypes}
        assert device.usable
        assert (device.plugin.version, device.plugin.library) == (described["version"], library)
        assert str(device.certification) == "built here, not certified"
    with pytest.raises(AttributeError):
        found[0].index = 3  # type: ignore[misc]


def test_dtypes_and_operators_are_those_this_host_knows(vendors: Vendors) -> None:
    """The fake's kernel takes i64 and a dtype of the future; a second one is of an operator of the future."""
    future = 'NEG_KERNEL,{.struct_size=sizeof(fl_kernel),.kind=FL_KIND_KERNEL,.op="aten::tomorrow",.variant="generic",'
    future += ".revision=1,.plan=neg_plan,.run=neg_run}"
    vendors.kit("acme", DEVICES=1, KERNELS=future)
    vendors.install("acme")
    (device,) = list_devices()
    assert (device.dtypes, device.operators) == ((torch.int64,), 1)


def test_every_dtype_of_the_interface_is_one_of_torch() -> None:
    assert list(TORCH_DTYPES) == list(abi.DTYPES)
    bits = {"bool": 8, "bf16": 16, "f8e4m3fn": 8, "f8e5m2": 8}
    for name, dtype in TORCH_DTYPES.items():
        assert dtype.itemsize * 8 == (bits.get(name) or int(name[1:]))
        assert dtype.is_complex == (name[0] == "c")
        assert dtype.is_floating_point == (name[0] == "f" or name == "bf16")
        assert dtype.is_signed == (name[0] in "ifc" or name == "bf16")


def test_extensions_are_handed_over(vendors: Vendors, bridge: FakeBridge) -> None:
    vendors.kit("acme")
    vendors.install("acme", "reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_FL_VENDORS", "acme,reference")
        list_devices()
    acme, reference = bridge.extensions
    assert acme == (0, 0)
    assert all(reference)


def test_a_device_that_does_not_say_what_is_free_stays(vendors: Vendors) -> None:
    vendors.kit("acme", DEVICES=1, LOST=1)
    vendors.install("acme")
    (device,) = list_devices()
    assert (device.free_memory, device.total_memory) == (None, 1 << 26)
    assert "? / 0.06 GiB" in str(list_devices())


# What fails


def test_a_device_that_does_not_open_keeps_its_number(vendors: Vendors, bridge: FakeBridge) -> None:
    vendors.kit("acme", DEVICES=3, OPEN_FAILS=1)
    vendors.install("acme", "reference")
    with pytest.warns(DeviceWarning, match=r"fl:1 \(acme\) cannot be used: .*no power"):
        found = list_devices()
    assert [device.usable for device in found] == [True, False, True]
    assert [device.vendor_index for device in found] == [0, 1, 2]
    assert found[1].refusal == "device_open(1): INTERNAL: no power"
    assert (found[1].name, found[1].execution_model, found[1].dtypes) == (None, None, ())
    assert bridge.places[1] == "fl:1 (acme) cannot be used: device_open(1): INTERNAL: no power"


@pytest.mark.parametrize(
    ("defines", "said"),
    [
        ({"KERNELS": "NEG_KERNEL,NEG_KERNEL"}, "FL-KERNEL-002: device 0 lists aten::neg r1 variant 'generic' twice"),
        ({"KERNELS": '{.struct_size=sizeof(fl_kernel),.kind=7,.op="x"}'}, "FL-LAYOUT-003: device 0, kernel entry 0"),
        ({"INFO": "alloc_align=48"}, "FL-MEM-003: alloc_align is 48, no power of two from 64 to 65536"),
        ({"INFO": "max_align=32"}, "FL-MEM-003: max_align is 32, no power of two from alloc_align on"),
        ({"INFO": "execution_model=3"}, "FL-STREAM-008: execution_model is 3"),
        ({"INFO": "address_model=0"}, "address_model is 0"),
        ({"INFO": "priority_least=-1"}, "FL-STREAM-011: priorities reach from 0 to -1 without 0"),
        ({"INFO": 'name="\\xff"'}, "FL-LAYOUT-009: the device's name is not UTF-8"),
    ],
)  # fmt: skip
def test_what_the_bridge_must_not_rely_on_is_refused(vendors: Vendors, defines: dict[str, Any], said: str) -> None:
    vendors.kit("acme", DEVICES=1, **defines)
    vendors.install("acme")
    with pytest.warns(DeviceWarning):
        (device,) = list_devices()
    assert device.refusal is not None
    assert device.refusal.startswith(said)


@pytest.mark.parametrize(
    ("defines", "step", "said"),
    [
        ({"REFUSES": '"driver 3 is too old"'}, "load", "driver 3 is too old"),
        ({"COUNT_FAILS": '"no access to /dev/acme0"'}, "count", "no access to /dev/acme0"),
        ({"DEVICES": "-1"}, "count", "device_count gave -1"),
    ],
)
def test_a_vendor_that_fails_breaks_nothing_else(
    vendors: Vendors, defines: dict[str, Any], step: str, said: str
) -> None:
    vendors.kit("acme", **defines)
    vendors.kit("zeta", DEVICES=1)
    vendors.install("acme", "zeta")
    with pytest.warns(DeviceWarning) as warned:
        assert names() == [("zeta", 0)]
    (warning,) = warned
    assert str(warning.message).startswith(f"vendor acme (installed) failed to {step}: ")
    assert said in str(warning.message)
    probe = outcome("acme")
    assert (probe.outcome, probe.step, probe.devices) == ("failed", step, ())
    assert said in probe.reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list_devices()  # it was told once


@pytest.mark.parametrize("failure", [RuntimeError("no licence"), ImportError("libacmert.so is missing")])
def test_a_package_that_fails_is_a_vendor_that_fails(vendors: Vendors, failure: Exception) -> None:
    vendors.announce(Point("acme", failure))
    with pytest.warns(DeviceWarning, match=str(failure)):
        assert list_devices() == ()
    assert outcome("acme").step == "find"


def test_files_that_are_no_plugins(vendors: Vendors, tmp_path: Path, plugin: PluginBuilder) -> None:
    text = tmp_path / "text.so"
    text.write_text("hello")
    gone = vendors.kit("gone")
    (gone / "libgone.so").unlink()
    vendors.install("gone", "reference")
    settings(tmp_path, f"devices: [{{type: {text}}}, {{type: gone}}, {{type: acm}}, {{type: {plugin('no_symbol')}}}]")
    with pytest.warns(DeviceWarning):
        assert list_devices() == ()
    probes = probe_report()
    assert [probe.step for probe in probes[:4]] == ["load", "build", "find", "load"]
    reasons = [probe.reason or "" for probe in probes]
    assert "does not begin with the ELF magic number" in reasons[0]
    assert "does not exist and the kit has no build commands" in reasons[1]
    assert reasons[2] == "acm: no such vendor, kit folder or library; vendor names: gone, reference"
    assert "exports no symbol" in reasons[3]
    assert str(list_devices()).startswith(f"no devices\n{text} ({tmp_path}/.torch_fl/config.yaml:1): failed to load: ")


def test_one_plugin_under_two_names_counts_once(vendors: Vendors, tmp_path: Path) -> None:
    folder = vendors.kit("acme", DEVICES=1)
    vendors.install("acme")
    settings(tmp_path, f"devices: [{{type: acme}}, {{type: {folder}}}]")
    with pytest.warns(DeviceWarning, match="is the plugin that acme stands for, too"):
        assert names() == [("acme", 0)]


def test_fewer_devices_than_the_configuration_wants(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", DEVICES=1)
    vendors.install("acme")
    settings(tmp_path, "devices: [{type: acme, count: 4}]")
    with pytest.warns(DeviceWarning, match="has devices: 1, where the configuration wants 4"):
        assert names() == [("acme", 0)]


def test_a_slow_vendor_is_named(vendors: Vendors, monkeypatch: pytest.MonkeyPatch) -> None:
    vendors.kit("acme")
    vendors.install("acme")
    monkeypatch.setattr(discovery, "SLOW", 0)
    with pytest.warns(
        DeviceWarning, match=r"vendor acme \(installed\): took \d+\.\d s to load and to count its devices"
    ):
        list_devices()


def test_a_vendor_that_keeps_everybody_waiting_is_named_meanwhile(
    vendors: Vendors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on as soon as somebody has read its name."""
    told = tmp_path / "told"
    vendors.kit("acme", WAITS=f'"{told}"')
    vendors.install("acme")
    monkeypatch.setattr(vendor_probe, "SLOW", 0.01)
    monkeypatch.setattr(sys, "stderr", Told(told))
    assert len(list_devices()) == 2
    assert "torch_fl: vendor acme has not answered for 0.01 s; waiting\n" in told.read_text()


class Told(io.StringIO):
    """A stderr of which every line is noted in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def flush(self) -> None:
        """A line is complete."""
        self._path.write_text(self.getvalue())


def test_a_full_list_leaves_the_rest_out(vendors: Vendors, bridge: FakeBridge) -> None:
    bridge.limit = 3
    vendors.kit("acme", DEVICES=4)
    vendors.kit("zeta", DEVICES=1)
    vendors.install("acme", "zeta")
    with pytest.warns(DeviceWarning, match="devices from 3 on are left out: there are more than 3 devices"):
        assert names() == [("acme", 0), ("acme", 1), ("acme", 2)]
    assert outcome("zeta").devices == ()


# Building


def kit_that_builds(vendors: Vendors, command: str) -> None:
    folder = vendors.kit("acme", DEVICES=1)
    (folder / "libacme.so").rename(folder / "made.so")
    (folder / "vendor.toml").write_text(
        f'name = "acme"\nlibrary = "libacme.so"\nsources = ["*.so"]\nbuild = ["{command}"]\n'
    )
    vendors.install("acme")


def test_a_build_is_announced_on_stderr(vendors: Vendors, capfd: pytest.CaptureFixture[str]) -> None:
    kit_that_builds(vendors, "cp made.so libacme.so")
    (device,) = list_devices()
    assert capfd.readouterr().err == "torch_fl: building the plugin of acme: cp made.so libacme.so\n"
    assert device.plugin.built_here
    assert device.certification.state == "built here"


def test_a_build_that_fails_shows_the_compilers_words(vendors: Vendors) -> None:
    kit_that_builds(vendors, "echo acme.c:1: error; exit 3")
    with pytest.warns(DeviceWarning, match=r"failed to build: (.|\n)*acme\.c:1: error"):
        assert list_devices() == ()


# Certificates


def certified_kit(vendors: Vendors, tmp_path: Path, **arguments: Any) -> Path:
    """A kit of two devices whose library is in a registry that the settings file names; returns the library."""
    library = vendors.kit("acme") / "libacme.so"
    vendors.kit("zeta", DEVICES=1)
    vendors.install("acme", "zeta")
    certificates.enter(certificates.registry(tmp_path, max_age_days=30), library, **arguments)
    settings(tmp_path, f"certified: require\nregistry: {tmp_path / 'registry'}\n")
    return library


def test_a_certified_plugin_is_let_in_and_others_are_not(vendors: Vendors, tmp_path: Path, bridge: FakeBridge) -> None:
    certified_kit(vendors, tmp_path)
    with pytest.warns(DeviceWarning) as warned:
        found = list_devices()
    assert [(device.vendor, device.usable) for device in found] == [("acme", True), ("acme", True), ("zeta", False)]
    assert str(found[0].certification).startswith("core-1.0-candidate, self-run, until ")
    assert found[2].refusal is not None
    assert found[2].refusal.startswith("its plugin is not certified: no entry for sha256 ")
    assert f"{tmp_path}/.torch_fl/config.yaml:1 says certified: require" in found[2].refusal
    assert bridge.places[2] == f"fl:2 (zeta) cannot be used: {found[2].refusal}"
    assert [str(warning.message) for warning in warned] == [bridge.places[2]]


def test_one_flipped_byte_is_another_plugin(vendors: Vendors, tmp_path: Path) -> None:
    library = certified_kit(vendors, tmp_path)
    data = bytearray(library.read_bytes())
    data[-1] ^= 1  # behind all that is loaded: the library works as before
    library.write_bytes(data)
    with pytest.warns(DeviceWarning, match="its plugin is not certified"):
        assert [device.usable for device in list_devices()] == [False, False, False]


def test_an_expired_certificate_lets_nobody_in(vendors: Vendors, tmp_path: Path) -> None:
    certified_kit(vendors, tmp_path, age=timedelta(days=31))
    with pytest.warns(DeviceWarning, match="its plugin is expired: the certificate ended on "):
        assert not any(device.usable for device in list_devices())


def test_a_file_that_changes_while_it_is_loaded_lets_nobody_in(
    vendors: Vendors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = certified_kit(vendors, tmp_path)
    load = loader.load

    def load_after_a_write(path: Path, **arguments: Any) -> Any:
        if path == library:
            library.write_bytes(library.read_bytes() + b"\0")
        return load(path, **arguments)

    monkeypatch.setattr(loader, "load", load_after_a_write)
    with pytest.warns(DeviceWarning, match=r"its plugin is unknown: .*libacme\.so changed while it was loaded"):
        assert not any(device.usable for device in list_devices())


def test_a_shut_out_device_is_not_opened(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", OPEN_FAILS=0)
    vendors.install("acme", "reference")
    settings(tmp_path, "certified: require")
    with pytest.warns(DeviceWarning):
        found = list_devices()
    assert len(found) == 2  # and no stand-in takes their place
    assert all("certified: require" in (device.refusal or "") for device in found)


def test_a_warning_for_each_uncertified_device(vendors: Vendors, tmp_path: Path) -> None:
    certified_kit(vendors, tmp_path)
    settings(tmp_path, f"certified: warn\nregistry: {tmp_path / 'registry'}\n")
    with pytest.warns(DeviceWarning) as warned:
        assert all(device.usable for device in list_devices())
    (warning,) = warned
    assert str(warning.message).startswith(
        f"the plugin of fl:2 (zeta, {vendors.folder}/zeta/libzeta.so) is not certified"
    )


def test_certificates_that_nobody_asks_for_are_not_looked_at(vendors: Vendors) -> None:
    vendors.kit("acme")
    vendors.install("acme")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vendor_probe, "look_up", lambda *_: pytest.fail("looked up"))
        assert len(list_devices()) == 2
    assert list_devices()[0].certification.state == "not certified"


# Text


def test_the_list_prints_as_a_table(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", DEVICES=2, OPEN_FAILS=1)
    vendors.install("acme")
    with pytest.warns(DeviceWarning):
        text = str(list_devices())
    assert text == repr(list_devices())
    head, headings, *rows = text.splitlines()
    assert head == "2 devices"
    assert re.split(" {2,}", headings)[4:] == ["free / total", "operators", "dtypes", "streams", "certification"]
    assert [re.split(" {2,}", row) for row in rows] == [
        ["fl:0", "acme", "0", "card", "0.06 / 0.06 GiB", "1", "i64", "inline", "not certified"],
        ["fl:1", "acme", "1", "-", "-", "-", "-", "unusable", "not certified"],
        ["fl:1 cannot be used: device_open(1): INTERNAL: no power"],
    ]
    assert {row.index("not certified") for row in rows[:2]} == {headings.index("certification")}


def test_the_same_reason_is_printed_once(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", DEVICES=3, INFO="alloc_align=48")
    vendors.install("acme")
    with pytest.warns(DeviceWarning) as warned:
        text = str(list_devices())
    assert text.splitlines()[5:] == [
        "fl:0, fl:1, fl:2 cannot be used: FL-MEM-003: alloc_align is 48, no power of two from 64 to 65536"
    ]
    assert len(warned) == 3
    # Where the user's code stands; here the fake bridge is between it and discovery.
    assert {Path(warning.filename).name for warning in warned} == {"fake_bridge.py"}


def test_what_a_vendor_says_is_text_and_nothing_else(vendors: Vendors) -> None:
    vendors.kit("acme", DEVICES=1, INFO='name="\\033[31mred"')
    vendors.kit("zeta", REFUSES='"\\033[2Jbad"')
    vendors.install("acme", "zeta")
    with pytest.warns(DeviceWarning):
        text = str(list_devices()) + str(probe_report())
    assert "\\x1b[31mred" in text
    assert "\\x1b[2Jbad" in text
    assert "\x1b" not in text


# Command


def test_the_command_shows_devices_and_vendors(vendors: Vendors) -> None:
    vendors.kit("acme", DEVICES=1)
    vendors.kit("zeta", REFUSES='"driver 3 is too old"')
    vendors.install("acme", "zeta", "reference")
    result = CliRunner().invoke(commands.devices)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "1 device"
    assert lines[2].startswith("fl:0    acme")
    library = vendors.folder / "acme" / "libacme.so"
    assert lines[3:] == [
        "",
        f"acme (installed): fl:0, acme 1.2, {library}",
        f"zeta (installed): failed to load: fl_plugin_query_v1 of {vendors.folder}/zeta/libzeta.so returned "
        "UNIMPLEMENTED: driver 3 is too old",
        "reference (installed): left out: stands in where no other vendor has a device",
    ]
    assert result.stderr == ""  # the report says it, no warning repeats it


def test_the_command_without_a_device_exits_1(vendors: Vendors) -> None:
    vendors.install()
    result = CliRunner().invoke(commands.devices)
    assert (result.exit_code, result.output.splitlines()[0]) == (1, "no devices")


def test_the_command_with_a_wrong_configuration_exits_2(vendors: Vendors, tmp_path: Path) -> None:
    vendors.install()
    path = settings(tmp_path, "precision: quick")
    result = CliRunner().invoke(commands.devices)
    assert result.exit_code == 2
    assert f"{path}:1: precision: 'quick' is not allowed; allowed: accurate, fast" in result.output


def test_the_log_tells_each_step(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", DEVICES=1)
    vendors.install("acme")
    settings(tmp_path, "logging: {level: debug, path: fl.log}")
    list_devices()
    text = (tmp_path / ".torch_fl" / "fl.log").read_text()
    for step in (
        "acme: find",
        "acme: build",
        "acme: read",
        "acme: load",
        "acme: count",
        "INFO torch_fl.devices: acme: ",
    ):
        assert step in text


def test_the_log_tells_what_whoever_has_not_seen_the_machine_asks_for(vendors: Vendors, tmp_path: Path) -> None:
    library = vendors.kit("acme", DEVICES=2) / "libacme.so"
    vendors.install("acme", "reference")
    path = settings(tmp_path, "devices: [{type: acme, count: 1}]\nlogging: {level: debug, path: fl.log}")
    list_devices()
    text = (tmp_path / ".torch_fl" / "fl.log").read_text()
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    for said in (
        rf"INFO torch_fl\.devices: torch-fl {__version__}, torch {re.escape(torch.__version__)}, Python \d",
        rf"INFO torch_fl\.devices: settings: {path}",
        rf"INFO torch_fl\.devices: devices\.0\.count: 1 \({path}:1\)",
        r"DEBUG torch_fl\.devices: precision: accurate \(default\)",
        rf"DEBUG torch_fl\.devices: acme: find took \d+\.\d{{3}} s: kit folder {library.parent}, library {library}",
        rf"DEBUG torch_fl\.devices: acme: read took \d+\.\d{{3}} s: {library}, sha256 {digest}",
        r"DEBUG torch_fl\.devices: acme: load took \d+\.\d{3} s: acme 1\.2, interface minor \d+, header ",
        r"DEBUG torch_fl\.devices: acme: count took \d+\.\d{3} s: devices: 2",
        r"INFO torch_fl\.devices: fl:0: device 0 of acme, card, uuid [0-9a-f]{32}, bytes: 67108864, inline, "
        r"operators: 1, opened in \d+\.\d{3} s",
        rf"INFO torch_fl\.devices: acme: acme 1\.2, {library}, sha256 {digest}, devices: 1 of 2",
        r"INFO torch_fl\.devices: reference: left out: not named by ",
    ):
        assert re.search(said, text), said


def test_a_log_that_cannot_be_written_is_a_warning(vendors: Vendors, tmp_path: Path) -> None:
    vendors.kit("acme", DEVICES=1)
    vendors.install("acme")
    settings(tmp_path, "logging: {level: error, path: /nowhere/fl.log}")
    with pytest.warns(DeviceWarning, match=r"cannot write to /nowhere/fl\.log: No such file or directory"):
        assert len(list_devices()) == 1
