"""Names of spans come from the table of methods, never from a client."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.observability.tracing import OTHER, Traces
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Notification, Request
from gateway.protocol.method_table import METHODS, NOTIFICATION_PREFIX


async def _span_of(method: str) -> tuple[str, object]:
    """Return the name of the span of a message, and its method attribute."""
    spans = InMemorySpanExporter()
    traces = Traces("r1", spans)
    is_notification = method.startswith(NOTIFICATION_PREFIX)
    message = Notification(method, {}) if is_notification else Request(1, method, {})
    assert await traces.request(message, Headers(()), asyncio.sleep(0, "answered")) == "answered"
    await traces.close()
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    return span.name, span.attributes["mcp.method.name"]


@pytest.mark.parametrize("method", METHODS)
async def test_the_span_of_each_method_of_the_table_has_its_name(method: str) -> None:
    assert await _span_of(method) == (method, method)


@pytest.mark.parametrize("method", ["tools/rename", "notifications/made-up", "_OTHER"])
async def test_the_span_of_any_other_method_has_none(method: str) -> None:
    assert await _span_of(method) == (OTHER, OTHER)
