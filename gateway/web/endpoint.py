"""`POST /mcp` as a bare ASGI application: the hot path has no framework in it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from gateway.dispatch import Accepted, Answered, Dispatcher, Reply
from gateway.errors import GatewayError, HttpRefusal, InternalError
from gateway.ports import Authenticator
from gateway.protocol.headers import Headers, check_content
from gateway.telemetry import RefusalReason, Telemetry
from gateway.web.errors import JSON, RawHeaders, to_http

log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLOSE = (b"connection", b"close")


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class McpEndpoint:
    """The MCP endpoint.

    Args:
        dispatcher: answers requests.
        authenticator: tells who calls.
        telemetry: counts refusals.
        max_body_bytes: the largest body; more is refused while it streams in.
        replica_id: told in `X-Gateway-Replica` of every response, or None for no such header.
        close_connections: answer each request with `Connection: close`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        telemetry: Telemetry,
        *,
        max_body_bytes: int,
        replica_id: str | None,
        close_connections: bool = False,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._max_body_bytes = max_body_bytes
        self._headers: RawHeaders = []
        if replica_id is not None:
            self._headers.append((b"x-gateway-replica", replica_id.encode("ascii")))
        if close_connections:
            self._headers.append(CLOSE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        try:
            reply = await self._handle(scope, receive)
        except ClientGone:
            return
        except GatewayError as error:
            await self._refuse(send, error, None)
        except Exception:  # the last line of defence: a bug must not take the connection's neighbours down
            log.exception("request failed")
            await self._refuse(send, InternalError("Internal error"), None)
        else:
            await self._reply(send, reply)

    async def _handle(self, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] != "POST":
            raise HttpRefusal(405, "This endpoint takes POST only", [("allow", "POST")])
        headers = Headers(scope["headers"])
        caller = self._authenticator.authenticate(headers.get(b"authorization"))
        check_content(headers)
        body = await self._read_body(headers, receive)
        return await self._dispatcher.handle(headers, body, caller)

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body.

        Raises:
            HttpRefusal: 413, as soon as the declared or received length is over the limit.
            ClientGone: the client went away first.
        """
        declared = headers.get(b"content-length")
        if declared is not None and _exceeds(declared, self._max_body_bytes):
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ClientGone
            chunk = event.get("body", b"")
            size += len(chunk)
            if size > self._max_body_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not event.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_large(self) -> HttpRefusal:
        # The rest of the body is not read, so the connection cannot be used again.
        return HttpRefusal(413, f"The body is larger than {self._max_body_bytes} bytes", [("connection", "close")])

    async def _reply(self, send: Send, reply: Reply) -> None:
        if isinstance(reply, Answered):
            await self._send(send, 200, [JSON], reply.body)
        elif isinstance(reply, Accepted):
            await self._send(send, 202, [], b"")
        else:
            await self._refuse(send, reply.error, reply.request_id)

    async def _refuse(self, send: Send, error: GatewayError, request_id: str | int | None) -> None:
        self._telemetry.request_refused(RefusalReason.of(error))
        await self._send(send, *to_http(error, request_id))

    async def _send(self, send: Send, status: int, headers: RawHeaders, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length, *self._headers]})
        await send({"type": "http.response.body", "body": body})


def _exceeds(length: str, limit: int) -> bool:
    """Tell whether a `Content-Length` is over the limit; one that is no number is left to the server."""
    digits = length.lstrip("0")
    return length.isdecimal() and (len(digits) > len(str(limit)) or int(digits or "0") > limit)
