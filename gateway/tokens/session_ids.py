"""Sessions of the handshake wires: the session id is the sealed session. Nothing is stored."""

from __future__ import annotations

import hashlib
import logging
from typing import Final

from gateway.errors import UNKNOWN_SESSION, HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import flags_of
from gateway.protocol.handshake.initialize import Initialize
from gateway.protocol.jsonrpc import RequestId
from gateway.sealing.binding import session_binding
from gateway.sealing.envelope import Rejected
from gateway.sealing.session import Session, open_session, seal_session
from gateway.tokens.key_holder import KeyHolder

log = logging.getLogger(__name__)

NONCE_BYTES: Final = 16


class Sessions:
    """Begins sessions, and opens them on any replica."""

    def __init__(self, keys: KeyHolder, *, ttl_seconds: float, telemetry: Telemetry) -> None:
        self._keys = keys
        self._ttl_seconds = ttl_seconds
        self._telemetry = telemetry

    def begin(self, wanted: Initialize, caller: Caller) -> str:
        """Return the id of a new session for the caller."""
        keys = self._keys
        session = Session(
            version=wanted.version,
            flags=flags_of(wanted.capabilities),
            nonce=keys.random_bytes(NONCE_BYTES),
            expires_at=keys.clock() + self._ttl_seconds,
        )
        self._telemetry.session_sealed(keys.current.key_id)
        return seal_session(keys.current, session, aad=session_binding(keys.audience, caller.principal))

    def open(self, session_id: str, caller: Caller) -> Session:
        """Return the session for an id that the caller sent.

        Raises:
            HttpRefusal: 404, for every reason; it makes clients begin a new session (2025-11-25 "Session Management").
                The real reason goes to the log and the counter.
        """
        keys = self._keys
        try:
            session, key_id = open_session(
                keys.current, session_id, aad=session_binding(keys.audience, caller.principal), now=keys.clock()
            )
        except Rejected as rejected:
            log.warning("session rejected", extra={"reason": rejected.reason.value})
            self._telemetry.session_rejected(rejected.reason)
            raise unknown_session() from None
        self._telemetry.session_opened(key_id)
        return session


def unknown_session() -> HttpRefusal:
    """Return the error that makes clients begin a new session."""
    told = "The session is unknown or has expired; start a new one with initialize"
    return HttpRefusal(404, told, code=UNKNOWN_SESSION)


def request_digest(session: Session, request_id: RequestId) -> str:
    """Return a name for a request, derived from its session and its id. The number 1 and the text "1" differ."""
    kind = b"i" if isinstance(request_id, int) else b"s"
    return hashlib.sha256(session.nonce + kind + str(request_id).encode("utf-8", "surrogatepass")).hexdigest()
