"""A registry of conformance reports: a folder that a gate guards and anyone can check offline.

    policy.json            what is accepted (torch_fl_reports.policy)
    index.json             one line per entry
    keys/<vendor>/*.pem    public keys, each bound to one vendor
    entries/<sha256>.json  the signed envelope about the plugin with this digest

Changes happen under a lock and by renaming finished files into place; a refused submission writes nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock
from pydantic import Field, ValidationError
from torch_fl_spec.registry import load_registry

from torch_fl_reports.attestation import envelope_text
from torch_fl_reports.canonical import MalformedJson, read_json
from torch_fl_reports.gate import Decision, Setting, judge
from torch_fl_reports.gate_reason import Reason
from torch_fl_reports.gate_run import NOT_RECOMPUTABLE
from torch_fl_reports.keys import VENDOR_NAME, BadKey, TrustedKey, load_public
from torch_fl_reports.model import Name, Part, Profile, RealInstant, Report, Sha256
from torch_fl_reports.policy import Policy, read_policy

INDEX_SCHEMA: Final = "torch-fl-registry/v1"


class NotARegistry(ValueError):
    """A folder that is no registry, or one whose files are damaged."""


class Entry(Part):
    """One line of the index: enough for a list, all of it repeated from the envelope."""

    plugin: Sha256
    vendor: Name
    version: Name
    interface: Name
    profile: Profile
    evidence: Literal["self-run"]
    report_id: Sha256
    keyid: Name
    accepted: RealInstant
    expires: RealInstant


class Index(Part):
    """index.json."""

    schema_: Literal["torch-fl-registry/v1"] = Field(alias="schema")
    entries: list[Entry]


class Registry:
    """An existing registry folder. Raises NotARegistry when it is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.policy = read_policy((folder / "policy.json").read_bytes())
        except FileNotFoundError:
            raise NotARegistry(
                f"{folder} is no registry: it has no policy.json; make one with `torch-fl registry init {folder}`"
            ) from None
        except (OSError, MalformedJson, ValidationError) as error:
            raise NotARegistry(f"{folder} is no registry: policy.json: {error}") from None

    @staticmethod
    def create(folder: Path, policy: Policy) -> Registry:
        """Make an empty registry. Raises FileExistsError when there is one already."""
        if (folder / "policy.json").exists():
            raise FileExistsError(f"{folder} is a registry already; use it, or choose another folder")
        for name in ("keys", "entries"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
        _write(folder / "index.json", _index_text([]))
        _write(folder / "policy.json", policy.text().encode())
        return Registry(folder)

    def entries(self) -> list[Entry]:
        """The index. Raises NotARegistry when it is damaged."""
        try:
            return Index.model_validate(read_json((self.folder / "index.json").read_bytes())).entries
        except (OSError, MalformedJson, ValidationError) as error:
            raise NotARegistry(f"{self.folder}: index.json: {error}") from None

    def keys(self) -> list[TrustedKey]:
        """Every trusted key with its vendor. Raises BadKey for a file that holds none."""
        return [
            TrustedKey(path.parent.name, load_public(path.read_bytes(), str(path)))
            for path in sorted((self.folder / "keys").glob("*/*.pem"))
        ]

    def trust(self, vendor: str, pem: bytes) -> Path:
        """Bind a public key to a vendor. Raises BadKey for a bad name or a key that another vendor holds."""
        if not VENDOR_NAME.fullmatch(vendor):
            raise BadKey(f"vendor name {vendor!a} is not of the form [a-z0-9_]+")
        key = load_public(pem, "the file")
        with self._lock():
            for known in self.keys():
                if known.key.keyid == key.keyid and known.vendor != vendor:
                    raise BadKey(f"this key belongs to {known.vendor!r} already; a key speaks for one vendor")
            path = self.folder / "keys" / vendor / f"{key.keyid[:16]}.pem"
            path.parent.mkdir(exist_ok=True)
            _write(path, pem)
        return path

    def submit(self, envelope: bytes, plugins: Collection[str], now: datetime) -> Decision:
        """Let the gate decide, and write the entry if it agrees. `plugins`: sha256 of the files handed in."""
        with self._lock():
            entries = self.entries()
            registered = {entry.plugin for entry in entries}
            decision = judge(envelope, plugins, self._setting(now, registered))
            if decision.accepted and decision.report is not None and decision.signer is not None:
                entry = self._entry(decision.report, decision.signer, now)
                _write(self.entry_path(entry.plugin), envelope_text(read_json(envelope)))
                _write(self.folder / "index.json", _index_text([*entries, entry]))
        return decision

    def verify(self) -> dict[str, Decision]:
        """Judge every entry again, at the time it was accepted, by today's policy: plugin digest -> decision.

        Needs neither network nor device. Entries without an index line, and lines without an entry, count. Raises
        NotARegistry for a damaged index and BadKey for a damaged key.
        """
        results = {}
        self.keys()  # a damaged key is told even where no entry asks for it
        entries = self.entries()
        for entry in entries:
            results[entry.plugin] = self.verify_entry(entry)
        for path in sorted((self.folder / "entries").glob("*.json")):
            if path.stem not in results:
                results[path.stem] = Decision((Reason("not-indexed", f"{path.name} is not in the index"),))
        return results

    def verify_entry(self, entry: Entry) -> Decision:
        """Judge one line of the index and its envelope again, as `verify` does. Raises BadKey for a damaged key.

        An entry about operators that are not installed here stays good: the gate knew their rows when it accepted it.
        """
        try:
            envelope = self.entry_path(entry.plugin).read_bytes()
        except OSError as error:
            return Decision((Reason("entry-missing", f"no envelope: {error.strerror}"),))
        accepted = instant(entry.accepted)
        # The product's files are not in the registry: the digests that were checked then are named inside.
        trial = judge(envelope, (), self._setting(accepted))
        if trial.report is None or trial.signer is None:
            return trial
        files = [file.sha256 for file in trial.report.subject.files]
        decision = _apart(judge(envelope, files, self._setting(accepted)))
        try:
            agrees = entry == self._entry(trial.report, trial.signer, accepted)
        except (ValueError, OverflowError):  # the envelope says something that no index line can repeat
            agrees = False
        if agrees:
            return decision
        reason = Reason("index", "the index line does not say what the envelope says")
        return replace(decision, reasons=(*decision.reasons, reason))

    def entry_path(self, plugin: str) -> Path:
        """Where the envelope about a plugin digest lies."""
        return self.folder / "entries" / f"{plugin}.json"

    def _setting(self, now: datetime, registered: Collection[str] = ()) -> Setting:
        return Setting(self.policy, self.keys(), now, load_registry().digest, registered)

    def _entry(self, report: Report, signer: TrustedKey, now: datetime) -> Entry:
        return Entry(
            plugin=report.subject.files[0].sha256,
            vendor=report.subject.vendor,
            version=report.subject.version,
            interface=report.interface,
            profile=report.run.profile,
            evidence="self-run",
            report_id=report.report_id,
            keyid=signer.key.keyid,
            accepted=instant_text(now),
            expires=instant_text(instant(report.run.end) + timedelta(days=self.policy.max_age_days)),
        )

    def _lock(self) -> FileLock:
        return FileLock(self.folder / ".lock", timeout=60)


def _apart(decision: Decision) -> Decision:
    """The decision with what can't be computed here taken from the reasons."""
    unchecked = tuple(reason for reason in decision.reasons if reason.code == NOT_RECOMPUTABLE)
    reasons = tuple(reason for reason in decision.reasons if reason.code != NOT_RECOMPUTABLE)
    return replace(decision, reasons=reasons, unchecked=unchecked)


def instant(text: str) -> datetime:
    """Parse RFC 3339 with a final Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def instant_text(time: datetime) -> str:
    """The same, to the second, in UTC."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _index_text(entries: list[Entry]) -> bytes:
    index = Index(schema=INDEX_SCHEMA, entries=sorted(entries, key=lambda entry: entry.plugin))
    data = index.model_dump(mode="json", by_alias=True)
    return (json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole: readers see the old or the new one, never a part."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
