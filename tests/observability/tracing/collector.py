"""A collector of traces: receives spans over OTLP/HTTP, and stores them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from loadtest.cluster import wait_until


@dataclass(frozen=True)
class Seen:
    """A span as it was sent. Its `kind` is `SERVER`, `CONSUMER` or `INTERNAL`."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    process: str
    failed: bool
    attributes: dict[str, Any]
    links: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.attributes.get(name)


class Collector:
    """Listens on a free port while the context is open."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self._spans: list[Seen] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environ(self) -> dict[str, str]:
        """Settings that make a process send its spans here soon."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes) -> None:
        """Store the spans of one request."""
        self.raw.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = _values(group.resource.attributes)["service.instance.id"]
            self._spans.extend(_seen(span, process) for scope in group.scope_spans for span in scope.spans)

    def spans(self, **attributes: Any) -> list[Seen]:
        """Return the spans so far with these attributes of ours, such as `flow`, in the order in which they ended."""
        wanted = {f"gateway.{name}": value for name, value in attributes.items()}
        return [span for span in list(self._spans) if wanted.items() <= span.attributes.items()]

    def wait_for(self, wanted: Callable[[list[Seen]], bool], **attributes: Any) -> list[Seen]:
        """Wait until the spans with these attributes are as wanted, and return them."""
        wait_until(lambda: wanted(self.spans(**attributes)), "spans")
        return self.spans(**attributes)


def _seen(span: trace_pb2.Span, process: str) -> Seen:
    return Seen(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        process=process,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
        links=[link.trace_id.hex() for link in span.links],
    )


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}
