"""Metrics with bounded labels, and log events of one line each."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from gateway import errors
from gateway.errors import RejectReason
from gateway.observability.metrics import RefusalReason, Telemetry

LEG = ("tools/call", "echo", "completed", "2026-07-28")


def sample(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def leg_labels(method: str, tool: str, outcome: str, wire: str) -> dict[str, str]:
    return {"method": method, "tool": tool, "outcome": outcome, "wire": wire}


def test_a_leg_counts_once_by_how_it_ended_and_in_the_histogram_of_its_tool() -> None:
    telemetry = Telemetry(["echo"])
    for _ in range(2):
        telemetry.leg_started()
        telemetry.leg_finished(*LEG, 0.02)
    assert sample(telemetry, "gateway_legs_total", **leg_labels(*LEG)) == 2
    assert sample(telemetry, "gateway_leg_seconds_count", method="tools/call", tool="echo") == 2
    assert sample(telemetry, "gateway_leg_seconds_bucket", method="tools/call", tool="echo", le="0.025") == 2
    assert sample(telemetry, "gateway_leg_seconds_bucket", method="tools/call", tool="echo", le="0.01") == 0


def test_legs_in_flight_go_up_and_down() -> None:
    telemetry = Telemetry(["echo"])
    telemetry.leg_started()
    telemetry.leg_started()
    assert sample(telemetry, "gateway_legs_in_flight") == 2
    telemetry.leg_finished(*LEG, 0.1)
    assert sample(telemetry, "gateway_legs_in_flight") == 1


@pytest.mark.parametrize("outcome", ["completed", "input_required", "failed", "cancelled"])
def test_every_way_a_leg_ends_has_a_name(outcome: str) -> None:
    telemetry = Telemetry(["echo"])
    telemetry.leg_started()
    telemetry.leg_finished("tools/call", "echo", outcome, "2026-07-28", 0.1)
    assert sample(telemetry, "gateway_legs_total", **leg_labels("tools/call", "echo", outcome, "2026-07-28")) == 1


def test_what_a_client_makes_up_never_becomes_a_label_nor_stays_in_memory() -> None:
    telemetry = Telemetry(["echo"])
    for number in range(100):
        telemetry.leg_started()
        telemetry.leg_finished(f"m{number}", f"t{number}", f"o{number}", f"w{number}", 0.1)
    assert sample(telemetry, "gateway_legs_total", **leg_labels("other", "other", "other", "other")) == 100
    text = generate_latest(telemetry.registry).decode()
    assert text.count("gateway_legs_total{") == 1
    assert len(telemetry._leg_children) == 1


def test_sealed_and_opened_states_count_by_key() -> None:
    telemetry = Telemetry()
    telemetry.state_sealed(b"\x0a", 300, 0.0001)
    telemetry.state_sealed(b"\x0a", 5000, 0.0001)
    telemetry.state_opened(b"\x0b", 0.0001)
    assert sample(telemetry, "gateway_states_sealed_total", key_id="0a") == 2
    assert sample(telemetry, "gateway_states_opened_total", key_id="0b") == 1
    assert sample(telemetry, "gateway_states_opened_total", key_id="0a") is None
    assert sample(telemetry, "gateway_state_bytes_sum") == 5300
    assert sample(telemetry, "gateway_state_bytes_bucket", le="512.0") == 1


@pytest.mark.parametrize("reason", RejectReason)
def test_every_rejection_has_a_counter_from_the_start(reason: RejectReason) -> None:
    telemetry = Telemetry()
    assert sample(telemetry, "gateway_state_rejections_total", reason=reason.value) == 0
    telemetry.state_rejected(reason)
    assert sample(telemetry, "gateway_state_rejections_total", reason=reason.value) == 1


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_refusal_has_a_counter_from_the_start(reason: RefusalReason) -> None:
    telemetry = Telemetry()
    assert sample(telemetry, "gateway_requests_refused_total", reason=reason.value) == 0
    telemetry.request_refused(reason)
    assert sample(telemetry, "gateway_requests_refused_total", reason=reason.value) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.HttpRefusal(401, ""), RefusalReason.UNAUTHENTICATED),
        (errors.HttpRefusal(403, ""), RefusalReason.FORBIDDEN),
        (errors.HttpRefusal(413, ""), RefusalReason.BODY_TOO_LARGE),
        (errors.HttpRefusal(415, ""), RefusalReason.MEDIA_TYPE),
        (errors.HttpRefusal(405, ""), RefusalReason.HTTP_METHOD),
        (errors.HttpRefusal(431, ""), RefusalReason.HEADERS_TOO_LARGE),
        (errors.TooDeep(100), RefusalReason.TOO_DEEP),
        (errors.TooManyAnswers(100), RefusalReason.TOO_MANY_ANSWERS),
        (errors.RateLimited(1), RefusalReason.RATE_LIMITED),
        (errors.TooManyStreams(32, 1), RefusalReason.TOO_MANY_STREAMS),
        (errors.TooManyTasks(32, 1), RefusalReason.TOO_MANY_TASKS),
        (errors.TaskStoreDown(), RefusalReason.TASK_STORE_DOWN),
        (errors.ParseError(""), RefusalReason.PARSE_ERROR),
        (errors.InvalidRequest(""), RefusalReason.INVALID_REQUEST),
        (errors.MethodNotFound(""), RefusalReason.METHOD_NOT_FOUND),
        (errors.InvalidParams(""), RefusalReason.INVALID_PARAMS),
        (errors.InvalidRequestState(RejectReason.EXPIRED), RefusalReason.INVALID_STATE),
        (errors.HeaderMismatch(""), RefusalReason.HEADER_MISMATCH),
        (errors.MissingCapability(("elicitation",)), RefusalReason.MISSING_CAPABILITY),
        (errors.UnsupportedVersion([], ""), RefusalReason.UNSUPPORTED_VERSION),
        (errors.InternalError(""), RefusalReason.INTERNAL_ERROR),
        (errors.ProtocolError(7, ""), RefusalReason.OTHER),
        (KeyError("x"), RefusalReason.OTHER),
    ],
)
def test_every_refusal_of_the_error_tree_has_its_reason(error: Exception, reason: RefusalReason) -> None:
    assert RefusalReason.of(error) is reason


def test_calls_that_grew_too_large_and_connections_too_many_are_counted() -> None:
    telemetry = Telemetry()
    telemetry.state_too_large()
    telemetry.connection_refused()
    assert sample(telemetry, "gateway_states_too_large_total") == 1
    assert sample(telemetry, "gateway_connections_refused_total") == 1


def test_two_processes_worth_of_metrics_do_not_share_a_registry() -> None:
    first, second = Telemetry(["echo"]), Telemetry(["echo"])
    first.leg_started()
    assert sample(second, "gateway_legs_in_flight") == 0


def test_no_series_says_when_a_counter_started_and_other_registries_keep_theirs() -> None:
    telemetry = Telemetry(["echo"])
    telemetry.hop_sent(answered=True)
    others = CollectorRegistry()
    Counter("others", "Of the application around a mounted gateway.", registry=others)
    text = generate_latest(telemetry.registry).decode()
    assert 'gateway_hop_messages_sent_total{result="answered"} 1.0' in text
    assert re.findall(r"^\w+_created\b", text, re.MULTILINE) == []
    assert "others_created" in generate_latest(others).decode()
