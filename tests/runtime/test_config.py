"""The settings file: what it may say, what is said of a mistake, and which of file and environment holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_fl import config
from torch_fl.config import Config, ConfigError, DeviceRule, Fallback, Logging, Pool

from . import settings_file

pytestmark = pytest.mark.usefixtures("home")

Write = Callable[[str], Path]

ARTICLE = """\
devices:
  - type: vendor_a
    count: 2
    memory_fraction: 0.9
  - type: vendor_b
    count: 1
    memory_fraction: 0.8
fallback:
  enable_cpu_fallback: true
  enable_generic_kernel: true
logging:
  level: info
  path: /var/log/torch_fl.log
"""


@pytest.fixture
def write(home: Path) -> Write:
    """write(text): the user's file."""

    def write(text: str) -> Path:
        return settings_file.write(home, text)

    return write


def source_of(key: str) -> str:
    """Where a value in force came from."""
    return {setting.key: setting.source for setting in config.load().settings()}[key]


def complaint() -> str:
    with pytest.raises(ConfigError) as raised:
        config.load()
    return str(raised.value)


def test_without_a_file_the_defaults_hold() -> None:
    loaded = config.load()
    assert loaded.config == Config()
    assert {setting.source for setting in loaded.settings()} == {"default"}


def test_the_articles_file(write: Write) -> None:
    write(ARTICLE)
    assert config.load().config == Config(
        devices=(DeviceRule("vendor_a", 2, 0.9), DeviceRule("vendor_b", 1, 0.8)),
        fallback=Fallback(enable_generic_kernel=True, enable_cpu_fallback=True),
        logging=Logging("info", "/var/log/torch_fl.log"),
    )


def test_every_key(write: Write, home: Path) -> None:
    write(
        "devices: [{type: ./kits/a}]\npool: {memory_fraction: 1}\n"
        "fallback: {enable_generic_kernel: false, enable_cpu_fallback: off, on_fallback: error}\n"
        "precision: fast\ncertified: require\nregistry: reg\nlogging: {level: debug, path: ~/x.log}\n"
    )
    folder = home / ".torch_fl"
    assert config.load().config == Config(
        devices=(DeviceRule(str(folder / "kits" / "a")),),
        pool=Pool(1.0),
        fallback=Fallback(False, False, "error"),
        precision="fast",
        certified="require",
        registry=str(folder / "reg"),
        logging=Logging("debug", str(home / "x.log")),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "devices:\nfallback:\nlogging:\n"])
def test_what_is_commented_out_says_nothing(write: Write, text: str) -> None:
    write(text)
    assert config.load().config == Config()


def test_a_date_is_the_name_it_looks_like(write: Write) -> None:
    path = write("registry: 2026-01-01\n")
    assert config.load().config.registry == str(path.parent / "2026-01-01")


def test_a_list_without_devices_is_not_the_default(write: Write) -> None:
    write("devices: []\n")
    assert config.load().config.devices == ()


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("precision: quick\n", 1, "precision: 'quick' is not allowed; allowed: accurate, fast"),
        ("\ncertified: yes\n", 2, "certified: True is not allowed; allowed: ignore, warn, require"),
        (
            "fallback:\n  enable_cpu_falback: true\n",
            2,
            "fallback.enable_cpu_falback: unknown key; allowed: enable_generic_kernel, enable_cpu_fallback, on_fa",
        ),
        ("presicion: fast\n", 1, "presicion: unknown key; allowed: devices, pool, fallback, precision, certified, "),
        (
            "fallback:\n  enable_cpu_fallback: 1\n",
            2,
            "fallback.enable_cpu_fallback: 1 is not allowed; allowed: true or false",
        ),
        (
            "devices:\n  - type: a\n  - type: b\n    memory_fraction: 1.5\n",
            4,
            "devices.1.memory_fraction: 1.5 is not allowed; allowed: a number above 0 and of at most 1",
        ),
        (
            "devices:\n  - type: a\n    memory_fraction: .nan\n",
            3,
            "devices.0.memory_fraction: nan is not allowed; allowed: a number above 0 and of at most 1",
        ),
        (
            "devices:\n  - type: a\n    count: 0\n",
            3,
            "devices.0.count: 0 is not allowed; allowed: a whole number of at least 1",
        ),
        ("devices:\n  - count: 1\n", 2, "devices.0.type: missing; needed: text"),
        (
            "devices: vendor_a\n",
            1,
            "devices: 'vendor_a' is not allowed; allowed: a list, each entry with the keys type, count, memory_fra",
        ),
        ("devices: [vendor_a]\n", 1, "devices.0: 'vendor_a' is not allowed; allowed: the keys type, count, memory_"),
        ("logging: {level: 3}\n", 1, "logging.level: 3 is not allowed; allowed: debug, info, warning, error"),
        ("precision: fast\nprecision: accurate\n", 2, "precision: this key stands twice, first at "),
        ("devices: [{type: a}, {type: a}]\n", 1, "devices: 'a' is named twice, first at "),
        ("a: b: c\n", 1, "this is not YAML: mapping values are not allowed here"),
        ("- 1\n", 1, "keys and values are needed"),
    ],
)
def test_a_mistake_names_file_line_key_and_what_is_allowed(write: Write, text: str, line: int, said: str) -> None:
    path = write(text)
    assert complaint().startswith(f"{path}:{line}: {said}")


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    path = write("precision: quick\ncertified: maybe\npool: {memory_fraction: 0}\n")
    assert [line.rpartition(": ")[0].partition(" ")[0] for line in complaint().splitlines()] == [
        f"{path}:3:",
        f"{path}:1:",
        f"{path}:2:",
    ]


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: " + "[" * 5000 + "\n", "? !!binary aGk=\n: 1\n", "\udcff"])
def test_no_file_leads_to_a_traceback(home: Path, write: Write, text: str) -> None:
    path = write("")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert str(path) in complaint()


def test_a_merge_key_is_no_doubled_key(write: Write) -> None:
    write("devices:\n  - &one {type: a, count: 2}\n  - {<<: *one, type: b}\n")
    assert config.load().config.devices == (DeviceRule("a", 2), DeviceRule("b", 2))


def test_the_variable_names_another_file(write: Write, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("precision: fast\n")
    other = home / "other.yaml"
    other.write_text("certified: warn\n")
    monkeypatch.setenv("TORCH_FL_CONFIG", str(other))
    assert config.load().config == Config(certified="warn")
    monkeypatch.setenv("TORCH_FL_CONFIG", str(home / "gone.yaml"))
    assert complaint() == f"{home}/gone.yaml: no such file; TORCH_FL_CONFIG names it"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("TORCH_FL_MEMORY_FRACTION", "0.5", "pool.memory_fraction", 0.5),
        ("TORCH_FL_GENERIC_KERNEL", "0", "fallback.enable_generic_kernel", False),
        ("TORCH_FL_CPU_FALLBACK", "False", "fallback.enable_cpu_fallback", False),
        ("TORCH_FL_ON_FALLBACK", "error", "fallback.on_fallback", "error"),
        ("TORCH_FL_PRECISION", "fast", "precision", "fast"),
        ("TORCH_FL_CERTIFIED", "require", "certified", "require"),
        ("TORCH_FL_REGISTRY", "/reg", "registry", "/reg"),
        ("TORCH_FL_LOG_LEVEL", "debug", "logging.level", "debug"),
        ("TORCH_FL_LOG_PATH", "/x.log", "logging.path", "/x.log"),
    ],
)
@pytest.mark.parametrize("file", [None, "precision: accurate\nfallback: {enable_cpu_fallback: true}\n"])
def test_a_variable_beats_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch, file: str | None, name: str, text: str, key: str, value: Any
) -> None:
    if file is not None:
        write(file)
    monkeypatch.setenv(name, text)
    settings = {setting.key: setting for setting in config.load().settings()}
    assert settings[key].value == value
    assert settings[key].source == f"environment variable {name}"


def test_every_variable_is_tried_and_described() -> None:
    tried = test_a_variable_beats_the_file.pytestmark[1].args[1]
    assert {"TORCH_FL_VENDORS", *(entry[0] for entry in tried)} == set(config.ENVIRONMENT)
    keys = {setting.key for setting in config.Loaded(Config()).settings()}
    assert set(config.ENVIRONMENT.values()) <= keys
    assert config.__doc__ is not None
    described = {line.split()[0] for line in config.__doc__.splitlines() if line.startswith("    TORCH_FL_")}
    assert described == {"TORCH_FL_CONFIG", *config.ENVIRONMENT}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TORCH_FL_CPU_FALLBACK", "maybe", "fallback.enable_cpu_fallback: 'maybe' is not allowed; allowed: true or "),
        ("TORCH_FL_MEMORY_FRACTION", "2", "pool.memory_fraction: 2.0 is not allowed; allowed: a number above 0 and "),
        ("TORCH_FL_CERTIFIED", "always", "certified: 'always' is not allowed; allowed: ignore, warn, require"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_variable_names_it(monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str) -> None:
    monkeypatch.setenv(name, text)
    assert complaint().startswith(f"environment variable {name}: {said}")


@pytest.mark.parametrize("section", ["0.9", "[0.9]", "text", "false", "0"])
def test_a_wrong_section_is_refused_whatever_a_variable_says(
    write: Write, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    for name, text, key in (
        ("TORCH_FL_MEMORY_FRACTION", "0.5", "pool"),
        ("TORCH_FL_ON_FALLBACK", "warn", "fallback"),
        ("TORCH_FL_LOG_LEVEL", "info", "logging"),
    ):
        path = write(f"{key}: {section}\n")
        alone = complaint()
        monkeypatch.setenv(name, text)
        assert complaint() == alone
        assert alone.startswith(f"{path}:1: {key}: ")
        monkeypatch.delenv(name)
    write("pool:\n")
    monkeypatch.setenv("TORCH_FL_MEMORY_FRACTION", "0.5")
    assert config.load().config.pool.memory_fraction == 0.5


def test_an_empty_variable_says_nothing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("precision: fast\n")
    monkeypatch.setenv("TORCH_FL_PRECISION", "")
    assert config.load().config.precision == "fast"


def test_vendors_of_the_variable_keep_what_the_file_says_of_them(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("devices:\n- type: a\n- type: b\n  count: 3\n")
    monkeypatch.setenv("TORCH_FL_VENDORS", "b, c,")
    assert config.load().config.devices == (DeviceRule("b", 3), DeviceRule("c"))
    assert source_of("devices.0.type") == "environment variable TORCH_FL_VENDORS"
    assert source_of("devices.0.count") == f"{path}:4"
    assert source_of("devices.1.count") == "default"


def test_sources_are_lines(write: Write) -> None:
    path = write(ARTICLE)
    assert source_of("devices.1.memory_fraction") == f"{path}:7"
    assert source_of("fallback.enable_generic_kernel") == f"{path}:10"
    assert source_of("precision") == "default"


def test_without_a_file_nothing_heavy_is_imported(home: Path) -> None:
    script = (
        "import sys, torch_fl.config as c; c.load(); "
        "print([name for name in ('pydantic', 'yaml', 'torch_fl.config_file') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_in_force_is_read_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_current", None)
    path = write("precision: quick\n")
    with pytest.raises(ConfigError):
        config.current()
    path.write_text("precision: fast\n")
    assert config.current().config.precision == "fast"
    path.write_text("precision: accurate\n")
    assert config.Setting("precision", "fast", f"{path}:1") in config.effective()
