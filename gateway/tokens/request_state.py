"""The client as carrier: `requestState` holds the sealed journal of an ephemeral call between its legs."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.engine.journal import Journal, MalformedJournal
from gateway.errors import CannotContinue, InvalidRequestState, JournalTooLarge, RejectReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.state import StateTooLarge, open_state, seal_state
from gateway.tokens.key_holder import KeyHolder

log = logging.getLogger(__name__)


MAX_CLOCK_SKEW_SECONDS = 60.0
"""How far the clocks of two replicas may differ."""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits a deployment sets on calls that take several legs.

    Attributes:
        state_ttl_seconds: how long a sealed state may wait for its answer.
        flow_max_seconds: how long a call may take from its first leg to its last.
        state_max_bytes: the longest token, in bytes.
    """

    state_ttl_seconds: float
    flow_max_seconds: float
    state_max_bytes: int


class SealedCarrier:
    """Hands journals to the client and takes them back. Stores nothing about any call.

    The sealer is an argument of each method: a leg uses one sealer, although the keys may be replaced while it runs.
    """

    def __init__(self, keys: KeyHolder, limits: FlowLimits, telemetry: Telemetry) -> None:
        self._keys = keys
        self._limits = limits
        self._flow_max_ms = int(limits.flow_max_seconds * 1000)
        self._telemetry = telemetry

    def begin(self, forwarded_id: str = "", binding: bytes = b"") -> Journal:
        """Return the journal of a new flow.

        A trusted proxy gives all attempts of a request one `forwarded_id`. All of them get the same id and seed; "" is
        for a request that gets its own. The `binding` is used with a `forwarded_id` only; see
        `gateway.sealing.binding`.
        """
        keys = self._keys
        random_bytes = partial(keys.call_ids.entropy, forwarded_id, binding) if forwarded_id else keys.random_bytes
        return Journal.begin(
            now_ms=int(keys.clock() * 1000),
            flow_max_ms=self._flow_max_ms,
            random_bytes=random_bytes,
        )

    def age_seconds(self, journal: Journal) -> float:
        """Return how long ago a flow began. The times may come from the clocks of two replicas."""
        return max(0.0, self._keys.clock() - journal.started_ms / 1000)

    def open(self, sealer: Sealer, state: Any, binding: bytes) -> Journal:
        """Return the journal in a `requestState` that the client sent.

        Anything but a token that we sealed for this binding is rejected; see `gateway.sealing.binding`.

        Raises:
            InvalidRequestState: the same for every reason; the real one goes to the log and the counter.
        """
        began = time.perf_counter()
        try:
            opened = open_state(
                sealer, state, aad=binding, now=self._keys.clock(), max_bytes=self._limits.state_max_bytes
            )
            journal = Journal.from_map(opened.journal)
        except Rejected as rejected:
            raise self.reject(rejected.reason) from None
        except MalformedJournal:
            raise self.reject(RejectReason.MALFORMED) from None
        self._telemetry.state_opened(opened.key_id, time.perf_counter() - began)
        return journal

    def reject(self, reason: RejectReason) -> InvalidRequestState:
        """Log and count a rejected state, and return its error, which is the same for every reason."""
        log.warning("requestState rejected", extra={"reason": reason.value})
        self._telemetry.state_rejected(reason)
        return InvalidRequestState(reason)

    def lifetime_ms(self, ttl_seconds: float | None = None) -> int:
        """Return how long any state sealed so far can still be opened, also on a replica whose clock is a bit slow."""
        return int((self._ttl(ttl_seconds) + MAX_CLOCK_SKEW_SECONDS) * 1000)

    def _ttl(self, ttl_seconds: float | None) -> float:
        return self._limits.state_ttl_seconds if ttl_seconds is None else ttl_seconds

    def seal(self, sealer: Sealer, journal: Journal, binding: bytes, ttl_seconds: float | None = None) -> str:
        """Return the `requestState` that carries `journal` to the next leg.

        It expires after `ttl_seconds` (the deployment's default if None), and with the flow at the latest.

        Raises:
            JournalTooLarge: the journal is over the size limit.
            CannotContinue: the flow is past its deadline.
        """
        began, now = time.perf_counter(), self._keys.clock()
        deadline = journal.deadline_ms / 1000
        if deadline <= now:
            raise CannotContinue("This call has taken longer than the server allows; start it again.")
        try:
            token = seal_state(
                sealer,
                journal.to_map(),
                aad=binding,
                now=now,
                expires_at=min(now + self._ttl(ttl_seconds), deadline),
                max_bytes=self._limits.state_max_bytes,
            )
        except StateTooLarge as error:
            self._telemetry.state_too_large()
            raise JournalTooLarge(error.size, error.limit) from None
        self._telemetry.state_sealed(sealer.key_id, len(token), time.perf_counter() - began)
        return token
