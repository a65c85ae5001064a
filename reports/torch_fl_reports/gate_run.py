"""The gate on a report's head: whose, of which bytes, judged by which suite, in what kind of run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from torch_fl_spec.kernel_table import digest_of
from torch_fl_spec.printable import is_printable

from torch_fl_reports.attestation import Statement
from torch_fl_reports.gate_reason import Reason
from torch_fl_reports.keys import VENDOR_NAME
from torch_fl_reports.model import Report
from torch_fl_reports.policy import Policy

NOT_RECOMPUTABLE = "not-recomputable"
"""Code of the reason that is none against the report: what speaks for or against it can't be computed here."""

ROUNDING = 2.0
"""Seconds by which a run's length may differ from its two ends, which may be rounded to the second."""

CLOCK_SKEW = timedelta(minutes=10)
"""How far a vendor's clock may be ahead of the registry's."""


def identity(report: Report, key_vendor: str) -> Iterator[Reason]:
    """The report speaks of the vendor that the signing key belongs to."""
    vendor = report.subject.vendor
    if not VENDOR_NAME.fullmatch(vendor):
        yield Reason("vendor-name", f"vendor name {vendor!a} is not of the form [a-z0-9_]+")
    elif vendor != key_vendor:
        yield Reason("vendor", f"the report is about {vendor!r}, the key belongs to {key_vendor!r}")


def named(report: Report) -> Iterator[Reason]:
    """What stands in lists of certificates is one line that shows as it is."""
    if not is_printable(report.subject.version):
        yield Reason("unsafe-name", f"version {report.subject.version!a} holds characters that do not show")


def subject(statement: Statement, plugins: Collection[str], registered: Collection[str]) -> Iterator[Reason]:
    """Statement, report and the files handed in are about the same bytes, which have no entry yet."""
    files = statement.predicate.report.subject.files
    if len(files) != 1:  # a second one would leave open which of them is the plugin that the entry is about
        yield Reason("subject", f"the report is about {len(files)} files; a run tests one, the plugin")
    stated = [(item.name, item.digest.sha256) for item in statement.subject]
    if stated != [(file.name, file.sha256) for file in files]:
        yield Reason("subject", "the statement's subject and the report's files differ")
    tested = {file.sha256 for file in files}
    for file in files:
        if file.sha256 not in plugins:
            yield Reason("plugin-digest", f"the tested {file.name} ({file.sha256}) was not handed in")
    for plugin in sorted(set(plugins) - tested):
        yield Reason("plugin-digest", f"the file handed in ({plugin}) is not one that was tested")
    for digest in sorted(tested & set(registered)):
        yield Reason(
            "already-registered",
            f"plugin {digest} has an entry already (`torch-fl registry list`); hand in a new build",
        )


def suite(report: Report, policy: Policy, installed_registry: str) -> Iterator[Reason]:
    """Suite, operator registry, header, interface and profile are ones that the policy accepts."""
    digest = report.suite.source_digest
    versions = {item.version for item in policy.suites if item.source_digest == digest}
    if not versions:
        yield Reason("suite-digest", f"suite {digest} is not one that this registry accepts")
    elif report.suite.version not in versions:
        yield Reason("suite-version", f"the suite with this digest is not version {report.suite.version!r}")
    operators = report.suite.registry_digest
    if operators not in policy.registry_digests:
        yield Reason("registry-digest", f"operator registry {operators} is not one that this registry accepts")
    elif operators != installed_registry:
        text = f"its rows can't be computed again here, where operator registry {operators} isn't the one installed"
        yield Reason(NOT_RECOMPUTABLE, text)
    if report.abi.header_id not in policy.header_ids:
        yield Reason("header-id", f"header {report.abi.header_id} is not a released one")
    if report.interface not in policy.interfaces:
        yield Reason("interface", f"interface {report.interface!r} is not one that this registry accepts")
    if report.run.profile not in policy.profiles:
        yield Reason("profile", f"profile {report.run.profile} is not one that this registry accepts")
    if report.run.effort not in policy.efforts:
        yield Reason("effort", f"effort {report.run.effort} is not one that this registry accepts")


def declared_table(report: Report) -> Iterator[Reason]:
    """The kernel table in the declarations is the one whose hash was taken from the plugin."""
    computed = digest_of(report.declarations.model_dump(mode="json")["kernels"])
    if computed != report.abi.table_hash:
        yield Reason("table-hash", f"the declared kernels hash to {computed}, the report says {report.abi.table_hash}")


def declared_devices(report: Report) -> Iterator[Reason]:
    """The devices are told apart, each has its kernel table, and each is of a kind that the interface knows."""
    declared = report.declarations
    indices = [device.index for device in declared.devices]
    if not indices or indices != list(range(len(indices))):
        yield Reason("declarations", f"the devices declared are numbered {indices}; each is listed once, from 0 on")
    if len(indices) != len(declared.kernels):
        yield Reason("declarations", f"{len(indices)} devices are declared with {len(declared.kernels)} kernel tables")
    for device in declared.devices:
        for field, known in (("execution_model", ("ASYNC", "INLINE")), ("address_model", ("LINEAR", "HANDLE"))):
            if getattr(device, field) not in known:
                text = f"device {device.index} declares {field} {getattr(device, field)!a:.80}, not one of {known}"
                yield Reason("declarations", text)


def conditions(report: Report, policy: Policy, now: datetime) -> Iterator[Reason]:
    """A whole, isolated, finished run, at a believable time."""
    run = report.run
    if run.partial:
        yield Reason("partial", "only a selection of the rows was run")
    if run.interrupted:
        yield Reason("interrupted", "the run was interrupted")
    if run.in_process:
        yield Reason("in-process", "the plugin ran inside the judge's process")
    if run.exit != 0:
        yield Reason("exit", f"the run ended with exit status {run.exit}")
    try:
        start, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (run.start, run.end))
    except ValueError as error:
        yield Reason("time", f"start or end is not a time: {error}")
        return
    if end < start:
        yield Reason("time", f"the run ends ({run.end}) before it starts ({run.start})")
    elif abs((end - start).total_seconds() - run.seconds) > ROUNDING or run.seconds == 0:
        yield Reason("time", f"the run lasts {run.seconds} s, from {run.start} to {run.end}")
    if end > now + CLOCK_SKEW:
        yield Reason("clock-ahead", f"the run ends at {run.end}, which is still to come")
    if now - end > timedelta(days=policy.max_age_days):
        yield Reason("too-old", f"the run ended at {run.end}, more than {policy.max_age_days} days ago")
