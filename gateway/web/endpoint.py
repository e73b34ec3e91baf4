"""`POST /mcp` as a bare ASGI application, without a framework in the hot path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Final, TypeAlias, final

from gateway.admission.bodies import HeldBody
from gateway.admission.caller_limits import CallerLimits
from gateway.admission.inflight import InFlight, InFlightVisit
from gateway.auth.verifier import VerifiedToken, Verifier
from gateway.errors import (
    GatewayError,
    HttpRefusal,
    InternalError,
    Overloaded,
    ShuttingDown,
    TooManyBodyBytes,
    TooManyWaiting,
    TryAgain,
)
from gateway.http.asgi import RawHeaders, Receive, Scope, Send
from gateway.http.shortcut import SHORTCUT, Shortcut
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.protocol.caller import Caller
from gateway.protocol.challenges import Challenges
from gateway.protocol.headers import METHOD, Headers, check_content
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.method_table import METHODS
from gateway.protocol.versions import Wire
from gateway.web.bodies import NEVER_REFUSED, QUICK_BYTES, QUICK_COMMAS, BodyReader
from gateway.web.errors import JSON, to_http
from gateway.web.exchange import ClientGone, Exchange, Patience
from gateway.web.origins import OriginPolicy
from gateway.wires.dispatch import Dispatcher
from gateway.wires.replies import Accepted, Answered, Listening, RefusedRequest

log = logging.getLogger(__name__)

Reason: TypeAlias = type[Overloaded] | None
"""Why a request must be refused because of load, None if it need not."""

ARRIVAL: Final = "gateway.arrival"
"""The key in the ASGI scope of the `Arrival` of a request for `/mcp`."""

CLOSE: Final = (b"connection", b"close")

SESSION_METHODS: Final = frozenset({"GET", "DELETE"})
"""The HTTP methods that open a stream of a session, and end a session, on the handshake wires. Every client tries them.
They are refused without a line in the audit log."""

WAITS_ELSEWHERE: Final = frozenset(name.encode() for name, method in METHODS.items() if method.waits_elsewhere)
"""The methods that take no place among the requests that compute, because they wait for the store or for news."""

_STREAM: Final = b"text/event-stream"
_STREAMS = re.compile(rb"text/event-stream|text/\*|\*/\*", re.IGNORECASE)
"""Found in an `Accept` header that accepts streams."""

_STATE_MARK: Final = b'"requestState"'
"""A body with this text seems to continue a call. This decides only which requests are admitted first."""


@final
class Arrival:
    """A request whose headers are complete. If it has no place because there are too many requests, `refused` says why.

    `last_values` are by lower-case name. The headers name the method, which is compared with the body later.
    `forwarded_id` is the id that a trusted proxy gave it, or "".
    """

    forwarded_id = ""

    def __init__(
        self, last_values: dict[bytes, bytes], method: bytes, visit: InFlightVisit | None, refused: Reason
    ) -> None:
        self.last_values = last_values
        self.method = method
        self.visit = visit
        self.refused = refused

    def step_aside(self) -> None:
        """Take no place for now."""
        if self.visit is not None:
            self.visit.step_aside()


class McpEndpoint:
    """The MCP endpoint. A body larger than `max_body_bytes` is refused while it arrives.

    `replica_id` is sent in `X-Gateway-Replica` with every response, None omits the header. `close_connections` answers
    each request with `Connection: close`. `takes_on` tells whether new requests are accepted; those in `NEVER_REFUSED`
    always are.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Verifier,
        origins: OriginPolicy,
        telemetry: Telemetry,
        audit: AuditLog,
        *,
        callers: CallerLimits,
        admission: InFlight,
        max_body_bytes: int,
        replica_id: str | None,
        challenges: Challenges | None = None,
        close_connections: bool = False,
    ) -> None:
        self.takes_on = True
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._origins = origins
        self._callers = callers
        self._admission = admission
        self._has_callers = authenticator.known(None) is None
        self._is_verified = _asking(authenticator)
        self._telemetry = telemetry
        self._audit = audit
        self._bodies = BodyReader(max_body_bytes)
        self._challenges = challenges or Challenges()
        self._patience: Patience | None = None
        self._headers: RawHeaders = []
        if replica_id is not None:
            self._headers.append((b"x-gateway-replica", replica_id.encode("ascii")))
        self._turned_away: dict[Reason, tuple[int, RawHeaders, bytes]] = {
            reason: _complete(*to_http(reason(), None)) for reason in (Overloaded, ShuttingDown, TooManyWaiting)
        }
        if close_connections:
            self.close_connections()

    def close_connections(self) -> None:
        """Answer each request with `Connection: close` from now on."""
        self._headers.append(CLOSE)

    def arrived(self, scope: Scope) -> Arrival:
        """Count a request when its headers are complete, and store its `Arrival` in the scope.

        If there are too many requests, it is refused when its turn comes.
        """
        shortcut: Shortcut | None = scope.get(SHORTCUT)
        last_values: dict[bytes, bytes] = dict(scope["headers"]) if shortcut is None else shortcut.last_values
        method = last_values.get(METHOD, b"")
        visit: InFlightVisit | None = None
        refused: Reason = None
        if scope["method"] == "POST" and not method.startswith(NEVER_REFUSED):
            if self.takes_on:
                credential = last_values.get(b"authorization", b"") if self._has_callers else None
                visit = self._admission.arrive(credential, self._is_verified)
                if visit is None:
                    refused = self._admission.refusal
            else:
                refused = ShuttingDown
        arrival = scope[ARRIVAL] = Arrival(last_values, method, visit, refused)
        return arrival

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        arrival: Arrival | None = scope.get(ARRIVAL)
        if arrival is None:
            arrival = self.arrived(scope)
        if arrival.refused and arrival.method:
            await self._turn_away(scope, send, arrival)
            return
        if self._patience is None or self._patience.loop.is_closed():  # the first request on this event loop
            self._patience = Patience()
        # Remove the shortcut, which refers back to the scope, so that no cycle delays freeing the request.
        exchange = Exchange(receive, send, self._headers, self._patience, scope.pop(SHORTCUT, None))
        visit = arrival.visit
        if visit is None:
            await self._exchange(scope, exchange, arrival)
            return
        visit.begin()
        try:
            await self._exchange(scope, exchange, arrival)
        finally:
            visit.leave()

    async def _turn_away(self, scope: Scope, send: Send, arrival: Arrival) -> None:
        """Refuse a request because of load, without decoding anything."""
        self._telemetry.request_refused(RefusalReason.OVERLOADED)
        status, prepared, body = self._turned_away[arrival.refused]
        readable = self._origins.readable(scope["headers"], arrival.last_values)
        headers = [*prepared, *self._headers, *readable]
        shortcut: Shortcut | None = scope.get(SHORTCUT)
        if shortcut is None or not shortcut.respond(status, headers, body):
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _exchange(self, scope: Scope, exchange: Exchange, arrival: Arrival) -> None:
        refusal: GatewayError | None = None
        try:
            await self._serve(scope, exchange, arrival)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            if exchange.client_gone:
                log.debug("client disconnected; its request is cancelled")
            elif exchange.was_read:  # only a replica that is forced to stop cancels requests
                refusal = InternalError("The server stopped before the request was done")
            else:
                refusal = ShuttingDown()
        except GatewayError as error:
            self._audit.refused(error, client=_client_of(scope))
            refusal = error.with_traceback(None)  # the traceback refers back to this frame
        except Exception:  # the last line of defence: a bug must not affect other requests of the connection
            log.exception("request failed")
            refusal = InternalError("Internal error")
        try:
            if refusal is not None:
                await self._refuse(exchange, refusal)
        finally:
            exchange.close()

    async def _serve(self, scope: Scope, exchange: Exchange, arrival: Arrival) -> None:
        headers = Headers(scope["headers"], arrival.last_values)
        cors = self._origins.check(headers)
        if cors:
            exchange.add_headers(cors)
        if scope["method"] != "POST":
            await self._serve_other(scope["method"], exchange, headers, is_foreign_page=bool(cors))
            return
        authorization = headers.get(b"authorization")
        caller = self._authenticator.known(authorization)
        if caller is None:
            caller = await self._verify(arrival, authorization)
        refusal: TryAgain | None = None
        try:
            self._callers.admit(caller.principal, _client_of(scope))
        except TryAgain as error:
            refusal = error.with_traceback(None)  # the traceback refers back to this frame
        if refusal is not None and arrival.method:
            await self._put_off(exchange, refusal, caller)
            return
        check_content(headers)
        body = exchange.whole_body()
        if body is None or len(body) > self._bodies.large_from:
            serving = self._serve_large(scope, exchange, headers, body, caller, arrival=arrival, refusal=refusal)
            body = None  # nothing keeps it in memory once it is decoded
            await serving
        elif refusal is not None:
            await self._reply(exchange, self._dispatcher.refuse(body, refusal, caller))
        else:
            await self._work(scope, exchange, headers, body, caller, arrival=arrival)

    async def _serve_other(self, method: str, exchange: Exchange, headers: Headers, *, is_foreign_page: bool) -> None:
        """Answer a request that is not a POST: browsers ask first, and clients try to open streams or end sessions."""
        if method == "OPTIONS" and is_foreign_page:
            await exchange.answer(204, self._origins.preflight(headers), b"")
            return
        refused = HttpRefusal(405, "This endpoint accepts only POST", [("allow", "POST")])
        if method not in SESSION_METHODS:
            raise refused
        await self._refuse(exchange, refused)

    async def _serve_large(
        self,
        scope: Scope,
        exchange: Exchange,
        headers: Headers,
        whole: bytes | None,
        caller: Caller,
        *,
        arrival: Arrival,
        refusal: TryAgain | None,
    ) -> None:
        """Serve a request whose body is large or still arriving. Its bytes are the caller's until it is answered."""
        if whole is None:
            arrival.step_aside()  # only our own server reports that a body is still arriving
        over: TryAgain | None = None
        with self._callers.body(caller.principal, _client_of(scope)) as held:
            try:
                body, must_be_refused = await self._bodies.read(exchange, headers, whole, held, arrival.method)
            except TooManyBodyBytes as error:
                over = error.with_traceback(None)  # the traceback refers back to this frame
            if over is not None:
                await self._put_off(exchange, over, caller)
                return
            if len(body) > QUICK_BYTES or body.count(b",") > QUICK_COMMAS:
                await exchange.turn(caller.principal)  # it may take long to decode
            if refusal is not None:
                await self._reply(exchange, self._dispatcher.refuse(body, refusal, caller))
            else:
                if must_be_refused:
                    arrival.refused = arrival.refused or TooManyBodyBytes
                working = self._work(scope, exchange, headers, body, caller, arrival=arrival)
                whole, body = None, b""
                await working

    async def _verify(self, arrival: Arrival, authorization: str | None) -> VerifiedToken:
        """Verify an unknown token. It may be forged, so its request takes no place while keys are fetched."""
        arrival.step_aside()
        return await self._authenticator.authenticate(authorization)

    async def _work(
        self, scope: Scope, exchange: Exchange, headers: Headers, body: bytes, caller: Caller, *, arrival: Arrival
    ) -> None:
        """Answer a request that has been admitted."""
        exchange.was_read = True
        method = arrival.method
        may_stream = _takes_streams(headers.get_bytes(b"accept"))
        # Without `Mcp-Method`, the client uses a handshake wire, whose calls continue when it disconnects.
        exchange.begin(may_stream=may_stream, outlives_client=not method)
        visit = arrival.visit
        client = _ConnectedClient(
            exchange,
            arrival,
            self._callers,
            scope,
            caller.principal,
            post=exchange.post if may_stream else None,
            goes_on=body.find(_STATE_MARK) >= 0,
        )
        if method:
            await client.enter()
            if visit is not None and method in WAITS_ELSEWHERE:
                visit.leave()
        handling = self._dispatcher.handle(headers, body, caller, client)
        body = b""  # it may be large, and the call may take long
        reply = await handling
        if isinstance(reply, Answered):  # the first test, as most are
            await exchange.answer(200, [JSON, *reply.headers], reply.body)
        elif isinstance(reply, Listening):
            exchange.identify(reply.request_id, reply.wire)
            if not may_stream:
                raise HttpRefusal(406, "The answer to this request is a stream; send Accept: text/event-stream")
            if visit is not None:
                visit.leave()
            await self._listen(scope, exchange, reply, caller)
        else:
            await self._reply(exchange, reply)

    async def _listen(self, scope: Scope, exchange: Exchange, reply: Listening, caller: Caller) -> None:
        refusal: TryAgain | None = None
        try:
            with self._callers.stream(caller.principal, _client_of(scope)):
                await exchange.stream(reply.messages)
        except TryAgain as error:
            refusal = error.with_traceback(None)  # the traceback refers back to this frame
        if refusal is not None:
            await self._put_off(exchange, refusal, caller)

    async def _put_off(self, exchange: Exchange, error: TryAgain, caller: Caller) -> None:
        self._audit.refused(error, caller.principal)
        await self._refuse(exchange, error)

    async def _reply(self, exchange: Exchange, reply: Accepted | RefusedRequest) -> None:
        if isinstance(reply, Accepted):
            await exchange.answer(202, [], b"")
        else:
            exchange.identify(reply.request_id, reply.wire)
            await self._refuse(exchange, reply.error)

    async def _refuse(self, exchange: Exchange, error: GatewayError) -> None:
        """Answer with an error, under the id of the request if it is known."""
        self._telemetry.request_refused(RefusalReason.of(error))
        told = to_http(error, exchange.request_id, self._challenges, always_ok=exchange.is_handshake)
        await exchange.answer(*told)


@final
class _ConnectedClient:
    """The other end of a request's connection; implements `gateway.wires.ports.Client`.

    The visit is None if the request needs no place. `goes_on` tells whether the request seems to continue a call,
    `refused` says why it must be refused, if it must. `forwarded_id` is the id that a trusted proxy gave
    it, or "".

    Attributes:
        post: sends a message before the answer; None if the client does not accept a stream.
    """

    streams = False
    entered = False

    def __init__(
        self,
        exchange: Exchange,
        arrival: Arrival,
        callers: CallerLimits,
        scope: Scope,
        principal: Hashable | None,
        *,
        post: Callable[[bytes], None] | None,
        goes_on: bool,
    ) -> None:
        self.exchange = exchange
        self.visit = arrival.visit
        self.callers = callers
        self.scope = scope
        self.principal = principal
        self.post = post
        self.goes_on = goes_on
        self.refused = arrival.refused
        self.forwarded_id = arrival.forwarded_id

    def identify(self, request_id: RequestId | None, wire: Wire | None) -> None:
        self.exchange.identify(request_id, wire)

    def ask(self, request: bytes) -> None:
        self.exchange.ask(request)

    async def enter(self) -> None:
        if self.refused is not None:
            raise self.refused
        if self.visit is not None and not self.entered:
            self.entered = True
            waiting = self.visit.enter(self.principal, goes_on=self.goes_on)
            if waiting is not None:
                await waiting

    def leave(self) -> None:
        if self.visit is not None:
            self.visit.leave()
            self.entered = False
            self.goes_on = True

    @contextlib.contextmanager
    def streaming(self) -> Iterator[None]:
        if self.streams:
            yield
            return
        with self.callers.stream(self.principal, _client_of(self.scope)):
            self.streams = True
            try:
                yield
            finally:
                self.streams = False

    def holding(self) -> HeldBody:
        return self.callers.body(self.principal, _client_of(self.scope))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        with self.streaming(), self.exchange.ending_with_client():
            self.leave()
            yield


def _takes_streams(accept: bytes | None) -> bool:
    return not accept or accept.find(_STREAM) >= 0 or _STREAMS.search(accept) is not None


def _asking(authenticator: Verifier) -> Callable[[bytes], bool]:
    """Return a function that tells whether an `Authorization` header was verified before."""

    def is_verified(value: bytes) -> bool:
        return authenticator.known(Headers([(b"authorization", value)]).get(b"authorization")) is not None

    return is_verified


def _complete(status: int, headers: RawHeaders, body: bytes) -> tuple[int, RawHeaders, bytes]:
    """Return a response that nothing else completes."""
    return status, [*headers, (b"content-length", b"%d" % len(body))], body


def _client_of(scope: Scope) -> str:
    """Return the address of the client."""
    client = scope.get("client")
    return client[0] if client else ""
