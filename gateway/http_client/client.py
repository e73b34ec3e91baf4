"""An HTTP/1.1 client for one URL.

Redirects are not followed, nothing is repeated, and the proxy variables of the environment are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

from gateway.http_client.addresses import AddressRule
from gateway.http_client.connecting import Connector
from gateway.http_client.connection import HttpConnection
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.incoming import IncomingResponse
from gateway.http_client.lookups import Resolve, SharedLookups, resolve_with_system
from gateway.http_client.pool import Connect, HttpPool
from gateway.http_client.target import proxy_of, target_of
from gateway.http_client.tls import NO_TLS_FILES, TlsFiles, contexts_of

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


class HttpClient:
    """Sends requests to one URL: http or https, without credentials.

    The proxy resolves names by itself. At most `max_connections` are open at once; further requests wait. An unused one
    is kept for `idle_seconds`. The rule says who wrote the URL, and so which addresses it may lead to. `connect` opens
    connections in another way. If the URL, the proxy or the files cannot be used, this raises `ValueError`, which says
    why.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: TlsFiles = NO_TLS_FILES,
        proxy: str | None = None,
        max_connections: int = 100,
        idle_seconds: float = 300.0,
        rule: AddressRule = AddressRule.OPERATOR,
        resolve: Resolve = resolve_with_system,
        connect: Connect | None = None,
    ) -> None:
        target = target_of(url)
        way = None if proxy is None else proxy_of(proxy)
        contexts = contexts_of(tls) if target.is_tls else None
        contexts_of_proxy = contexts_of(TlsFiles(ca=tls.ca)) if way is not None and way.is_tls else None
        connector = Connector(
            target,
            tls=contexts,
            proxy=way,
            proxy_tls=contexts_of_proxy,
            rule=rule,
            resolve=SharedLookups(resolve),
        )
        self._pool = HttpPool(connect or connector.connect, max_connections, idle_seconds)
        form = target.path
        lines = [f"Host: {target.authority}", "Accept-Encoding: identity"]
        if way is not None and not target.is_tls:
            if rule is not AddressRule.OPERATOR:
                raise ValueError("a URL that is not the operator's own must be https to go through a proxy")
            form = f"http://{target.authority}{target.path}"
            if way.authorization is not None:
                lines.append(f"Proxy-Authorization: {way.authorization}")
        head = "\r\n".join((f"{form} HTTP/1.1", *lines, "")).encode()
        self._post, self._get, self._delete = b"POST " + head, b"GET " + head, b"DELETE " + head

    def post(self, headers: RawHeaders, body: bytes, *, deadline: float) -> HttpExchange:
        """Return a POST request, sent on entering it as a context.

        The headers must not have `Host`, nor be about the length, connection or encoding. The deadline for the
        complete response is a time of the event loop. A header with a line break or NUL raises `ValueError`.
        """
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._post, _fields(headers), len(body))
        return HttpExchange(self._pool, head, body, deadline)

    def get(self, headers: RawHeaders, *, deadline: float) -> HttpExchange:
        """Return a GET request; see `post`."""
        return HttpExchange(self._pool, b"%b%b\r\n" % (self._get, _fields(headers)), b"", deadline)

    def delete(self, headers: RawHeaders, *, deadline: float) -> HttpExchange:
        """Return a DELETE request; see `post`."""
        return HttpExchange(self._pool, b"%b%b\r\n" % (self._delete, _fields(headers)), b"", deadline)

    async def aclose(self) -> None:
        """Close unused connections, and each other one as soon as its response ends.

        Calls that still hold this client are served, so that a change of the configuration loses none.
        """
        self._pool.stop_keeping()


class HttpExchange:
    """A request and its response. Leaving the context before the end of the response closes the connection at once."""

    __slots__ = ("_body", "_connection", "_deadline", "_head", "_incoming", "_pool")

    _connection: HttpConnection
    _incoming: IncomingResponse

    def __init__(self, pool: HttpPool, head: bytes, body: bytes, deadline: float) -> None:
        self._pool = pool
        self._head = head
        self._body = body
        self._deadline = deadline

    async def __aenter__(self) -> HttpResponse:
        """Send the request, and wait for the head of the response.

        Without a response, this raises `HttpFailure`; its `sent` says whether the server may have acted.
        """
        connection = await self._pool.take(self._deadline)
        incoming = connection.send(self._head, self._body, self._deadline)
        try:
            await incoming.head()
        except BaseException:
            connection.leave(incoming)
            raise
        self._connection = connection
        self._incoming = incoming
        return HttpResponse(incoming)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection unless the response is complete."""
        self._connection.leave(self._incoming)


class HttpResponse:
    """A response, whose body may still arrive.

    The status is 200 or more. The headers are by lower-case name; repeated ones are joined by commas.
    """

    __slots__ = ("_incoming", "headers", "status")

    def __init__(self, incoming: IncomingResponse) -> None:
        self.status: int = incoming.status
        self.headers: Mapping[str, str] = incoming.headers
        self._incoming = incoming

    @property
    def has_arrived(self) -> bool:
        """Whether the whole body is here."""
        return self._incoming.is_complete

    async def body(self, limit: int, count: Callable[[int], None] | None = None) -> bytes:
        """Return the body. `count` is called with the size of each piece of one that does not arrive at once.

        If it has more than `limit` bytes, is incomplete, late or malformed, this raises `HttpFailure`.
        """
        incoming = self._incoming
        if int(self.headers.get("content-length", 0)) > limit:
            raise _too_large(limit)
        if incoming.is_complete:
            whole = incoming.everything()
            if len(whole) > limit:
                raise _too_large(limit)
            return whole
        received = bytearray()
        while piece := await incoming.piece():
            if len(received) + len(piece) > limit:
                raise _too_large(limit)
            if count is not None:
                count(len(piece))
            received += piece
        return bytes(received)

    def chunks(self) -> HttpChunks:
        """Return the body in pieces, as they arrive, without a limit on all of them together."""
        return HttpChunks(self._incoming)


class HttpChunks:
    """The pieces of a body. The connection stops reading while the reader does not keep up."""

    __slots__ = ("_incoming",)

    def __init__(self, incoming: IncomingResponse) -> None:
        self._incoming = incoming

    def __aiter__(self) -> HttpChunks:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece. If the body is incomplete, late or malformed, this raises `HttpFailure`."""
        piece = await self._incoming.piece()
        if not piece:
            raise StopAsyncIteration
        return piece


def _fields(headers: RawHeaders) -> bytes:
    fields = b"".join([b"%b: %b\r\n" % header for header in headers])
    if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers) or b"\0" in fields:
        raise ValueError("a header must not contain a line break or NUL")
    return fields


def _too_large(limit: int) -> HttpFailure:
    return HttpFailure(HttpReason.TOO_LARGE, sent=True, detail=f"the body has more than {limit} bytes")
