"""Turns the bytes of a request into a reply.

The caller is authenticated before this, from the headers alone. So nobody without a valid token can make a replica read
or decode a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gateway.calls.changes import ChangeHub
from gateway.errors import InsufficientScope, RpcError, TryAgain
from gateway.observability.audit import AuditLog
from gateway.protocol.caller import Caller
from gateway.protocol.error_codes import error_on
from gateway.protocol.headers import PROTOCOL_VERSION, SESSION_ID, Headers
from gateway.protocol.jsonrpc import Response, parse_message, request_id_of
from gateway.protocol.method_table import TARGETS
from gateway.protocol.strict_json import MAX_DEPTH, MAX_VALUES, decode
from gateway.protocol.versions import Wire
from gateway.protocol.wire_choice import choose_wire, wire_of_headers
from gateway.registry.registry import Registry
from gateway.wires.catalogue import Catalogue
from gateway.wires.handshake_wire import HandshakeWire
from gateway.wires.ports import Client
from gateway.wires.released.wire import ReleasedWire
from gateway.wires.replies import RefusedRequest, Reply

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

_RELEASED: Final = Wire.RELEASED


class Dispatcher:
    """Turns requests into replies. It keeps no state between requests.

    Handshake answers all wires but the released one. The limits are how deep a body may nest, and how many values it
    has.
    """

    def __init__(
        self,
        released: ReleasedWire,
        handshake: HandshakeWire,
        *,
        changes: ChangeHub,
        audit: AuditLog,
        max_json_depth: int = MAX_DEPTH,
        max_json_values: int = MAX_VALUES,
        tracing: Traces | None = None,
    ) -> None:
        self._released = released
        self._handshake = handshake
        self._changes = changes
        self._audit = audit
        self._max_json_depth = max_json_depth
        self._max_json_values = max_json_values
        self._tracing = tracing

    @property
    def registry(self) -> Registry:
        """The registry that is served now."""
        return self._released.methods.registry

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of the released wire."""
        return self._released.methods.catalogue

    @property
    def handshake_catalogues(self) -> dict[str, Catalogue]:
        """The catalogues of the other wires, by version."""
        return self._handshake.catalogues

    def replace(self, released: Catalogue, handshake: Mapping[str, Catalogue]) -> None:
        """Serve other catalogues from the next request on, and announce the lists that have changed.

        A change of the local functions is announced on all replicas. A change of an upstream is announced in this
        process only, because each replica notices it.
        """
        before = self.catalogue
        changed = before.changed_lists(released)
        is_local = before.registry.shares[0] is not released.registry.shares[0]
        announce = self._changes.announce if is_local else self._changes.announce_here
        self._released.methods.catalogue = released
        self._handshake.replace(handshake)
        for name in changed:
            announce(name)

    async def handle(self, headers: Headers, body: bytes, caller: Caller, client: Client) -> Reply:
        """Answer one request. If something is wrong with it, the reply says so.

        Before anything is raised, the client learns which request that is about.
        """
        value: Any = None
        wire: Wire | None = None
        try:
            value = decode(body, self._max_json_depth, self._max_json_values)
            message = parse_message(value)
            wire = choose_wire(message, headers.get(PROTOCOL_VERSION))
            if wire is _RELEASED:
                answering = self._released.answer(message, headers, caller, client)
            else:
                answering = self._handshake.answer(message, wire, headers, caller, client, body=body)
            body = b""  # it may be large, and the call may take long
            if self._tracing is None or isinstance(message, Response):
                return await answering
            return await self._tracing.request(message, headers, answering)
        except (RpcError, InsufficientScope) as error:
            if isinstance(error, InsufficientScope):
                error.granted = caller.scopes
            method_name, target = _wanted(value)
            self._audit.refused(error, caller.principal, method=method_name, target=target)
            if wire is None:
                in_session = headers.get(SESSION_ID) is not None
                wire = wire_of_headers(headers.get(PROTOCOL_VERSION), in_session=in_session)
            told = error_on(wire, error) if isinstance(error, RpcError) else error
            return RefusedRequest(told, request_id_of(value), wire)
        except BaseException:
            client.identify(request_id_of(value), wire)
            raise

    def refuse(self, body: bytes, error: TryAgain, caller: Caller) -> RefusedRequest:
        """Refuse a message of a handshake wire without serving it. Only the id of the request is read."""
        self._audit.refused(error, caller.principal)
        try:
            request_id = request_id_of(decode(body, self._max_json_depth, self._max_json_values))
        except RpcError:
            request_id = None
        return RefusedRequest(error, request_id, None if request_id is None else Wire.LEGACY)


def _wanted(value: Any) -> tuple[str, str]:
    """Return the method of a request, and its target or "", for the audit log."""
    members: Mapping[str, Any] = value if isinstance(value, dict) else {}
    method = members.get("method")
    params = members.get("params")
    target = params.get(TARGETS.get(method, "")) if isinstance(method, str) and isinstance(params, dict) else None
    return method if isinstance(method, str) else "", target if isinstance(target, str) else ""
