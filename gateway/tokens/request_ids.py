"""Return addresses: the ids of the server's requests to clients. Each id says where the answer belongs.

An id is a sealed token. So the client's response may reach any replica, and no process has to remember the question.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.errors import NotDelivered, RejectReason
from gateway.observability.metrics import Telemetry
from gateway.protocol.caller import Caller
from gateway.protocol.jsonrpc import RequestId
from gateway.sealing.binding import request_id_binding
from gateway.sealing.envelope import Rejected
from gateway.sealing.request_id import CallAddress, TaskAddress, open_request_id, seal_request_id
from gateway.tokens.key_holder import KeyHolder

_UNREADABLE: Final = frozenset({RejectReason.UNKNOWN_KEY, RejectReason.NEWER_SCHEMA})
"""Why an id does not open here although a call may wait for its answer: releases or keys are being rolled out."""

_NO_FIELDS: Final[Mapping[str, object]] = {}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where answers for this process must go.

    Attributes:
        url: where other replicas reach it, "" if they cannot.
        boot: 16 random bytes that it chose when it started. A later process at the same URL has others.
    """

    url: str
    boot: bytes


class RequestIds:
    """Makes request ids, and reads them on any replica."""

    def __init__(self, keys: KeyHolder, telemetry: Telemetry, replica: ReplicaAddress) -> None:
        self._keys = keys
        self._replica = replica
        self._telemetry = telemetry

    def of_task(self, task_id: str, key: str, ttl_ms: int, caller: Caller, session: bytes) -> str:
        """Return the id of a request that asks a task's question.

        `key` is the question's wire key. The answer must come from `session`; b"" allows any or none.
        """
        return self._seal(TaskAddress(task_id, key, self._keys.clock() + ttl_ms / 1000, session), caller)

    def of_call(self, call_id: bytes, key: str, ttl_seconds: float, caller: Caller) -> str:
        """Return the id of a request that asks the question of a call waiting in this process.

        `key` is the question's wire key.
        """
        address = CallAddress(self._replica.url, self._replica.boot, call_id, key, self._keys.clock() + ttl_seconds)
        return self._seal(address, caller)

    def _seal(self, address: CallAddress | TaskAddress, caller: Caller) -> str:
        return seal_request_id(self._keys.current, address, aad=self._aad(caller))

    def open(self, response_id: RequestId | None, caller: Caller) -> CallAddress | TaskAddress | None:
        """Return where a response belongs. If its id is not one of ours for this caller, count that and return None.

        Raises:
            NotDelivered: the id is sealed, but not with a key or in a form that this process knows.
        """
        try:
            return open_request_id(self._keys.current, response_id, aad=self._aad(caller), now=self._keys.clock())
        except Rejected as rejected:
            reason = rejected.reason
        self.reject(reason)
        if reason in _UNREADABLE:
            raise NotDelivered
        return None

    def reject(self, reason: RejectReason) -> None:
        """Log and count a rejected response."""
        rejection = f"response rejected: {reason.value}"
        log.warning(rejection, extra={"reason": reason.value})
        self._telemetry.response_rejected(reason)

    def undelivered(self, why: str, fields: Mapping[str, object] = _NO_FIELDS) -> None:
        """Log and count a response that did not reach the process where its call waits."""
        failure = f"answer not delivered: {why}"
        log.warning(failure, extra=fields)
        self._telemetry.response_rejected(RejectReason.GONE)

    def _aad(self, caller: Caller) -> bytes:
        return request_id_binding(self._keys.audience, caller.principal)
