"""How requests to an upstream are written: in one request all is said, with or without the members of 2026-07-28."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from typing_extensions import override

from gateway.protocol.strict_json import encode
from gateway.protocol.upstream.earlier_requests import earlier_request_headers, encode_earlier_request
from gateway.protocol.upstream.requests import Envelope, RawHeaders, encode_request, request_headers
from gateway.protocol.versions import INITIALIZE
from gateway.upstreams.failures import Reason

_IDS: Final = 2**30
"""From how many numbers the first id of a replica is drawn. Some servers have one transport for all requests: those of
two replicas must not be taken for one."""


class Dialect(Protocol):
    """Writes requests as one kind of upstream understands them."""

    @property
    def first_id(self) -> int:
        """The id of the first request; those that follow count upwards."""
        ...

    @property
    def may_ask(self) -> bool:
        """Whether a result may ask for input."""
        ...

    @property
    def asked(self) -> Reason:
        """Why a request fails on whose answer the upstream sends a request of its own."""
        ...

    def written(
        self,
        request_id: int,
        method: str,
        params: Mapping[str, Any],
        param_headers: Sequence[tuple[str, str]],
        envelope: Envelope,
    ) -> tuple[RawHeaders, bytes]:
        """Return the headers and the body of a request."""
        ...

    def cancelling(self, request_id: int) -> tuple[RawHeaders, bytes] | None:
        """Return the notification that cancels a request; None if closing its connection does."""
        ...


class Stateless:
    """The requests of 2026-07-28."""

    first_id = 1
    may_ask = True
    asked = Reason.UNASKED

    def written(
        self,
        request_id: int,
        method: str,
        params: Mapping[str, Any],
        param_headers: Sequence[tuple[str, str]],
        envelope: Envelope,
    ) -> tuple[RawHeaders, bytes]:
        """Return the headers and the body of a request."""
        headers = request_headers(method, params, param_headers, envelope.traceparent)
        return headers, encode_request(request_id, method, params, envelope)

    def cancelling(self, _request_id: int) -> None:
        """Return None: closing the connection cancels a request."""


class Sessionless:
    """The requests of 2025-11-25 and before, without a session. They declare no capability, so nothing may be asked.

    Servers ask all the same: `mcp` 1.30 does, and then waits for an answer that cannot reach it.

    Attributes:
        version: what the upstream answered to `initialize`.
    """

    may_ask = False
    asked = Reason.NEEDS_SESSION

    def __init__(self) -> None:
        self.first_id = secrets.randbelow(_IDS)
        self.version = ""

    def written(
        self,
        request_id: int,
        method: str,
        params: Mapping[str, Any],
        _param_headers: Sequence[tuple[str, str]],
        envelope: Envelope,
    ) -> tuple[RawHeaders, bytes]:
        """Return the headers and the body of a request."""
        version = None if method == INITIALIZE else self.version
        headers = earlier_request_headers(version, envelope.traceparent)
        return headers, encode_earlier_request(request_id, method, params, envelope)

    def cancelling(self, request_id: int) -> tuple[RawHeaders, bytes]:
        """Return the notification: closing a connection does not cancel its request."""
        return self.notifying("notifications/cancelled", {"requestId": request_id})

    def notifying(self, method: str, params: Mapping[str, Any]) -> tuple[RawHeaders, bytes]:
        """Return a notification."""
        return self.headers(), encode({"jsonrpc": "2.0", "method": method, "params": params})

    def headers(self) -> RawHeaders:
        """Return the headers of what is not a request."""
        return earlier_request_headers(self.version)


class InSession(Sessionless):
    """The requests of 2025-11-25 and before, in a session.

    Attributes:
        session: its id; "" if the upstream gave none, or is yet to be asked for one.
    """

    asked = Reason.UNASKED

    def __init__(self) -> None:
        super().__init__()
        self.first_id = 1  # each session has ids of its own
        self.session = ""

    @override
    def written(
        self,
        request_id: int,
        method: str,
        params: Mapping[str, Any],
        param_headers: Sequence[tuple[str, str]],
        envelope: Envelope,
    ) -> tuple[RawHeaders, bytes]:
        headers, body = super().written(request_id, method, params, param_headers, envelope)
        return [*headers, *self._own()], body

    @override
    def headers(self) -> RawHeaders:
        return [*super().headers(), *self._own()]

    def _own(self) -> RawHeaders:
        return [(b"mcp-session-id", self.session.encode("latin-1"))] if self.session else []
