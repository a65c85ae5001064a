"""Vendor kits: finding, reading, building."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from torch_fl_spec import bundled, kits
from torch_fl_spec.kits import Kit, KitError

from tests.spec.plugin_builder import SOURCES, PluginBuilder

# Counts its runs in `log`; includes come from the environment, as for any vendor.
BUILD = """
set -e
echo run >> log
for d in $(echo $FL_INCLUDE | tr : ' '); do flags="$flags -I$d"; done
mkdir -p build
cc -std=c11 -O0 -fPIC -shared $flags -o build/lib.so good.c
"""

MANIFEST = """
name = "small"
library = "build/lib.so"
build = [["sh", "build.sh"]]
sources = ["*.c", "*.h", "build.sh"]
env = ["SMALL_DEVICES"]
[options]
level = "3"
mode = "a b"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kit folder with sources and no library."""
    made = tmp_path / "kit"
    made.mkdir()
    (made / "vendor.toml").write_text(MANIFEST)
    (made / "build.sh").write_text(BUILD)
    for name in ("good.c", "fake.h"):
        shutil.copy(SOURCES / name, made / name)
    return made


def runs(folder: Path) -> int:
    """How often the kit's build command ran."""
    log = folder / "log"
    return log.read_text().count("run") if log.exists() else 0


def test_a_folder_is_read(folder: Path) -> None:
    kit = kits.resolve(folder)
    assert (kit.name, kit.folder, kit.library) == ("small", folder, folder / "build/lib.so")
    assert kit.option_string == "level=3;mode=a b"
    assert kit.env == ("SMALL_DEVICES",)


def test_each_command_is_announced_before_it_runs(folder: Path) -> None:
    kit = kits.resolve(folder)
    announced: list[tuple[str, int]] = []
    for _ in range(2):
        kit.ensure_built(lambda line: announced.append((line, runs(folder))))
    assert announced == [("small: sh build.sh", 0)]


def test_installed_vendors_are_listed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [metadata.EntryPoint(name, "x:y", kits.GROUP) for name in ("b", "c", "a")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == kits.GROUP else [])
    assert kits.installed() == ["a", "b", "c"]


def test_a_library_builds_once_and_again_when_a_source_is_newer(folder: Path) -> None:
    kit = kits.resolve(folder)
    assert kit.ensure_built() == folder / "build/lib.so"
    assert runs(folder) == 1
    future = time.time() + 5
    os.utime(folder / "fake.h", (future, future))
    kit.ensure_built()
    kit.ensure_built()
    assert runs(folder) == 2  # the library now counts as new as its newest source


def test_concurrent_builders_build_once(folder: Path) -> None:
    kit = kits.resolve(folder)
    threads = [threading.Thread(target=kit.ensure_built) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs(folder) == 1


HALF = """mkdir -p build
head -c 100 good.c > build/lib.so
touch linking
while [ ! -e go ]; do sleep 0.01; done
cat good.c >> build/lib.so
"""


def test_a_library_that_is_being_written_is_waited_for(folder: Path) -> None:
    (folder / "build.sh").write_text(HALF)
    kit = kits.resolve(folder)
    sizes: list[int] = []
    builder = threading.Thread(target=kit.ensure_built)
    reader = threading.Thread(target=lambda: sizes.append(kit.ensure_built().stat().st_size))
    builder.start()
    while not (folder / "linking").exists() and builder.is_alive():
        time.sleep(0.01)
    reader.start()
    reader.join(0.5)  # time to be wrong in
    (folder / "go").touch()
    reader.join()
    builder.join()
    assert sizes == [(folder / "build/lib.so").stat().st_size]


def test_a_broken_source_shows_the_compilers_words_and_leaves_no_library(folder: Path) -> None:
    (folder / "good.c").write_text("int broken(;\n")
    with pytest.raises(KitError) as caught:
        kits.resolve(folder).ensure_built()
    assert "small: `sh build.sh`" in str(caught.value)
    assert "good.c:1:" in str(caught.value)
    assert not (folder / "build/lib.so").exists()


def test_what_a_failing_command_wrote_does_not_pass_for_a_library(folder: Path) -> None:
    (folder / "build.sh").write_text("mkdir -p build; echo half > build/lib.so; exit 3\n")
    with pytest.raises(KitError, match="ended with 3"):
        kits.resolve(folder).ensure_built()
    assert not (folder / "build/lib.so").exists()


def test_a_build_without_a_library_is_told(folder: Path) -> None:
    (folder / "build.sh").write_text("true\n")
    with pytest.raises(KitError, match="succeeded but made no"):
        kits.resolve(folder).ensure_built()


@pytest.mark.parametrize("ending", ["", "; false"])
def test_a_folder_in_the_librarys_place_is_told(folder: Path, ending: str) -> None:
    (folder / "build.sh").write_text(f"mkdir -p build/lib.so{ending}\n")
    with pytest.raises(KitError, match="is a folder, not a library" if not ending else "ended with 1"):
        kits.resolve(folder).ensure_built()


@pytest.mark.parametrize("build", ["", 'build = [["true"]]'])
@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("fifo", "no regular file"),
        ("/dev/zero", "no regular file"),
        ("loop", "symbolic links"),
        ("x" * 5000, "too long"),
    ],
)
def test_what_is_no_file_is_never_read(folder: Path, library: str, words: str, build: str) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "vendor.toml").write_text(f'name = "small"\nlibrary = "{library}"\nsources = ["*.c"]\n{build}\n')
    with pytest.raises(KitError, match=words):
        kits.resolve(folder).ensure_built()


def test_what_a_build_leaves_in_the_background_delays_nobody(folder: Path) -> None:
    (folder / "build.sh").write_text("sleep 30 & echo $! > pid; mkdir -p build; touch build/lib.so\n")
    began = time.monotonic()
    kits.resolve(folder).ensure_built()
    os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
    assert time.monotonic() - began < 20


def test_a_build_that_asks_gets_no_answer(folder: Path) -> None:
    (folder / "build.sh").write_text("read answer || exit 4\n")
    with pytest.raises(KitError, match="ended with 4"):
        kits.resolve(folder).ensure_built()


def test_an_absent_build_tool_is_told(folder: Path) -> None:
    (folder / "vendor.toml").write_text(MANIFEST.replace('"sh"', '"no-such-tool"'))
    with pytest.raises(KitError, match=r"cannot run `no-such-tool build\.sh`"):
        kits.resolve(folder).ensure_built()


def test_sources_that_match_nothing_are_told(folder: Path) -> None:
    (folder / "vendor.toml").write_text(MANIFEST.replace('["*.c", "*.h", "build.sh"]', '["*.cu"]'))
    with pytest.raises(KitError, match=r"sources: no file matches \*.cu"):
        kits.resolve(folder).ensure_built()


def test_a_kit_in_a_read_only_folder_builds_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "cache"))
    real: Callable[..., bool] = os.access
    # Root may write anywhere, so the folder's mode alone would not show.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and real(path, mode))
    library = kits.resolve(folder).ensure_built()
    assert library.is_relative_to(tmp_path / "cache")
    assert library.exists()
    assert not (folder / "build").exists()
    assert kits.resolve(folder).ensure_built() == library


def test_a_bare_library_is_a_kit_without_a_build(plugin: PluginBuilder) -> None:
    kit = kits.resolve(str(plugin("good")))
    assert (kit.name, kit.ensure_built(), kit.option_string) == ("good", plugin("good"), "")


def test_a_kit_without_library_and_commands_is_told(tmp_path: Path) -> None:
    with pytest.raises(KitError, match="does not exist and the kit has no build commands"):
        Kit(name="x", folder=tmp_path, library=tmp_path / "x.so").ensure_built()


def test_an_unknown_vendor_lists_the_known_ones() -> None:
    with pytest.raises(KitError) as caught:
        kits.resolve("nonsense")
    assert "reference, reference_inline" in str(caught.value)


def test_a_name_that_no_file_system_takes_is_one_line() -> None:
    with pytest.raises(KitError, match="File name too long"):
        kits.resolve("a" * 5000)


def test_bundled_kits_are_found_by_name() -> None:
    assert kits.resolve("reference").folder == bundled.reference()
    inline = kits.resolve("reference_inline")
    assert inline.folder == bundled.reference() / "inline"
    assert inline.library.parent == kits.resolve("reference").library.parent


def test_a_broken_entry_point_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("broken", "no_such_module:kit", kits.GROUP)
    monkeypatch.setattr(kits, "_entry_points", lambda: {"broken": point})
    with pytest.raises(KitError, match="vendor 'broken': no_such_module:kit failed with ModuleNotFoundError"):
        kits.resolve("broken")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "small"', "", "name: missing"),
        ('name = "small"', 'name = "Small!"', "name: 'Small!'; allowed"),
        ('name = "small"', "name = 3", "name: a non-empty string is needed"),
        ("library =", "libary =", "libary: unknown key; allowed: name, library, build"),
        ('[["sh", "build.sh"]]', '"make"', "build: a list of commands is needed"),
        ('[["sh", "build.sh"]]', "[[1]]", "build: [1] is neither a string nor a list of strings"),
        ('["SMALL_DEVICES"]', "[1]", "env: a list of strings is needed"),
        ('level = "3"', "level = 3", "options.level: a string is needed"),
        ('level = "3"', 'level = "3;x=4"', "options.level: ';' and '=' separate options"),
        ("[options]", "[options", "vendor.toml: Expected"),
        ('"*.h"', '"/etc/*"', "sources: '/etc/*' is no pattern relative to the folder"),
        ('"*.h"', '"**x"', "sources: '**x' is no pattern relative to the folder"),
        ('"*.h"', '""', "sources: '' is no pattern relative to the folder"),
        ('"build.sh"]]', '"a\\u0000b"]]', "build: a NUL character"),
        ('level = "3"', 'level = "\\u0000"', "options: a NUL character"),
    ],
)
def test_a_wrong_manifest_names_file_key_and_what_is_allowed(folder: Path, old: str, new: str, words: str) -> None:
    assert old in MANIFEST
    (folder / "vendor.toml").write_text(MANIFEST.replace(old, new))
    with pytest.raises(KitError) as caught:
        kits.resolve(folder)
    assert words in str(caught.value)
    assert str(folder / "vendor.toml") in str(caught.value)


def test_a_folder_without_a_manifest_is_no_kit(tmp_path: Path) -> None:
    with pytest.raises(KitError, match=r"is no vendor kit: it has no vendor\.toml"):
        kits.resolve(tmp_path)
