"""The trace and the audit log of a call name the upstream, and tell the time there from the time here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.observability.tracing.collector import Collector
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site

pytestmark = pytest.mark.slow

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_a_request_to_an_upstream_is_a_span_below_its_leg_and_a_time_in_the_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with Recording() as upstream, Collector() as collector:
        entry = {"rec": {"url": upstream.url, "gateway": {}}}
        settings = {**collector.environ, "GATEWAY_AUDIT_LOG": str(audit), "GATEWAY_LOG_FORMAT": "json"}
        with Site(tmp_path / "site", entry, settings=settings, names=("r1",)) as site:
            site.wait_listed("rec")
            async with site.user() as user:
                await user.call("rec__echo", {"text": "a"}, _meta={"traceparent": f"00-{TRACE}-{PARENT}-01"})
            spans = collector.wait_for(lambda spans: len([span for span in spans if span.trace_id == TRACE]) == 2)
        (call,) = upstream.of("echo")
    leg, request = sorted((span for span in spans if span.trace_id == TRACE), key=lambda span: span.kind, reverse=True)
    assert (leg.kind, leg.name) == ("SERVER", "tools/call rec__echo")
    assert (request.kind, request.name, request["gateway.upstream"]) == ("CLIENT", "tools/call", "rec")
    assert (request.parent_id, request["gateway.outcome"], request.failed) == (leg.span_id, "completed", False)
    assert call.header("traceparent") == f"00-{TRACE}-{request.span_id}-01"
    assert not [span for span in spans if span.kind == "CLIENT" and span is not request]  # the lists have no call
    (line,) = [json.loads(line) for line in audit.read_text().splitlines() if '"leg"' in line]
    assert line["upstream"] == "rec"
    assert 0 < line["upstream_ms"] <= line["ms"]
