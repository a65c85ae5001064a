"""The registry folder and its commands, as a vendor and a keeper use them."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from torch_fl_reports import registry as registry_module
from torch_fl_reports.commands import registry as registry_command
from torch_fl_reports.commands import report as report_command
from torch_fl_reports.keys import BadKey, generate
from torch_fl_reports.policy_current import current_policy
from torch_fl_reports.registry import NotARegistry, Registry, instant_text
from torch_fl_reports.writer import write_report
from torch_fl_spec.printable import printable

from . import honest
from .conftest import Desk
from .forging import with_totals


def run(*arguments: object) -> Result:
    """Invoke `torch-fl registry ...`; a traceback is never an answer."""
    result = CliRunner().invoke(registry_command, [str(item) for item in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Path]:
    """A report of just now, the plugin, a key and a registry that trusts it: all made by commands."""
    data = honest.run_data()
    now = datetime.now(timezone.utc)
    data["run"] |= {"start": instant_text(now - timedelta(seconds=data["run"]["seconds"])), "end": instant_text(now)}
    write_report(data, honest.rows(data), tmp_path / "report")
    folder, key = tmp_path / "registry", tmp_path / "acme.key"
    assert run("init", folder, "--accept-current").exit_code == 0
    assert run("keygen", key).exit_code == 0
    assert run("trust", "acme", f"{key}.pub", "--registry", folder).exit_code == 0
    return {
        "report": tmp_path / "report",
        "registry": folder,
        "key": key,
        "plugin": honest.plugin_file(tmp_path),
    }


def submit(shop: dict[str, Path], *more: object) -> Result:
    options = ("--registry", shop["registry"], "--key", shop["key"], "--plugin", shop["plugin"])
    return run("submit", shop["report"], *options, *more)


def test_from_report_to_entry(shop: dict[str, Path]) -> None:
    result = submit(shop)
    assert result.exit_code == 0, result.output
    assert "accepted acme 2.3.1, core 1.0-candidate, self-run" in result.output
    assert f"loads sha256 {'ab' * 32} /opt/acme/lib/libacmert.so.4" in result.output
    listed = run("list", "--registry", shop["registry"])
    assert listed.exit_code == 0
    assert "core-1.0-candidate" in listed.output
    assert "unexpired" in listed.output
    verified = run("verify", "--registry", shop["registry"])
    assert verified.exit_code == 0, verified.output
    assert "entries: 1, bad: 0" in verified.output


def test_a_signed_envelope_can_be_handed_in_without_the_key(shop: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "second"
    assert run("init", other, "--accept-current").exit_code == 0
    assert submit(shop, "--save", tmp_path / "signed.json").exit_code == 0
    assert run("trust", "acme", f"{shop['key']}.pub", "--registry", other).exit_code == 0
    arguments = ("submit", tmp_path / "signed.json", "--registry", other, "--plugin", shop["plugin"])
    assert run(*arguments).exit_code == 0


def test_a_refusal_names_its_reasons_and_exits_1(shop: dict[str, Path]) -> None:
    path = shop["report"] / "report.json"
    data = json.loads(path.read_text())
    data["rows"][0]["verdict"] = "fail"
    path.write_text(json.dumps(data))
    result = submit(shop)
    assert result.exit_code == 1
    assert "refused for 3 reasons" in result.output
    for code in ("totals", "report-id", "verdict"):
        assert code in result.output


def test_a_list_tells_what_the_index_says_and_judges_no_entry(shop: dict[str, Path]) -> None:
    assert submit(shop).exit_code == 0
    (entry,) = (shop["registry"] / "entries").glob("*.json")
    entry.write_text("{}")
    verified = run("verify", "--registry", shop["registry"])
    assert verified.exit_code == 1, verified.output
    listed = run("list", "--registry", shop["registry"])
    assert listed.exit_code == 0
    assert " unexpired " in listed.output
    path = shop["registry"] / "index.json"
    index = json.loads(path.read_text())
    index["entries"][0]["expires"] = index["entries"][0]["accepted"]
    path.write_text(json.dumps(index))
    assert " expired " in run("list", "--registry", shop["registry"]).output


def test_rows_of_one_verdict_are_one_reason(desk: Desk, plain: dict[str, Any]) -> None:
    names = [row["id"] for row in plain["rows"] if row["verdict"] == "pass"][:5]
    for row in plain["rows"]:
        if row["id"] in names:
            row["verdict"] = "crash" if row["id"] == names[4] else "fail"
    reasons = [reason.text for reason in desk.submit(with_totals(plain)).reasons if reason.code == "verdict"]
    assert reasons == [
        f"4 rows have verdict fail: {', '.join(names[:3])} and 1 more",
        f"{names[4]} has verdict crash",
    ]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ('{"schema": 1, "schema": 2}', "duplicate-key"),
        ("{", "not-json"),
        ('{"schema": "torch-fl-report/v1"}', "schema"),
    ],
)
def test_a_report_that_is_none_is_refused_without_a_traceback(shop: dict[str, Path], damage: str, code: str) -> None:
    (shop["report"] / "report.json").write_text(damage)
    result = submit(shop)
    assert result.exit_code == 1
    assert code in result.output


def test_another_build_is_refused(shop: dict[str, Path]) -> None:
    shop["plugin"].write_bytes(honest.PLUGIN + b"!")
    result = submit(shop)
    assert result.exit_code == 1
    assert "plugin-digest" in result.output


def test_an_unsigned_report_needs_a_key(shop: dict[str, Path]) -> None:
    result = run("submit", shop["report"], "--registry", shop["registry"], "--plugin", shop["plugin"])
    assert result.exit_code == 2
    assert "--key" in result.output


def test_a_registry_accepts_nothing_until_told_what(tmp_path: Path, shop: dict[str, Path]) -> None:
    shop["registry"] = tmp_path / "empty"
    assert run("init", shop["registry"]).exit_code == 0
    assert run("trust", "acme", f"{shop['key']}.pub", "--registry", shop["registry"]).exit_code == 0
    result = submit(shop)
    assert result.exit_code == 1
    for code in ("suite-digest", "registry-digest", "header-id", "interface", "profile", "effort"):
        assert code in result.output


def test_usage_errors_are_one_line(tmp_path: Path, shop: dict[str, Path]) -> None:
    none = run("list", "--registry", tmp_path)
    assert none.exit_code == 2
    assert f"torch-fl registry init {tmp_path}" in none.output
    assert run("init", shop["registry"]).exit_code == 2
    assert run("keygen", shop["key"]).exit_code == 2
    assert run("trust", "acme", shop["key"], "--registry", shop["registry"]).exit_code == 2
    assert (
        run("trust", "Acm\N{CYRILLIC SMALL LETTER IE}", f"{shop['key']}.pub", "--registry", shop["registry"]).exit_code
        == 2
    )


def test_a_key_speaks_for_one_vendor(desk: Desk, tmp_path: Path) -> None:
    public = (tmp_path / "acme.key.pub").read_bytes()
    with pytest.raises(BadKey, match="belongs to 'acme' already"):
        desk.registry.trust("bolt", public)
    desk.registry.trust("acme", public)
    assert len(desk.registry.keys()) == 1


def test_a_vendor_may_have_several_keys(desk: Desk, plain: dict[str, Any], tmp_path: Path) -> None:
    public = generate(tmp_path / "new.key")
    desk.registry.trust("acme", public.read_bytes())
    assert len(desk.registry.keys()) == 2
    assert desk.submit(plain).accepted


def test_verify_sees_every_kind_of_damage(desk: Desk, plain: dict[str, Any]) -> None:
    assert desk.submit(plain).accepted
    plugin = next(iter(desk.plugins))
    entry, index = desk.registry.entry_path(plugin), desk.folder / "index.json"
    good = entry.read_bytes(), index.read_bytes()

    def codes() -> set[str]:
        results = Registry(desk.folder).verify()
        found = {reason.code for decision in results.values() for reason in decision.reasons}
        entry.write_bytes(good[0])
        index.write_bytes(good[1])
        return found

    assert codes() == set()
    entry.unlink()
    assert codes() == {"entry-missing"}
    entry.write_bytes(good[0].replace(b'"sig": "', b'"sig": "AAAA'))
    assert codes() == {"bad-signature"}
    index.write_bytes(good[1].replace(b"2.3.1", b"9.9.9"))
    assert codes() == {"index"}
    stray = desk.folder / "entries" / ("5" * 64 + ".json")
    stray.write_bytes(good[0])
    assert codes() == {"not-indexed"}
    stray.unlink()
    for key in (desk.folder / "keys").glob("*/*.pem"):
        key.unlink()
    assert codes() == {"untrusted-key"}


def test_an_upgrade_of_the_operators_makes_no_entry_bad(shop: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the gate accepted stays good where its rows can't be computed again, as long as the policy stands by it."""
    assert submit(shop).exit_code == 0
    monkeypatch.setattr(registry_module, "load_registry", lambda: SimpleNamespace(digest="5" * 64))
    verified = run("verify", "--registry", shop["registry"])
    assert verified.exit_code == 0, verified.output
    assert "not-recomputable" in verified.output
    assert "entries: 1, bad: 0" in verified.output
    policy = shop["registry"] / "policy.json"
    policy.write_text(json.dumps({**json.loads(policy.read_text()), "registry_digests": ["5" * 64]}))
    withdrawn = run("verify", "--registry", shop["registry"])
    assert withdrawn.exit_code == 1
    assert "registry-digest" in withdrawn.output


def test_damaged_index_is_named(desk: Desk) -> None:
    (desk.folder / "index.json").write_text("[]")
    with pytest.raises(NotARegistry, match=r"index\.json"):
        desk.registry.entries()


def test_create_refuses_an_existing_registry(desk: Desk) -> None:
    with pytest.raises(FileExistsError):
        Registry.create(desk.folder, current_policy())


def test_render_and_show(shop: dict[str, Path]) -> None:
    (shop["report"] / "report.html").unlink()
    rendered = CliRunner().invoke(report_command, ["render", str(shop["report"])])
    assert rendered.exit_code == 0
    assert (shop["report"] / "report.html").exists()
    shown = CliRunner().invoke(report_command, ["show", str(shop["report"])])
    assert shown.exit_code == 0
    assert "Passed core 1.0-candidate" in shown.output
    assert "kernel.contraction" in shown.output
    assert "/opt/acme/lib/libacmert.so.4" in shown.output


def test_show_names_failures_and_exits_1(shop: dict[str, Path]) -> None:
    data = honest.run_data()
    rows = honest.rows(data)
    rows[0].update(verdict="crash", message="SIGSEGV in run")
    write_report(data, rows, shop["report"])
    shown = CliRunner().invoke(report_command, ["show", str(shop["report"])])
    assert shown.exit_code == 1
    assert "Did not pass core 1.0-candidate" in shown.output
    assert f"crash  {rows[0]['id']}" in shown.output
    assert "SIGSEGV in run" in shown.output


def test_show_says_how_to_repeat_a_failing_case_from_anywhere(shop: dict[str, Path], tmp_path: Path) -> None:
    data = honest.run_data()
    rows = honest.rows(data)
    for row in rows:
        row.pop("worst", None)
    rows[0].update(verdict="fail", message="wrong", violates=["FL-KERNEL-010", "FL-KERNEL-005"])
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro" / "repro.py").touch()
    write_report(data, rows, shop["report"], {rows[0]["id"]: tmp_path / "repro"})
    shown = CliRunner().invoke(report_command, ["show", str(shop["report"])], env={"COLUMNS": "80"})
    (folder,) = (shop["report"].resolve() / "reproducers").iterdir()
    lines = [line.strip() for line in shown.output.splitlines()]
    assert f"reproduce    python {folder / 'repro.py'}" in lines
    assert "may violate  FL-KERNEL-010, FL-KERNEL-005" in lines
    assert any(line.endswith(hashlib.sha256(honest.PLUGIN).hexdigest()) for line in lines), "a digest is whole"
    assert "worst err/T  every row that passed is exact" in lines


def test_show_of_nonsense_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    shown = CliRunner().invoke(report_command, ["show", str(tmp_path)])
    assert shown.exit_code == 2
    assert "is not a report" in shown.output


def test_show_and_render_notice_an_edited_report(shop: dict[str, Path]) -> None:
    path = shop["report"] / "report.json"
    data = json.loads(path.read_text())
    data["rows"][0]["cases"] += 1
    path.write_text(json.dumps(data))
    shown = CliRunner().invoke(report_command, ["show", str(shop["report"])])
    assert shown.exit_code == 1
    assert "the report was changed after it was written" in shown.output
    assert CliRunner().invoke(report_command, ["render", str(shop["report"])]).exit_code == 0
    assert json.loads((shop["report"] / "badge.json").read_text())["color"] == "red"


@pytest.mark.parametrize("text", ["[/red] :smile: \x1b[31m", "\u202e evil"])
def test_what_a_report_says_is_text_and_nothing_else(shop: dict[str, Path], text: str) -> None:
    data = honest.run_data()
    data["subject"]["version"] = text
    rows = honest.rows(data)
    rows[0].update(verdict="fail", message=text)
    write_report(data, rows, shop["report"])
    shown = CliRunner().invoke(report_command, ["show", str(shop["report"])], env={"COLUMNS": "200"})
    assert shown.exit_code == 1
    assert shown.output.count(printable(text)) == 2
    assert text not in shown.output


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("index.json", "[]"),
        ("index.json", '{"schema": "torch-fl-registry/v1", "entries": [{"plugin": 1}]}'),
        ("policy.json", "null"),
        ("keys/acme/zz.pem", "no key"),
    ],
)
@pytest.mark.parametrize("command", ["submit", "list", "verify", "trust"])
def test_a_damaged_registry_is_one_line(shop: dict[str, Path], name: str, content: str, command: str) -> None:
    (shop["registry"] / name).write_text(content)
    commands = {
        "submit": lambda: submit(shop),
        "list": lambda: run("list", "--registry", shop["registry"]),
        "verify": lambda: run("verify", "--registry", shop["registry"]),
        "trust": lambda: run("trust", "acme", f"{shop['key']}.pub", "--registry", shop["registry"]),
    }
    result = commands[command]()
    needed = {"list": ("index.json", "policy.json"), "trust": ("policy.json", "keys/acme/zz.pem")}
    if name in needed.get(command, (name,)):
        assert result.exit_code == 2, result.output
        assert Path(name).name in result.output
    else:
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "change",
    [
        {"max_age_days": 10**9},
        {"waivers": [{"id": "w", "kind": "suite-defect", "rows": ["FL-MEM-001"], "expires": "2026-99-99T00:00:00Z",
                      "text": "t"}]},
    ],
)  # fmt: skip
def test_a_policy_of_impossible_times_is_no_policy(shop: dict[str, Path], change: dict[str, Any]) -> None:
    path = shop["registry"] / "policy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    result = submit(shop)
    assert result.exit_code == 2
    assert "policy.json" in result.output


def test_an_index_of_impossible_times_is_damaged(desk: Desk, plain: dict[str, Any]) -> None:
    assert desk.submit(plain).accepted
    index = desk.folder / "index.json"
    index.write_text(index.read_text().replace("T10:00:00Z", "T99:00:00Z"))
    with pytest.raises(NotARegistry, match=r"index\.json"):
        desk.registry.verify()


def test_a_disk_that_refuses_is_one_line(shop: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path, _: bytes) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("torch_fl_reports.registry._write", refuses)
    result = submit(shop)
    assert result.exit_code == 2
    assert "Permission denied" in result.output


def test_a_submission_that_was_killed_half_way_can_be_repeated(
    desk: Desk, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the entry and its line in the index: the entry counts as a stray, and the next submission heals it."""
    write = registry_module._write

    def killed_at_the_index(path: Path, data: bytes) -> None:
        if path.name == "index.json":
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(registry_module, "_write", killed_at_the_index)
        with pytest.raises(KeyboardInterrupt):
            desk.submit(plain)
    found = desk.registry.verify().values()
    assert {reason.code for decision in found for reason in decision.reasons} == {"not-indexed"}
    assert desk.submit(plain).accepted
    assert not any(decision.reasons for decision in desk.registry.verify().values())


@pytest.mark.parametrize("version", ["1.0[/b]", "[red]1.0", ":smile:"])
def test_a_version_is_no_markup(desk: Desk, plain: dict[str, Any], version: str) -> None:
    plain["subject"]["version"] = version
    assert desk.submit(plain).accepted
    result = run("list", "--registry", desk.folder)
    assert result.exit_code == 0
    assert f" {version} " in result.output


def test_a_plugin_that_is_a_pipe_is_not_waited_for(shop: dict[str, Path]) -> None:
    shop["plugin"] = shop["key"].parent / "fifo"
    os.mkfifo(shop["plugin"])
    result = submit(shop)
    assert result.exit_code == 2
    assert "no regular file" in result.output


def test_no_file_of_a_submission_may_be_registered_already(desk: Desk, plain: dict[str, Any]) -> None:
    """A second file in front of the plugin does not make it another product."""
    assert desk.submit(plain).accepted
    other = hashlib.sha256(b"decoy").hexdigest()
    plain["subject"]["files"].insert(0, {"name": "decoy.so", "sha256": other, "size": 5})
    desk.plugins.add(other)
    assert "already-registered" in {reason.code for reason in desk.submit(plain).reasons}
