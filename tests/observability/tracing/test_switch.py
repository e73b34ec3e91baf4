"""Traces are off unless the environment asks for them, and never block anything."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from gateway.process.services import asks_for_traces, make_tracing, trace_problem
from loadtest.cluster import free_port
from tests.integration.fleet import Fleet
from tests.observability.tracing.calling import Calling
from tests.observability.tracing.collector import Collector
from tests.observability.tracing.conftest import TOOLS

pytestmark = pytest.mark.slow

TRACED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_SERVICE_NAME": "tools"}, False),
    ],
)
def test_traces_are_asked_for_by_a_collector_or_an_exporter(environ: dict[str, str], *, asked: bool) -> None:
    assert asks_for_traces(environ) is asked


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        (ENDPOINT, None),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, None),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
                "OTEL_TRACES_EXPORTER": "otlp",
            },
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL must be http/protobuf",
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER must be otlp or none"),
    ],
)
def test_traces_that_cannot_be_sent_are_reported(
    environ: dict[str, str], problem: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert trace_problem(environ) == problem
    if problem is not None:
        assert make_tracing("r1", environ) is None
        assert [record.__dict__["reason"] for record in caplog.records] == [problem]
        assert caplog.records[0].levelno == logging.WARNING


def test_without_the_extra_a_process_serves_untraced_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "gateway.observability.tracing", raising=False)
    assert make_tracing("r1", ENDPOINT) is None
    assert "pip install opentelemetry-sdk" in caplog.records[0].__dict__["reason"]


def test_where_traces_are_off_nothing_that_makes_them_is_loaded(tmp_path: Path, collector: Collector) -> None:
    with Fleet(tmp_path, {**TOOLS, **collector.environ, "OTEL_TRACES_EXPORTER": "none"}, names=["off"]) as fleet:
        for module in ("gateway.observability.tracing", "opentelemetry.exporter.otlp"):
            assert Calling(fleet.replicas, TRACED).text("imported", name=module) == "False"
        assert Calling(fleet.replicas, TRACED).text("imported", name="gateway.calls.runner") == "True"
    assert not any(span.process == "off" for span in collector.spans())


def test_the_flag_of_a_client_traces_nothing_that_the_operator_does_not_want(
    tmp_path: Path, collector: Collector
) -> None:
    environ = {**TOOLS, **collector.environ, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    with Fleet(tmp_path, environ, names=["sparing"]) as fleet:
        Calling(fleet.replicas, TRACED, TRACED, TRACED, tasks=False).text("travel", purse="full")
        assert Calling(fleet.replicas, TRACED).text("imported", name="gateway.observability.tracing") == "True"
        assert fleet["sparing"].terminate() == 0
    assert not any(span.process == "sparing" for span in collector.spans())


def test_calls_do_not_notice_that_the_collector_is_down_and_one_line_reports_it(tmp_path: Path) -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_BSP_SCHEDULE_DELAY": "10"}
    limits = {"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with Fleet(tmp_path, {**TOOLS, **away, **limits}, names=["r1"]) as fleet:
        calling = Calling(fleet.replicas, tasks=False)
        for _ in range(20):
            assert calling.text("travel", purse="full").startswith("Harwich, booked Esbjerg")
        assert fleet["r1"].terminate() == 0
        told = [line for line in fleet["r1"].log_lines() if line.get("level") in ("warning", "error")]
        assert {line["message"] for line in told} <= {
            "the collector does not accept traces",
            "traces lost: the collector did not accept them in time",
        }
        assert len(told) <= 2
