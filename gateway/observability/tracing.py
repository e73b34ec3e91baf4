"""Traces: one for each call, over all its legs and into the worker. The only module that knows OpenTelemetry.

It is imported only if the environment asks for traces; see `gateway.process.services`. Names and attributes of spans
follow OpenTelemetry's semantic conventions for MCP. A few attributes of our own begin with `gateway.`. A span never
contains a token, a key, an argument, an answer or a result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, Final, TypeVar

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.engine.journal import Journal
from gateway.errors import HttpRefusal, RpcError
from gateway.protocol.headers import PROTOCOL_VERSION, Headers
from gateway.protocol.jsonrpc import Notification, Request
from gateway.protocol.method_table import METHODS
from gateway.protocol.versions import DRAFT, LEGACY_VERSIONS, RELEASED
from gateway.runtime.background import in_thread
from gateway.runtime.version import __version__

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVICE_NAME: Final = "sealed-gateway"
FLUSH_SECONDS: Final = 2.0
"""How long a stopping process tries to send its last spans."""

MAX_TEXT_CHARS: Final = 128
"""Ids and keys are cut to this length."""

MAX_TRACEPARENT_CHARS: Final = 128
MAX_TRACESTATE_CHARS: Final = 512
"""Longer values are ignored (W3C "Trace Context" requires support for 512)."""

OTHER: Final = "_OTHER"
"""Replaces unknown methods, since clients could make up any number of them."""

NAME_ATTRIBUTES: Final = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
}
"""The attribute that holds the name of the tool, prompt or resource, by method."""

_VERSIONS: Final = frozenset({RELEASED, *LEGACY_VERSIONS, DRAFT})
_FAILED: Final = "failed"
_ENDED_BADLY: Final = frozenset({"cancelled", "lost", "expired"})
_ANSWERED: Final = frozenset({"completed", "input_required"})
_ID_BYTES: Final = (16, 8, 1)
_propagator: Final = TraceContextTextMapPropagator()
_request: Final[ContextVar[_TracedRequest]] = ContextVar("request")


class Traces:
    """Creates spans and exports them. It raises nothing and never blocks.

    OpenTelemetry itself reads the sampler, the limits of spans and the collector from the environment. Spans go to that
    collector if `exporter` is None.
    """

    def __init__(self, replica_id: str, exporter: SpanExporter | None = None) -> None:
        ours = {
            "service.name": SERVICE_NAME,
            "service.version": __version__,
            "service.instance.id": replica_id,
        }
        resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_ToldOnce(exporter or OTLPSpanExporter())))
        self._tracer = self._provider.get_tracer("gateway", __version__)

    def serve_libraries(self) -> None:
        """Collect the spans of instrumented libraries too, and add the ids of the current span to log lines."""
        trace.set_tracer_provider(self._provider)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_SpanFilter())

    async def request(self, message: Request | Notification, headers: Headers, answering: Awaitable[T]) -> T:
        """Trace a request while it is answered; return the answer."""
        request = _TracedRequest(self._tracer, message, headers)
        outside = _request.set(request)
        try:
            return await answering
        except BaseException as error:
            request.fail(error)
            raise
        finally:
            request.end()
            _request.reset(outside)

    def leg(self, journal: Journal, name: str, *, nested: bool) -> LegSpan:
        """Trace a leg of the current request's call, until `LegSpan.end`.

        The first leg records the call's trace in `journal`. `name` may be the URI of a resource or of its template. A
        `nested` request may have several legs.
        """
        request = _request.get()
        span = request.go_on(_read(journal.trace), name)
        if journal.trace is None:
            journal.trace = _written(span.get_span_context())
        if not nested:
            return LegSpan(_Attached(span), journal)
        return LegSpan(_Attached(self._tracer.start_span("leg", trace.set_span_in_context(span)), ends=True), journal)

    def task_leg(self, tool: str, task_id: str, journal: Mapping[str, Any]) -> LegSpan:
        """Trace a leg of a task, until `LegSpan.end`; `journal` is in its stored form (`Journal.to_map`)."""
        begun = _read(journal.get("trace"))
        span = self._tracer.start_span(
            f"task {tool}",
            None if begun is None else _in_context(begun),
            SpanKind.CONSUMER,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gateway.flow": str(journal.get("flow", "")),
                "gateway.leg": int(journal.get("legs", 0)) + 1,
                "gateway.task": task_id,
            },
        )
        return LegSpan(_Attached(span, ends=True))

    def upstream_request(self, upstream: str, method: str) -> _UpstreamSpan | None:
        """Begin the span of a request; None if it belongs to no call. The name of a target is in the leg's span."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        attributes = {
            "mcp.method.name": method,
            "mcp.protocol.version": RELEASED,
            "network.protocol.name": "http",
            "network.protocol.version": "1.1",
            "network.transport": "tcp",
            "gateway.upstream": upstream,
        }
        return _UpstreamSpan(self._tracer.start_span(method, kind=SpanKind.CLIENT, attributes=attributes))

    async def step(self, key: str, running: Awaitable[T]) -> T:
        """See `gateway.engine.leg.Stepping`."""
        step = _Attached(self._tracer.start_span("step", attributes={"gateway.step": key[:MAX_TEXT_CHARS]}), ends=True)
        try:
            return await running
        except Exception as error:
            _mark(step.span, type(error).__name__)
            raise
        finally:
            step.end()

    async def close(self) -> None:
        """Send the remaining spans, for at most `FLUSH_SECONDS`."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await in_thread("traces", self._provider.shutdown)
        except TimeoutError:
            log.warning("traces lost: the collector did not accept them in time")


def _attributes(method: str, message: Request | Notification, headers: Headers) -> dict[str, str]:
    attributes = {
        "mcp.method.name": method,
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "network.transport": "tcp",
    }
    if isinstance(message, Request):
        attributes["jsonrpc.request.id"] = str(message.id)[:MAX_TEXT_CHARS]
    version = headers.get(PROTOCOL_VERSION)
    if version is not None and version in _VERSIONS:
        attributes["mcp.protocol.version"] = version
    return attributes


class _TracedRequest:
    """One request while it is answered.

    Its span starts at once, unless the request continues a call. Then it starts with the leg, because only the journal
    says which trace the call belongs to.
    """

    def __init__(self, tracer: trace.Tracer, message: Request | Notification, headers: Headers) -> None:
        self._tracer = tracer
        self._method = message.method if message.method in METHODS else OTHER
        self._began_ns = time.time_ns()
        self._attached: _Attached | None = None
        self._attributes = _attributes(self._method, message, headers)
        meta = message.params.get("_meta")
        inside = _extracted(meta if isinstance(meta, dict) else {})
        outside = _extracted({name: headers.get(name.encode()) for name in ("traceparent", "tracestate")})
        self._client = inside or outside
        self._links = [] if inside is None or outside is None else [outside]
        if message.params.get("requestState") is None:
            self._begin(self._client, self._links)

    def _begin(self, parent: SpanContext | None, links: Sequence[SpanContext]) -> Span:
        span = self._tracer.start_span(
            self._method,
            Context() if parent is None else _in_context(parent),
            SpanKind.SERVER,
            self._attributes,
            [Link(link) for link in links],
            self._began_ns,
        )
        self._attached = _Attached(span)
        return span

    def go_on(self, begun: SpanContext | None, name: str) -> Span:
        """Return the span of the request; start it in the trace of the call if it has not started yet.

        `begun` is the span of the call's first request, if the journal names one.
        """
        span = self._attached.span if self._attached is not None else self._begin(*self._place(begun))
        named = NAME_ATTRIBUTES.get(self._method)
        if named is not None:
            span.set_attribute(named, name)
        if named in ("gen_ai.tool.name", "gen_ai.prompt.name"):
            span.update_name(f"{self._method} {name}")
        if named == "gen_ai.tool.name":
            span.set_attribute("gen_ai.operation.name", "execute_tool")
        return span

    def _place(self, begun: SpanContext | None) -> tuple[SpanContext | None, Sequence[SpanContext]]:
        """Return the parent and the links. A call stays in its trace, whatever its client sends later."""
        client = self._client
        if begun is None or client is None or client.trace_id == begun.trace_id:
            return client or begun, self._links
        return begun, [client, *self._links]

    def fail(self, error: BaseException) -> None:
        """Mark the span as failed, without the error's message, which may quote arguments."""
        span = self._span()
        if isinstance(error, RpcError):
            span.set_attribute("rpc.response.status_code", str(error.code))
        _mark(span, _kind(error))

    def end(self) -> None:
        """End the span."""
        span = self._span()
        if self._attached is not None:
            self._attached.end()
        span.end()

    def _span(self) -> Span:
        return self._begin(self._client, self._links) if self._attached is None else self._attached.span


class _Attached:
    """A span that is current in this asyncio task, and in threads that run for it, until it ends."""

    def __init__(self, span: Span, *, ends: bool = False) -> None:
        self.span = span
        self._ends = ends
        self._outside: Token[Context] = current.attach(trace.set_span_in_context(span))

    def end(self) -> None:
        current.detach(self._outside)
        if self._ends:
            self.span.end()


class LegSpan:
    """The span of a leg: its request's span, or its own if a request has several legs, or a worker runs it.

    Without a journal, the span has the attributes of its call from the start.
    """

    def __init__(self, attached: _Attached, journal: Journal | None = None) -> None:
        self._attached = attached
        self._journal = journal

    def end(self, outcome: str, task_id: str = "") -> None:
        """Record how the leg ended, and the id of the task that the call became in it."""
        span = self._attached.span
        if self._journal is not None:
            span.set_attribute("gateway.flow", self._journal.flow_id)
            span.set_attribute("gateway.leg", self._journal.legs)
        if task_id:
            span.set_attribute("gateway.task", task_id)
        _record_outcome(span, outcome)
        self._attached.end()


class _UpstreamSpan:
    """The span of a request to an upstream."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        place = self._span.get_span_context()
        return f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags:02x}"

    def end(self, outcome: str) -> None:
        self._span.set_attribute("gateway.outcome", outcome)
        if outcome not in _ANSWERED:
            _mark(self._span, outcome)
        self._span.end()


class _ToldOnce(SpanExporter):
    """Logs an outage of the collector once, and its end once. OpenTelemetry itself would repeat the warning."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._reported = False
        for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; called on a thread of OpenTelemetry."""
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._reported:
            log.warning("the collector does not accept traces")
        elif self._reported and not failed:
            log.info("the collector accepts traces again")
        self._reported = failed
        return result

    def shutdown(self) -> None:
        """Accept no more spans."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send the spans that wait in the exporter."""
        return self._exporter.force_flush(timeout_millis)


class _SpanFilter(logging.Filter):
    """Adds the ids of the current span and its trace to a record. Every record passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        place = trace.get_current_span().get_span_context()
        if place.is_valid:
            fields = vars(record)
            fields.setdefault("trace_id", f"{place.trace_id:032x}")
            fields.setdefault("span_id", f"{place.span_id:016x}")
        return True


def _extracted(carrier: Mapping[str, Any]) -> SpanContext | None:
    """Return the W3C trace context that came with a request; None if there is no valid one."""
    traceparent, tracestate = carrier.get("traceparent"), carrier.get("tracestate")
    if type(traceparent) is not str or len(traceparent) > MAX_TRACEPARENT_CHARS:
        return None
    taken = {"traceparent": traceparent}
    if type(tracestate) is str and len(tracestate) <= MAX_TRACESTATE_CHARS:
        taken["tracestate"] = tracestate
    found = trace.get_current_span(_propagator.extract(taken, Context())).get_span_context()
    return found if found.is_valid else None


def _in_context(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _written(place: SpanContext) -> bytes:
    """Return the form in which a journal stores a span: the ids of the trace and the span, and the flags."""
    values = (place.trace_id, place.span_id, place.trace_flags)
    return b"".join(value.to_bytes(size) for value, size in zip(values, _ID_BYTES, strict=True))


def _read(kept: object) -> SpanContext | None:
    """Return the span that a journal names; None if it names none."""
    if type(kept) is not bytes or len(kept) != sum(_ID_BYTES):
        return None
    place = SpanContext(
        int.from_bytes(kept[:16]), int.from_bytes(kept[16:24]), is_remote=True, trace_flags=TraceFlags(kept[24])
    )
    return place if place.is_valid else None


def _record_outcome(span: Span, outcome: str) -> None:
    span.set_attribute("gateway.outcome", outcome)
    if outcome == _FAILED:
        _mark(span, "tool_error")
    elif outcome in _ENDED_BADLY:
        _mark(span, outcome)


def _mark(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _kind(error: BaseException) -> str:
    if isinstance(error, RpcError):
        return str(error.code)
    if isinstance(error, HttpRefusal):
        return str(error.status)
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
