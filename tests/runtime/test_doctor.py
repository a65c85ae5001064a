"""`torch-fl doctor`: what it says of vendors that hang, crash, end their process, lack a library, and of the rest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from torch_fl import config
from torch_fl_doctor import children, commands, folders, installation, libraries, log_file, nodes, settings
from torch_fl_doctor.finding import Finding, guarded
from torch_fl_doctor.vendors import Vendors as Look
from torch_fl_spec import kits

from tests.spec.plugin_builder import PluginBuilder

from . import certificates, settings_file
from .vendors import HERE, Vendors

pytestmark = pytest.mark.usefixtures("home")

SECONDS = 120.0  # patience with what answers
LITTLE = 8.0  # with what hangs


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vendors:
    """vendors.kit(...) makes one."""
    folder = tmp_path / "kits"
    folder.mkdir()
    return Vendors(folder, monkeypatch)


def look(home: Path, text: str, patience: float = SECONDS) -> Look:
    """At the vendors of a settings file."""
    settings_file.write(home, text)
    return Look(config.load(), patience)


def of(state: str, findings: Iterable[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.state == state]


# Vendors that break


def test_each_way_to_break_is_told_and_the_next_vendor_is_asked(home: Path, vendors: Vendors) -> None:
    """Those that come to an end at once."""
    text = home / "text.so"
    text.write_text("hello")
    kits_of = {
        "crashes": vendors.kit("crashes", COUNT_DOES="__builtin_trap()"),
        "exits": vendors.kit("exits", COUNT_DOES="exit(0)"),
        "refuses": vendors.kit("refuses", REFUSES='"driver 3 is too old"', SAYS='"found driver 3"'),
        "counts": vendors.kit("counts", COUNT_FAILS='"no \\033[2Jcard answers"'),
        "works": vendors.kit("works", DEVICES=1),
    }
    words = [text, home / "nowhere", *kits_of.values()]
    found = list(look(home, "devices:\n" + "".join(f"- type: {word}\n" for word in words)).check())
    problems = of("problem", found)
    source = f"({home}/.torch_fl/config.yaml:"
    for word, said in (
        (text, "failed to load: .*does not begin with the ELF magic number"),
        (home / "nowhere", "failed to find: .*no such vendor, kit folder or library"),
        (kits_of["crashes"], "signal SIG(ILL|TRAP) while it counted its devices"),
        (kits_of["exits"], "exit code 0 while it counted its devices"),
        (kits_of["refuses"], "failed to load: .*driver 3 is too old"),
        (kits_of["counts"], "failed to count: .*card answers"),
    ):
        assert any(line.startswith(f"{word} {source}") and re.search(said, line) for line in problems), word
    assert f"{kits_of['refuses']} said: found driver 3" in problems
    assert len(problems) == 7
    assert all(finding.advice for finding in found if finding.state != "ok")
    assert of("ok", found)[-1] == "device list: fl:0 works 0"


@pytest.mark.parametrize(
    ("defines", "said"),
    [
        ({"LOAD_DOES": "for (;;) usleep(1000)"}, "no answer for 8 s while its library was loaded"),
        ({"COUNT_DOES": "for (;;) pause()"}, "no answer for 8 s while it counted its devices"),
    ],
)  # fmt: skip
def test_one_that_hangs_is_given_up(home: Path, vendors: Vendors, defines: dict[str, Any], said: str) -> None:
    folder = vendors.kit("hangs", **defines)
    found = list(look(home, f"devices: [{{type: {folder}}}]", LITTLE).check())
    problems = of("problem", found)
    assert said in problems[0]
    assert problems[1:] == ["the device list is empty"]
    assert "TORCH_FL_VENDORS" in found[0].advice


def test_a_device_that_crashes_its_process_is_named_and_those_before_it_count(home: Path, vendors: Vendors) -> None:
    folder = vendors.kit("acme", DEVICES=2, OPEN_DOES="if (index == 1) abort()")
    found = list(look(home, f"devices: [{{type: {folder}}}]").check())
    problems = of("problem", found)
    assert "signal SIGABRT while doing this: open of device 1" in problems[0]
    assert problems[1] == "fl:1 (acme 1): nobody knows whether it opens"
    assert "fl:0 (acme 0) opens, 0.06 of 0.06 GiB free, operators: 1" in of("ok", found)


def test_a_library_that_is_missing_is_named_with_who_needs_it(home: Path, vendors: Vendors) -> None:
    folder = vendors.kit("acme")
    driver, library = vendors.folder / "libacmedriver.so.7", folder / "libacme.so"
    stub = home / "stub.c"
    stub.write_text("int acme_driver(void) { return 7; }\n")
    cc = ["cc", "-shared", "-fPIC"]
    subprocess.run([*cc, "-Wl,-soname,libacmedriver.so.7", "-o", driver, stub], check=True)
    subprocess.run([*cc, "-Wl,--no-as-needed", "-o", library, stub, driver], check=True)
    driver.unlink()
    needed = libraries.needed_by(library)
    assert needed.missing == (("libacmedriver.so.7", str(library)),)
    assert any(path.name.startswith("libc.so") for path in needed.found)
    found = list(look(home, f"devices: [{{type: {folder}}}]").check())
    assert f"libacmedriver.so.7, which {library} needs, is not found" in of("problem", found)[0]
    assert "LD_LIBRARY_PATH" in found[0].advice
    assert len(of("problem", found)) == 2  # that, and the list that is empty for it


def test_a_library_of_another_release_is_told_in_the_loaders_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "./a.so: /lib/libc.so.6: version `GLIBC_2.99' not found (required by ./a.so)"
    monkeypatch.setattr(libraries, "_ldd", lambda _: f"{said}\n\tlibc.so.6 => /lib/libc.so.6 (0x01)\n")
    (complaint,) = libraries.needed_by(Path("a.so")).complaints
    assert complaint.endswith("/lib/libc.so.6: version `GLIBC_2.99' not found (required by ./a.so)")


# Lists that are shorter than wanted


def test_fewer_and_more_devices_than_the_configuration_wants(home: Path, vendors: Vendors) -> None:
    less, more = vendors.kit("less", DEVICES=1, OPEN_FAILS=0), vendors.kit("more", DEVICES=3)
    found = list(look(home, f"devices: [{{type: {less}, count: 2}}, {{type: {more}, count: 1}}]").check())
    problems = of("problem", found)
    assert f"has devices: 1, where {home}/.torch_fl/config.yaml:1 wants 2" in problems[0]
    assert problems[1:] == ["fl:0 (less 0) does not open: device_open(0): INTERNAL: no power"]
    assert any("devices: 3, and `count` admits 1" in line for line in of("warning", found))
    assert of("ok", found)[-1] == "device list: fl:0 less 0 (cannot be used), fl:1 more 0"


def test_a_demand_for_certificates_that_shuts_devices_out(home: Path, vendors: Vendors) -> None:
    certified, other = vendors.kit("acme", DEVICES=1), vendors.kit("other", DEVICES=1, OPEN_DOES="abort()")
    certificates.enter(certificates.registry(home), certified / "libacme.so")
    text = f"devices: [{{type: {certified}}}, {{type: {other}}}]\nregistry: {home / 'registry'}\n"
    found = list(look(home, f"{text}certified: require\n").check())
    (line,) = of("problem", found)
    assert line.startswith(f"{other} ")
    assert "its plugin is not certified: no entry for sha256" in line
    assert f"{home}/.torch_fl/config.yaml:3 says certified: require" in line
    assert "fl:0 (acme 0) opens, 0.06 of 0.06 GiB free, operators: 1" in of("ok", found)


def test_one_plugin_under_two_names(home: Path, vendors: Vendors) -> None:
    folder = vendors.kit("acme", DEVICES=1)
    found = list(look(home, f"devices: [{{type: {folder}}}, {{type: {folder / 'libacme.so'}}}]").check())
    (line,) = of("problem", found)
    assert "is the plugin that" in line
    assert of("ok", found)[-1] == "device list: fl:0 acme 0"


def install(home: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """A package whose entry point is a vendor, for this process and for children."""
    folder = home / "site"
    info = folder / f"{name}_kit-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}_kit\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{kits.GROUP}]\n{name} = {name}_kit:folder\n")
    (folder / f"{name}_kit.py").write_text(f"def folder():\n    {body}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))


def test_an_installed_vendor_without_a_device_lets_the_reference_stand_in(
    home: Path, vendors: Vendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vendors.kit("acme", DEVICES=0)
    install(home, monkeypatch, "acme", f"return {str(folder)!r}")
    found = list(Look(config.load(), SECONDS).check())
    assert "acme: answers, and has no device" in of("problem", found)
    warnings = of("warning", found)
    assert warnings == ["no other vendor has a device: fl:0 is the reference device, which computes on the CPU"]
    assert of("ok", found)[-1].startswith("device list: fl:0 reference 0, ")

    monkeypatch.setenv("TORCH_FL_VENDORS", "reference")
    found = list(Look(config.load(), SECONDS).check())
    assert of("warning", found) == ["acme: installed, and left out: not named by environment variable TORCH_FL_VENDORS"]


def test_a_package_that_ends_the_process_is_a_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(home, monkeypatch, "acme", "raise SystemExit('no licence')")
    monkeypatch.setenv("TORCH_FL_VENDORS", "acme")
    found = list(Look(config.load(), SECONDS).check())
    (line, _) = of("problem", found)
    assert line.startswith("acme (environment variable TORCH_FL_VENDORS): exit code 1 while its package was asked")
    assert line.endswith("SystemExit: no licence")


# Device files


def denied(monkeypatch: pytest.MonkeyPatch, *refused: Path) -> None:
    """os.access refuses these and what is below them, as it does to a user who is not root."""
    access = os.access

    def fake(path: str | Path, mode: int) -> bool:
        if mode != os.F_OK and any(Path(path) == each or each in Path(path).parents for each in refused):
            return False
        return access(path, mode)

    monkeypatch.setattr(os, "access", fake)


def test_device_files_that_libraries_name(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"\x7fELF\0/dev/acme%d\0/dev/acme_ctl\0/dev/null\0/dev/%s/x\0/dev/shm/x\0/dev/open\0/dev/cut")
    assert nodes.named_in([library, tmp_path / "gone.so"]) == ["/dev/acme*", "/dev/acme_ctl", "/dev/open"]


def test_a_device_file_that_this_user_may_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("card0", "card1", "card2"):
        (tmp_path / name).touch()
    (tmp_path / "card0").chmod(0o660)
    (tmp_path / "card1").chmod(0o600)
    found = nodes.existing([f"{tmp_path}/card*", f"{tmp_path}/none*"])
    assert found == [f"{tmp_path}/card{n}" for n in range(3)]
    denied(monkeypatch, tmp_path / "card0", tmp_path / "card1")
    monkeypatch.setattr(nodes, "_group", lambda _: "render")
    monkeypatch.setattr(nodes, "_user", lambda _: "ann")
    monkeypatch.setattr(nodes, "_members", lambda _: [])
    open_, first, second = nodes.check([found[0]], found)
    assert (open_.state, open_.text) == ("ok", f"device files that this user may open: {found[2]}")
    assert first == Finding(
        "problem",
        f"{found[0]} is -rw-rw---- ann:render, and user ann may not open it",
        "`sudo usermod -aG render ann`, then log in again; a container needs --group-add render",
    )
    assert (second.state, "udev rule" in second.advice) == ("warning", True)
    monkeypatch.setattr(nodes, "_members", lambda _: ["ann"])
    (_, first, _) = nodes.check([found[0]], found)
    assert "log in again, or `newgrp render`" in first.advice


def test_device_files_that_a_driver_has_open(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open("rb"):
        assert "/dev/null" not in nodes.open_here()  # says nothing of a card
        monkeypatch.setattr(nodes, "_EVERYBODYS", re.compile("/dev/zero"))
        assert "/dev/null" in nodes.open_here()
    seen = Look(config.load(), SECONDS)
    child = children.Child(({"files": []}, {"files": ["/dev/acme0"]}), True, "exit code 0", "")
    seen._note_nodes("acme", child, libraries.Needed(()))
    assert seen.used == {"/dev/acme0"}


def test_device_files_that_are_not_there_are_told_of_a_vendor_without_devices(home: Path, vendors: Vendors) -> None:
    folder = vendors.kit("acme", COUNT_FAILS='"cannot open " "/dev/acme_ctl" "\\0/dev/acme%d"')
    seen = look(home, f"devices: [{{type: {folder}}}]")
    list(seen.check())
    (line,) = (finding.text for finding in commands._permissions(seen) if "there is no such file" in finding.text)
    assert line == f"{folder}'s libraries name /dev/acme*, /dev/acme_ctl, and there is no such file"


# Folders


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCH_FL_CACHE", str(cache))
    (line,) = folders.check(None)
    assert (line.state, line.text) == ("ok", f"{cache} does not exist yet and can be made")
    (cache / "bridge").mkdir(parents=True)
    (cache / "locks").mkdir()
    (line,) = folders.check(None)
    assert line.text == f"{cache} can be written"
    with monkeypatch.context() as patch:
        denied(patch, cache / "bridge")
        (line,) = folders.check(None)
        assert line.state == "problem"
        assert line.text.startswith(f"{cache / 'bridge'} cannot be written: it belongs to ")
    denied(monkeypatch, tmp_path)
    (line,) = folders.check(None)
    assert (line.state, "TORCH_FL_CACHE" in line.advice) == ("problem", True)


def test_a_settings_file_that_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "config.yaml"
    path.touch()
    denied(monkeypatch, path)
    (line,) = of("problem", folders.check(path))
    assert line.startswith(f"{path} cannot be read: it belongs to ")


# Configuration


def test_what_is_wrong_in_the_configuration_and_what_nobody_reads(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_PRECISION", "quick")
    monkeypatch.setenv("TORCH_FL_VENDOR", "acme")
    (home / ".torch_fl").mkdir()
    (home / ".torch_fl" / "config.yml").touch()
    found = list(settings.check(*settings.load()))
    assert of("problem", found) == [
        "environment variable TORCH_FL_PRECISION: precision: 'quick' is not allowed; allowed: accurate, fast"
    ]
    assert of("warning", found) == [
        f"{home}/.torch_fl/config.yml is there, and is not read",
        "TORCH_FL_VENDOR is set, and nothing reads it",
    ]
    assert found[-1].advice == "did you mean TORCH_FL_VENDORS?"


# Log


def test_the_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, why in ((tmp_path, "it is a folder"), (tmp_path / "none" / "fl.log", f"no folder {tmp_path / 'none'}")):
        (line,) = of("problem", log_file.check(config.Logging(path=str(path))))
        assert why in line
    denied(monkeypatch, tmp_path)
    (line,) = of("problem", log_file.check(config.Logging(path=str(tmp_path / "fl.log"))))
    assert "no permission" in line


def test_the_last_run_is_read_from_the_log(tmp_path: Path) -> None:
    path = tmp_path / "fl.log"
    logging = config.Logging(path=str(path))
    assert of("ok", log_file.check(logging)) == [f"the log can be written to {path}, level info"]
    stamp = "2026-01-02 03:04:05,678"
    path.write_text(
        f"{stamp} 11 WARNING torch_fl.devices: of an earlier run\n"
        f"{stamp} 12 INFO torch_fl.devices: acme: load\n"
        f"{stamp} 12 WARNING torch_fl.devices: vendor acme (installed) failed to load: no driver\n"
        f"{stamp} 12 INFO torch_fl: something else\n"
    )
    found = list(log_file.check(logging))
    assert of("warning", found) == [f"the last run, {stamp}: vendor acme (installed) failed to load: no driver"]
    with path.open("a") as file:
        file.write(f"{stamp} 13 INFO torch_fl.devices: fl:0: device 0 of acme\n")
    assert of("ok", log_file.check(logging))[-1] == f"the last run's last line, {stamp}: fl:0: device 0 of acme"


# Installation


def test_no_compiler_and_no_bridge_is_told_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "nosuchcxx")
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl_spec.cli", "doctor", "--patience", "300"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 1, done.stderr
    assert "warning  the bridge to this torch is not compiled yet\n" in done.stdout
    assert (
        "problem  the bridge to this torch has to be compiled once, and there is no C++ compiler: CXX is" in done.stdout
    )
    assert "-> Install one (Debian: apt-get install g++" in done.stdout
    assert "fl:0 (reference 0) opens" in done.stdout  # and the rest is told all the same
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        *("installation", "driver", "permission", "configuration", "log"),
        "problems: 1, warnings: 2",
    ]
    assert not list((tmp_path / "cache").glob("bridge/*"))


def test_a_torch_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so: cannot allocate memory')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (line,) = of("problem", installation.check(SECONDS))
    assert line == "torch cannot be imported: OSError: libtorch_cpu.so: cannot allocate memory"


def test_a_torch_that_keeps_everybody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(installation, "_SECONDS", 0.0)
    (line,) = (finding for finding in installation.check(LITTLE) if finding.state == "problem")
    assert line.text == "torch cannot be imported: no answer for 8 s"
    assert "`--patience 600` waits longer" in line.advice


def test_a_torch_of_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "from types import SimpleNamespace as _\n__version__ = '2.9.1'\nversion = _(git_version='')\n"
        "_C = _(_get_privateuse1_backend_name=lambda: 'privateuseone')\n"
    )
    (tmp_path / "torch" / "utils").mkdir()
    (tmp_path / "torch" / "utils" / "__init__.py").touch()
    (tmp_path / "torch" / "utils" / "backend_registration.py").write_text(
        "generate_methods_for_privateuse1_backend = rename_privateuse1_backend = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (line,) = of("problem", installation.check(SECONDS))
    assert line.startswith("torch-fl works with torch >=2.11,<2.15, and torch 2.9.1 is installed")


# The command and its children


def test_a_check_that_fails_itself_is_a_finding() -> None:
    def broken() -> Iterable[Finding]:
        yield Finding("ok", "first")
        raise KeyError("x")

    found = list(guarded(broken))
    assert [finding.state for finding in found] == ["ok", "problem"]
    assert "KeyError" in found[1].text


def test_wrong_usage() -> None:
    assert CliRunner().invoke(commands.doctor, ["--patience", "0"]).exit_code == 2


def test_what_a_child_leaves_behind_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaver.py").write_text(
        "import subprocess, sys\n"
        "from torch_fl_doctor.children import Notes\n"
        "left = subprocess.Popen(['sleep', '1000'])\n"
        "print('hello')\n"
        "notes = Notes(sys.argv[1])\n"
        "notes.write(step='leave', left=left.pid)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = children.run("leaver", [], lambda _: 60.0)
    assert (child.finished, child.end, child.said, child.step) == (False, "exit code 0", "hello", "leave")
    left = Path(f"/proc/{child.find('left')}/stat")
    for _ in range(1000):  # killed it is; the kernel may take a moment
        if not left.exists() or left.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the process that the child started is still there")


def test_signals_by_name() -> None:
    assert children._ended(-signal.SIGSEGV) == "signal SIGSEGV"
    assert children._ended(-63) == "signal 63"
    assert children._ended(3) == "exit code 3"


def test_the_plugins_of_the_loaders_tests_end_in_a_line(home: Path, plugin: PluginBuilder) -> None:
    names = ("query_crash", "no_symbol", "query_fails", "missing_slots", "odd_strings", "careless")
    assert (HERE.parent / "spec" / "plugins").is_dir()
    found = list(look(home, "devices:\n" + "".join(f"- type: {plugin(name)}\n" for name in names)).check())
    problems = of("problem", found)
    for name in names[:4]:
        assert any(line.startswith(str(plugin(name))) for line in problems), name
    assert "signal SIGABRT while its library was loaded" in problems[0]
