"""The gate as a function: pure, complete in its reasons, and of one mind with `torch_fl_reports.totals`."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch_fl_reports.attestation import sign, sign_payload
from torch_fl_reports.gate import Setting, judge
from torch_fl_reports.model import Report
from torch_fl_reports.totals import HARMLESS, ORDER, compute, decide
from torch_fl_spec.registry import load_registry

from .conftest import NOW, Desk, statement


def setting(desk: Desk, **fields: Any) -> Setting:
    values: dict[str, Any] = {
        "policy": desk.registry.policy,
        "keys": desk.registry.keys(),
        "now": NOW,
        "installed_registry": load_registry().digest,
    }
    return Setting(**values | fields)


def test_same_input_same_answer_and_nothing_touched(desk: Desk, honest_report: Report) -> None:
    envelope = sign(honest_report, desk.signer)
    before = desk.tree()
    answers = [judge(envelope, desk.plugins, setting(desk)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].accepted
    assert desk.tree() == before


def test_all_reasons_are_given_at_once(desk: Desk, plain: dict[str, Any]) -> None:
    plain["run"]["in_process"] = True
    plain["suite"]["source_digest"] = "5" * 64
    plain["rows"].pop()
    codes = {reason.code for reason in desk.submit(plain).reasons}
    assert {"in-process", "suite-digest", "row-missing", "totals"} <= codes


def test_rows_of_other_operators_are_not_guessed_at(desk: Desk, honest_report: Report) -> None:
    """An installation with another operator registry cannot know the closed set, so it says only that."""
    decision = judge(sign(honest_report, desk.signer), desk.plugins, setting(desk, installed_registry="5" * 64))
    assert [reason.code for reason in decision.reasons] == ["not-recomputable"]


@pytest.mark.parametrize("verdict", ORDER)
def test_a_verdict_lets_through_or_does_not(honest_report: Report, verdict: str) -> None:
    rows = [honest_report.rows[0].model_copy(update={"verdict": verdict}), *honest_report.rows[1:]]
    assert decide(honest_report.run, rows).certified == (verdict in HARMLESS)
    unclaimed = decide(honest_report.run, rows, {rows[0].id})
    assert unclaimed.certified == (verdict in ("pass", "waived"))


def test_an_empty_run_is_not_certified(honest_report: Report) -> None:
    assert decide(honest_report.run, []).reasons == ("no row ran",)


def test_totals_are_of_the_rows(honest_report: Report) -> None:
    rows = copy.copy(honest_report.rows)
    sums = compute(honest_report.run, rows)
    assert sums.rows == sum(sums.verdicts.values()) == len(rows)
    assert sums.cases == honest_report.run.cases


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in JSON data, as a path of keys and indices."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, item in children:
        found += places(item, (*path, key))
    return found


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "../..", "9999-99-99T99:99:99Z", "-", "", 10**400, {}, {"a": 1}, nested(950)]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_no_document_makes_the_gate_stumble(desk: Desk, honest_report: Report, data: st.DataObject) -> None:
    """Whatever is signed, the answer is a decision: a traceback would be a way past the keeper's eyes."""
    document = statement(honest_report.plain())
    rows = document["predicate"]["report"]["rows"]
    del rows[40:-40], document["predicate"]["report"]["declarations"]["kernels"][0][6:]
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        place = data.draw(st.sampled_from(places(document)), label="place")
        parent = document
        for key in place[:-1]:
            parent = parent[key]
        if data.draw(st.booleans(), label="drop"):
            del parent[place[-1]]
        else:
            parent[place[-1]] = data.draw(ODD_VALUES, label="value")
    payload = json.dumps(document).encode()
    decision = judge(sign_payload(payload, desk.signer), desk.plugins, setting(desk))
    assert not decision.accepted
    assert decision.reasons


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_no_changed_byte_of_an_envelope_is_accepted(desk: Desk, honest_report: Report, data: st.DataObject) -> None:
    """Any change to the signed text, the signature or the type of what was signed is seen."""
    envelope = json.loads(sign(honest_report, desk.signer))
    field = data.draw(st.sampled_from(["payload", "payloadType", "sig", "keyid"]))
    holder = envelope if field in envelope else envelope["signatures"][0]
    at = data.draw(st.integers(0, len(holder[field].rstrip("=")) - 3))
    new = data.draw(st.sampled_from("AZaz09+/"))
    changed = holder[field][:at] + new + holder[field][at + 1 :]
    assume(changed != holder[field])
    holder[field] = changed
    assert not judge(json.dumps(envelope).encode(), desk.plugins, setting(desk)).accepted
