"""Whether a plugin has a certificate: the entry about its very bytes in a registry, checked here and offline.

The registry's code, and with it pydantic and cryptography, is imported only where there is an entry to check.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch_fl_reports.gate import Decision
    from torch_fl_reports.registry import Entry, Registry

    from torch_fl.config import Config

#: The registry that comes with this package: certificates known when it was made.
SNAPSHOT = Path(__file__).with_name("registry")


def registry_of(config: Config) -> Path:
    """Where the configuration has certificates looked up."""
    return SNAPSHOT if config.registry is None else Path(config.registry)


State = Literal["certified", "expired", "invalid", "built here", "not certified", "unknown"]


@dataclass(frozen=True)
class Certification:
    """What a registry says of one plugin.

    state: "certified" only for a signed entry that holds today; "invalid": there is an entry and it does not hold;
    "built here": none, and the library was compiled on this machine, which no certificate can cover unless it came out
    byte by byte as the certified one; "unknown": the registry, or the file, could not be read.
    reason: why it is not certified; of a certified one, what could not be checked here, else "".
    conformance ("core-1.0"), evidence ("self-run"), expires (RFC 3339): the entry's, None where there is none.
    exceptions: rows that its registry waives.
    """

    state: State
    reason: str = ""
    conformance: str | None = None
    evidence: str | None = None
    expires: str | None = None
    exceptions: int = 0

    @property
    def valid(self) -> bool:
        """Whether `certified: require` lets it pass."""
        return self.state == "certified"

    def __str__(self) -> str:
        if self.state == "certified":
            exceptions = f", exceptions: {self.exceptions}" if self.exceptions else ""
            return f"{self.conformance}, {self.evidence}{exceptions}, until {(self.expires or '')[:10]}"
        return "built here, not certified" if self.state == "built here" else self.state


def look_up(sha256: str, folder: Path, *, vendor: str, built_here: bool, now: datetime | None = None) -> Certification:
    """The certification of a plugin by the registry in a folder.

    sha256: of its bytes. vendor: the name that it gives itself. now: aware, default this moment.
    """
    if not (folder / "policy.json").is_file():
        return Certification("unknown", f"{folder} is no registry: it has no policy.json")
    if not (folder / "entries" / f"{sha256}.json").is_file():
        return Certification(
            "built here" if built_here else "not certified", f"no entry for sha256 {sha256} in registry {folder}"
        )
    from torch_fl_reports.keys import BadKey
    from torch_fl_reports.registry import NotARegistry, Registry

    try:
        registry = Registry(folder)
        entry = next((entry for entry in registry.entries() if entry.plugin == sha256), None)
        if entry is None:
            return Certification("invalid", f"the entry for sha256 {sha256} is not in the index of registry {folder}")
        if entry.vendor != vendor:  # each key of a registry speaks for one vendor
            return Certification("invalid", f"the entry is of vendor {entry.vendor}, the plugin calls itself {vendor}")
        decision = registry.verify_entry(entry)
    except (NotARegistry, BadKey, OSError) as error:
        return Certification("unknown", str(error))
    return _judge(registry, entry, decision, now or datetime.now(timezone.utc))


def _judge(registry: Registry, entry: Entry, decision: Decision, now: datetime) -> Certification:
    from torch_fl_reports.registry import instant
    from torch_fl_spec import INTERFACE

    waived = sum(row.verdict == "waived" for row in decision.report.rows) if decision.report else 0
    facts = (f"{entry.profile}-{entry.interface}", entry.evidence, entry.expires, waived)
    if decision.reasons:
        said = "; ".join(f"{reason.code}: {reason.text}" for reason in decision.reasons)
        return Certification("invalid", f"the entry in registry {registry.folder} does not hold: {said}", *facts)
    if instant(entry.expires) <= now:
        return Certification("expired", f"the certificate ended on {entry.expires[:10]}", *facts)
    if entry.interface.endswith("-candidate") and entry.interface != INTERFACE:
        text = f"the certificate is of interface {entry.interface}, which ended when {INTERFACE} came"
        return Certification("expired", text, *facts)
    note = "signature and bytes were checked; its rows are of other operators than are installed"
    return Certification("certified", note if decision.unchecked else "", *facts)
