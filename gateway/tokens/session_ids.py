"""Sessions of the handshake wires: the session id is itself the session, sealed. Nothing is stored."""

from __future__ import annotations

import hashlib
import logging
from typing import Final

from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import flags_of
from gateway.protocol.handshake.initialize import Initialize
from gateway.protocol.jsonrpc import RequestId
from gateway.runtime.sources import Clock, RandomBytes
from gateway.sealing.binding import session_binding
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.session import Session, open_session, seal_session

log = logging.getLogger(__name__)

NONCE_BYTES: Final = 16


class Sessions:
    """Begins sessions, and recognises them on any replica.

    Args:
        sealer: seals and opens under the key ring that all replicas share.
        audience: the name all replicas of this deployment share.
        ttl_seconds: how long a session lasts.
        telemetry: counts sessions, and what is not accepted as one.
        clock: seconds since the epoch.
        random_bytes: a source of strong randomness.
    """

    def __init__(
        self,
        sealer: Sealer,
        audience: str,
        *,
        ttl_seconds: float,
        telemetry: Telemetry,
        clock: Clock,
        random_bytes: RandomBytes,
    ) -> None:
        self._sealer = sealer
        self._audience = audience
        self._ttl_seconds = ttl_seconds
        self._telemetry = telemetry
        self._clock = clock
        self._random_bytes = random_bytes

    def replace_sealer(self, sealer: Sealer) -> None:
        """Seal and open with another sealer from now on."""
        self._sealer = sealer

    def begin(self, wanted: Initialize, caller: Caller) -> str:
        """Return the id of a new session of the caller."""
        session = Session(
            version=wanted.version,
            flags=flags_of(wanted.capabilities),
            nonce=self._random_bytes(NONCE_BYTES),
            expires_at=self._clock() + self._ttl_seconds,
        )
        self._telemetry.session_sealed(self._sealer.key_id)
        return seal_session(self._sealer, session, aad=session_binding(self._audience, caller.principal))

    def open(self, session_id: str, caller: Caller) -> Session:
        """Return the session of an id that the caller presents.

        Raises:
            HttpRefusal: 404, for every reason alike; it makes clients begin a new session (2025-11-25 "Session
                Management"). The real reason goes to the log and the counter.
        """
        try:
            session, key_id = open_session(
                self._sealer, session_id, aad=session_binding(self._audience, caller.principal), now=self._clock()
            )
        except Rejected as rejected:
            log.warning("session rejected", extra={"reason": rejected.reason.value})
            self._telemetry.session_rejected(rejected.reason)
            raise unknown_session() from None
        self._telemetry.session_opened(key_id)
        return session


def unknown_session() -> HttpRefusal:
    """Return what makes clients begin a new session."""
    return HttpRefusal(404, "The session is unknown or has expired; begin another with initialize")


def request_digest(session: Session, request_id: RequestId) -> str:
    """Name a request of a session, so that it can be found again by whoever knows both. The number 1 is not "1"."""
    kind = b"i" if isinstance(request_id, int) else b"s"
    return hashlib.sha256(session.nonce + kind + str(request_id).encode("utf-8", "surrogatepass")).hexdigest()
