"""The audit log: one line for each leg and each refusal, without secrets."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import (
    GatewayError,
    HttpRefusal,
    InsufficientScope,
    InvalidParams,
    InvalidRequestState,
    RejectReason,
)
from gateway.observability.audit import MAX_TARGET_CHARS, MESSAGES, AuditLog
from gateway.observability.logs import JsonFormatter, TextFormatter
from gateway.sealing.principal import Principal

BOB = Principal(issuer="https://id.example", subject="bob", client_id="app")


def make(*, as_json: bool) -> tuple[AuditLog, list[bytes]]:
    lines: list[bytes] = []
    return AuditLog(lines.append, "r1", lambda: 1_700_000_000.25, as_json=as_json), lines


def test_a_leg_is_one_line_with_who_what_and_the_ids_that_join_the_legs_of_a_call() -> None:
    audit, lines = make(as_json=True)
    audit.leg(BOB, "tools/call", "echo", flow="f" * 32, leg=2, outcome="completed", seconds=0.0123456)
    assert [json.loads(line) for line in lines] == [
        {
            "time": "2023-11-14T22:13:20.250Z",
            "level": "info",
            "message": "leg finished",
            "replica": "r1",
            "audit": "leg",
            "method": "tools/call",
            "target": "echo",
            "flow": "f" * 32,
            "leg": 2,
            "outcome": "completed",
            "ms": 12.346,
            "issuer": "https://id.example",
            "subject": "bob",
            "client_id": "app",
        }
    ]


@pytest.mark.setting("replica_id")
@pytest.mark.parametrize(
    ("as_json", "told"),
    [(True, b',"upstream":"bugs","upstream_ms":8.000,"flow"'), (False, b" upstream=bugs upstream_ms=8.000 flow=")],
)
def test_the_line_for_a_leg_of_a_relay_names_the_other_server_and_its_time(as_json: bool, told: bytes) -> None:
    audit, lines = make(as_json=as_json)
    audit.leg(
        BOB,
        "tools/call",
        "x",
        flow="f" * 32,
        leg=1,
        outcome="completed",
        seconds=0.01,
        upstream="bugs",
        away_seconds=0.008,
    )
    audit.leg(BOB, "tools/call", "x", flow="f" * 32, leg=1, outcome="completed", seconds=0.01)
    relayed, own = lines
    assert b"late_answer" not in relayed
    assert told in relayed
    assert b"upstream" not in own


@pytest.mark.parametrize(("as_json", "told"), [(True, b',"late_answer":true,'), (False, b" late_answer=true ")])
def test_the_line_for_a_leg_says_that_its_answer_came_too_late(as_json: bool, told: bytes) -> None:
    audit, lines = make(as_json=as_json)
    audit.leg(
        None, "tools/call", "x", flow="f", leg=2, outcome="completed", seconds=1, upstream="bugs", late_answer=True
    )
    (line,) = lines
    assert told in line


@pytest.mark.setting("replica_id")
@pytest.mark.parametrize("as_json", [True, False])
def test_audit_lines_have_the_form_of_log_lines(as_json: bool) -> None:
    audit, lines = make(as_json=as_json)
    audit.leg(BOB, "tools/call", "echo", flow="f" * 32, leg=2, outcome="completed", seconds=0.01)
    audit.refused(InvalidParams("no"), BOB)
    audit.task(BOB, "tasks/cancel", "echo", task="t", phase="cancelled")
    audit.operator("root", "tasks/cancel", "echo", task="t", owner="0" * 64, phase="waiting")
    formatter = JsonFormatter("r1") if as_json else TextFormatter()
    for line, (kind, message) in zip(lines, MESSAGES.items(), strict=True):
        record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "name": "x", "created": 1_700_000_000.25})
        record.audit = kind
        same = formatter.format(record)
        if as_json:
            assert list(json.loads(line))[:5] == [name for name in json.loads(same) if name != "logger"]
            assert json.loads(line) | json.loads(same) == json.loads(same) | json.loads(line)
        else:
            assert line.decode().startswith(same.replace(" audit=", " replica=r1 audit=") + " ")


@pytest.mark.parametrize(
    ("seconds", "ms"), [(0.0123456, "12.346"), (0.0005, "0.500"), (0.0, "0.000"), (61.0000004, "61000.000")]
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_leg_has_its_milliseconds_to_the_microsecond(seconds: float, ms: str, as_json: bool) -> None:
    audit, lines = make(as_json=as_json)
    audit.leg(BOB, "tools/call", "echo", flow="f" * 32, leg=2, outcome="completed", seconds=seconds)
    assert (f'"ms":{ms},' if as_json else f" ms={ms} ").encode() in lines[0]


@pytest.mark.parametrize(
    ("error", "reason", "cause"),
    [
        (InvalidRequestState(RejectReason.NOT_AUTHENTIC), "invalid_state", "not_authentic"),
        (InsufficientScope({"admin"}), "forbidden", "scope"),
        (HttpRefusal(401, "Unauthorized"), "unauthenticated", None),
        (InvalidParams("Unknown tool: x"), "invalid_params", None),
    ],
)
def test_a_refusal_says_the_reason_that_it_is_counted_under_and_the_real_cause(
    error: GatewayError, reason: str, cause: str | None
) -> None:
    audit, lines = make(as_json=True)
    audit.refused(error, method="tools/call", target="x", client="192.0.2.1")
    told = json.loads(lines[0])
    assert (told["audit"], told["reason"], told["client"]) == ("refused", reason, "192.0.2.1")
    assert told.get("cause") == cause


@pytest.mark.parametrize("as_json", [True, False])
def test_a_long_method_or_target_of_a_refused_request_is_cut(as_json: bool) -> None:
    audit, lines = make(as_json=as_json)
    audit.refused(InvalidParams("no"), BOB, method="m" * 100_000, target="t" * 100_000)
    (line,) = lines
    assert (line.count(b"m" * MAX_TARGET_CHARS), line.count(b"t" * MAX_TARGET_CHARS)) == (1, 1)
    assert len(line) < 3 * MAX_TARGET_CHARS


def test_unknown_fields_are_left_out() -> None:
    audit, lines = make(as_json=True)
    audit.refused(HttpRefusal(413, "too large"))
    assert list(json.loads(lines[0])) == ["time", "level", "message", "replica", "audit", "reason"]


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.booleans(),
)
def test_a_caller_cannot_write_a_second_line_or_another_field(subject: str, target: str, as_json: bool) -> None:
    audit, lines = make(as_json=as_json)
    audit.leg(
        Principal("", subject, ""), "tools/call", target, flow="f" * 32, leg=1, outcome="completed", seconds=0.001
    )
    (line,) = lines
    text = line.decode()
    assert len(text.splitlines()) == 1
    if as_json:
        told = json.loads(text)
        assert (told["subject"], told["target"]) == (subject, target[:MAX_TARGET_CHARS])
    else:
        fields = text.split(" outcome=")
        assert len([part for part in fields if part.startswith("completed ")]) == 1
