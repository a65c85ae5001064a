"""A plugin's certificate as the runtime sees it: by the digest of its bytes, offline, and only while it holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import torch_fl_spec
from torch_fl import certification
from torch_fl.certification import Certification, look_up
from torch_fl.mapped_file import Digest
from torch_fl_reports.model import Waiver
from torch_fl_reports.registry import Registry, instant_text
from torch_fl_spec import abi, loader

from tests.spec.plugin_builder import PluginBuilder

from . import certificates


@pytest.fixture(scope="module")
def _entered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("entered")
    library = folder / "libacme.so"
    library.write_bytes(b"the certified bytes")
    return folder, certificates.enter(certificates.registry(folder), library)


@pytest.fixture
def entered(_entered: tuple[Path, str], tmp_path: Path) -> tuple[Registry, str]:
    """A registry with one entry, for a test to spoil, and the digest that it is about."""
    folder, digest = _entered
    shutil.copytree(folder / "registry", tmp_path / "registry")
    return Registry(tmp_path / "registry"), digest


def of(entered: tuple[Registry, str], now: datetime | None = None) -> Certification:
    registry, digest = entered
    return look_up(digest, registry.folder, vendor="acme", built_here=False, now=now)


def test_an_entry_about_these_bytes_certifies_them(entered: tuple[Registry, str]) -> None:
    found = of(entered)
    (entry,) = entered[0].entries()
    assert found == Certification("certified", "", "core-1.0-candidate", "self-run", entry.expires)
    assert found.valid
    assert str(found) == f"core-1.0-candidate, self-run, until {entry.expires[:10]}"


def test_a_library_built_here_can_be_the_certified_one(entered: tuple[Registry, str]) -> None:
    assert look_up(entered[1], entered[0].folder, vendor="acme", built_here=True).valid


@pytest.mark.parametrize(("built_here", "state"), [(False, "not certified"), (True, "built here")])
def test_other_bytes_have_no_certificate(entered: tuple[Registry, str], built_here: bool, state: str) -> None:
    found = look_up("0" * 64, entered[0].folder, vendor="acme", built_here=built_here)
    assert (found.state, found.valid) == (state, False)
    assert found.reason == f"no entry for sha256 {'0' * 64} in registry {entered[0].folder}"


def test_the_entry_is_not_believed_under_another_name(entered: tuple[Registry, str]) -> None:
    """Somebody copies a good entry to the digest of his own library, in the index too."""
    registry, digest = entered
    other = "5" * 64
    shutil.copy(registry.entry_path(digest), registry.entry_path(other))
    assert of((registry, other)).state == "invalid"
    index = registry.folder / "index.json"
    index.write_text(index.read_text().replace(digest, other))
    found = of((registry, other))
    assert (found.state, found.valid) == ("invalid", False)
    assert "index: the index line does not say what the envelope says" in found.reason


def test_an_entry_speaks_for_one_vendor(entered: tuple[Registry, str]) -> None:
    found = look_up(entered[1], entered[0].folder, vendor="zeta", built_here=False)
    assert (found.state, found.reason) == ("invalid", "the entry is of vendor acme, the plugin calls itself zeta")


def test_it_ends(entered: tuple[Registry, str]) -> None:
    (entry,) = entered[0].entries()
    end = datetime.fromisoformat(entry.expires.replace("Z", "+00:00"))
    assert of(entered, end - timedelta(seconds=1)).valid
    found = of(entered, end)
    assert (found.state, found.valid) == ("expired", False)
    assert found.reason == f"the certificate ended on {entry.expires[:10]}"


def test_an_old_certificate_has_expired(tmp_path: Path) -> None:
    library = tmp_path / "libacme.so"
    library.write_bytes(b"old bytes")
    registry = certificates.registry(tmp_path, max_age_days=30)
    digest = certificates.enter(registry, library, age=timedelta(days=31))
    assert of((registry, digest)).state == "expired"


def test_a_candidates_certificate_ends_with_the_candidate(
    entered: tuple[Registry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_fl_spec, "INTERFACE", "1.0")
    found = of(entered)
    assert (found.state, found.valid) == ("expired", False)
    assert found.reason == "the certificate is of interface 1.0-candidate, which ended when 1.0 came"


def test_a_changed_envelope_does_not_hold(entered: tuple[Registry, str]) -> None:
    path = entered[0].entry_path(entered[1])
    envelope = json.loads(path.read_text())
    envelope["payload"] = envelope["payload"][:-8] + "AAAA" + envelope["payload"][-4:]
    path.write_text(json.dumps(envelope))
    found = of(entered)
    assert found.state == "invalid"
    assert "bad-signature" in found.reason


def test_a_key_that_is_trusted_no_longer_revokes(entered: tuple[Registry, str]) -> None:
    for key in (entered[0].folder / "keys").glob("*/*.pem"):
        key.unlink()
    found = of(entered)
    assert found.state == "invalid"
    assert "untrusted-key" in found.reason


def test_a_suite_that_the_policy_takes_back_revokes(entered: tuple[Registry, str]) -> None:
    path = entered[0].folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"suites": []}))
    found = of(entered)
    assert found.state == "invalid"
    assert "suite-digest" in found.reason


def test_an_entry_that_is_taken_out_of_the_index_revokes(entered: tuple[Registry, str]) -> None:
    index = entered[0].folder / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"entries": []}))
    found = of(entered)
    assert found.state == "invalid"
    assert "is not in the index" in found.reason


def test_other_operators_than_the_runs_are_no_fault(
    entered: tuple[Registry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer torch-fl knows more operators; the certificate still says what its registry accepted."""
    from torch_fl_spec import registry as operators

    newer = operators.Registry(operators.load_registry().operators, "5" * 64)
    monkeypatch.setattr(operators, "load_registry", lambda: newer)
    monkeypatch.setattr("torch_fl_reports.registry.load_registry", lambda: newer)
    found = of(entered)
    assert found.valid
    assert found.reason == "signature and bytes were checked; its rows are of other operators than are installed"
    path = entered[0].folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"registry_digests": []}))
    assert of(entered).state == "invalid"


def test_exceptions_are_told(tmp_path: Path) -> None:
    library = tmp_path / "libacme.so"
    library.write_bytes(b"nearly right")
    waiver = Waiver(
        id="w1",
        kind="suite-defect",
        rows=["FL-MEM-001"],
        expires=instant_text(datetime.now(timezone.utc) + timedelta(days=9)),
        text="the check is wrong",
    )
    registry = certificates.registry(tmp_path, waivers=[waiver.model_dump(exclude_none=True)])
    digest = certificates.enter(registry, library, waivers=(waiver,))
    found = of((registry, digest))
    assert found.valid
    assert str(found).startswith("core-1.0-candidate, self-run, exceptions: 1, until ")


@pytest.mark.parametrize(
    ("damage", "said"),
    [("policy.json", "policy.json"), ("index.json", "index.json"), ("keys/acme/bad.pem", "bad.pem")],
)
def test_a_damaged_registry_is_no_certificate(entered: tuple[Registry, str], damage: str, said: str) -> None:
    (entered[0].folder / damage).write_text("[]")
    found = of(entered)
    assert (found.state, found.valid) == ("unknown", False)
    assert said in found.reason


def test_a_folder_that_is_no_registry(tmp_path: Path) -> None:
    found = look_up("0" * 64, tmp_path, vendor="acme", built_here=True)
    assert (found.state, found.reason) == ("unknown", f"{tmp_path} is no registry: it has no policy.json")


def test_the_snapshot_is_a_registry_that_holds() -> None:
    snapshot = Registry(certification.SNAPSHOT)
    assert not any(decision.reasons for decision in snapshot.verify().values())
    assert look_up("0" * 64, certification.SNAPSHOT, vendor="acme", built_here=False).state == "not certified"


def test_without_an_entry_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from torch_fl.certification import *; look_up('0' * 64, SNAPSHOT, vendor='a', built_here=True);"
        "print([n for n in ('torch_fl_reports', 'pydantic', 'cryptography') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The bytes that are mapped


def address_of(plugin: loader.Plugin) -> int:
    return int(abi.ffi.cast("uintptr_t", plugin.query))


@pytest.fixture
def library(plugin: PluginBuilder, tmp_path: Path) -> Path:
    """A library of this test's own."""
    return Path(shutil.copy(plugin("good"), tmp_path / "own.so"))


def test_a_library_that_stays_as_it_was_is_beyond_doubt(library: Path) -> None:
    digest = Digest.take(library)
    assert digest.doubt(address_of(loader.load(library))) is None


def test_links_are_followed(library: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(library)
    digest = Digest.take(link)
    assert digest.path == library.resolve()
    assert digest.doubt(address_of(loader.load(link))) is None


def test_a_write_between_digest_and_load_shows(library: Path) -> None:
    digest = Digest.take(library)
    data = bytearray(library.read_bytes())
    data[-1] ^= 1  # in the section headers, which nobody loads
    library.write_bytes(data)
    assert digest.doubt(address_of(loader.load(library))) == f"{digest.path} changed while it was loaded"


def test_a_replacement_between_digest_and_load_shows(library: Path, tmp_path: Path) -> None:
    digest = Digest.take(library)
    other = Path(shutil.copy(library, tmp_path / "other.so"))
    os.utime(other, ns=(library.stat().st_atime_ns, library.stat().st_mtime_ns))
    other.replace(library)
    assert digest.doubt(address_of(loader.load(library))) == f"{digest.path} changed while it was loaded"


def test_a_file_that_was_loaded_before_it_was_replaced_shows(library: Path, tmp_path: Path) -> None:
    """dlopen gives what it has under this name, whatever the file holds by now."""
    loader.load(library)
    Path(shutil.copy(library, tmp_path / "other.so")).replace(library)
    digest = Digest.take(library)
    doubt = digest.doubt(address_of(loader.load(library)))
    assert doubt == f"{digest.path} is not the file that was loaded; that was {digest.path} (deleted)"
