"""The callbacks of a replica's server: they count refusals, and write the responses to refused clients."""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import HttpRefusal
from gateway.http.asgi import RawHeaders, Scope
from gateway.http.callbacks import Callbacks, Cause, Refusal, Written
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.web.errors import to_http
from gateway.web.origins import OriginPolicy


def server_callbacks(
    telemetry: Telemetry,
    arrived: Callable[[Scope], None],
    still_arriving: Callable[[Scope], None],
    origins: OriginPolicy,
    *,
    replica_id: str | None = None,
) -> Callbacks:
    """Return the callbacks of a replica's server. For the first two, see `Callbacks`.

    `origins` decides which pages may read refusals. `replica_id` is sent in `X-Gateway-Replica` with every refusal;
    None omits the header.
    """
    own_headers: RawHeaders = []
    if replica_id is not None:
        own_headers.append((b"x-gateway-replica", replica_id.encode("ascii")))

    def client_refused(cause: Cause) -> None:
        telemetry.request_refused(RefusalReason(cause.value))

    def write_refusal(refusal: Refusal, received: RawHeaders) -> Written:
        _, headers, body = to_http(HttpRefusal(refusal.status, str(refusal)), None)
        return [*headers, *own_headers, *origins.readable(received)], body

    return Callbacks(
        arrived=arrived,
        still_arriving=still_arriving,
        connection_refused=telemetry.connection_refused,
        client_refused=client_refused,
        client_lost=telemetry.client_lost,
        write_refusal=write_refusal,
    )
