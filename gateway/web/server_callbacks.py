"""The callbacks of a replica's server: they count refusals, and write the responses to refused clients."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.errors import HttpRefusal
from gateway.http.asgi import RawHeaders
from gateway.http.callbacks import Callbacks, Cause, Refusal, Written
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.web.errors import to_http


class Arrivals(Protocol):
    """Is notified of requests before any work is done for them."""

    def arrived(self, scope: Any) -> None:
        """Handle a request whose headers are complete, and whose turn on the connection has come."""
        ...

    def still_arriving(self, scope: Any) -> None:
        """Handle a request whose body is not complete yet. Called for each part that arrives."""
        ...


def server_callbacks(telemetry: Telemetry, arrivals: Arrivals, *, replica_id: str | None = None) -> Callbacks:
    """Return the callbacks of a replica's server.

    `replica_id` is sent in `X-Gateway-Replica` with every refusal; None omits the header.
    """
    own_headers: RawHeaders = []
    if replica_id is not None:
        own_headers.append((b"x-gateway-replica", replica_id.encode("ascii")))

    def client_refused(cause: Cause) -> None:
        telemetry.request_refused(RefusalReason(cause.value))

    def write_refusal(refusal: Refusal) -> Written:
        _, headers, body = to_http(HttpRefusal(refusal.status, str(refusal)), None)
        return [*headers, *own_headers], body

    return Callbacks(
        arrived=arrivals.arrived,
        still_arriving=arrivals.still_arriving,
        connection_refused=telemetry.connection_refused,
        client_refused=client_refused,
        client_lost=telemetry.client_lost,
        write_refusal=write_refusal,
    )
