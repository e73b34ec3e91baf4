"""Refusals of a replica's server are counted, and have the same form as those of the endpoint."""

from __future__ import annotations

import json

import pytest

from gateway.http.callbacks import Cause, Refusal
from gateway.observability.metrics import Telemetry
from gateway.web.origins import OriginPolicy
from gateway.web.server_callbacks import server_callbacks

PAGES = OriginPolicy(("mcp.example.com",), ("https://app.example.com",), loopback=False)


def nothing(_scope: object) -> None:
    pass


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_is_counted_under_its_own_reason(cause: Cause) -> None:
    telemetry = Telemetry()
    server_callbacks(telemetry, nothing, nothing, PAGES).client_refused(cause)
    counted = telemetry.registry.get_sample_value("gateway_requests_refused_total", {"reason": cause.value})
    assert counted == 1


@pytest.mark.parametrize("replica_id", ["r1", None])
def test_a_refusal_is_a_json_rpc_error_that_names_the_replica_if_replicas_are_named(replica_id: str | None) -> None:
    callbacks = server_callbacks(Telemetry(), nothing, nothing, PAGES, replica_id=replica_id)
    headers, body = callbacks.write_refusal(Refusal(431, "Why"), [])
    assert dict(headers).get(b"x-gateway-replica") == (b"r1" if replica_id else None)
    assert dict(headers)[b"content-type"] == b"application/json"
    assert json.loads(body) == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Why"}}


@pytest.mark.parametrize(
    ("received", "reads"),
    [
        ([(b"host", b"mcp.example.com"), (b"origin", b"https://app.example.com")], True),
        ([(b"host", b"mcp.example.com"), (b"origin", b"https://evil.example")], False),
        ([(b"host", b"rebound.example"), (b"origin", b"https://app.example.com")], False),
        ([(b"host", b"mcp.example.com")] * 2 + [(b"origin", b"https://app.example.com")], False),
        ([], False),
    ],
)
def test_a_page_reads_a_refusal_of_the_server_if_it_may_call(received: list[tuple[bytes, bytes]], reads: bool) -> None:
    callbacks = server_callbacks(Telemetry(), nothing, nothing, PAGES)
    headers, _ = callbacks.write_refusal(Refusal(408, "Why"), received)
    assert (b"access-control-allow-origin" in dict(headers)) == reads
