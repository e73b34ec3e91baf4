"""Brings a client's answer to the call that waits for it, in this process or in the one that the answer names."""

from __future__ import annotations

import logging

from gateway.authority import Authority
from gateway.errors import InsufficientScope, RejectReason
from gateway.ports import Hop
from gateway.protocol.handshake.questions import answer_of
from gateway.protocol.headers import HOP, Headers
from gateway.protocol.jsonrpc import Response
from gateway.return_addresses import ReplicaAddress, ReturnAddresses
from gateway.sealing.return_address import CallAddress
from gateway.waiting import WaitingCalls

_TAKEN = 202
"""The HTTP status of a posted response, whatever becomes of it."""

_FORBIDDEN = 403

_NO_ANSWER = 0
"""In place of a status, see `Hop`."""

log = logging.getLogger(__name__)


class Deliveries:
    """Delivers answers to calls.

    Args:
        waiting: the calls of this process.
        replica: this process.
        addresses: told what is not delivered.
        hop: hands a request on to another replica.
    """

    def __init__(self, waiting: WaitingCalls, replica: ReplicaAddress, addresses: ReturnAddresses, hop: Hop) -> None:
        self._waiting = waiting
        self._replica = replica
        self._addresses = addresses
        self._hop = hop

    async def deliver(
        self, address: CallAddress, response: Response, headers: Headers, body: bytes, authority: Authority
    ) -> None:
        """Deliver an answer; one that nobody waits for any more means nothing, and is counted.

        Args:
            address: where it belongs. Nothing else says where it may be sent.
            response: the answer.
            headers: of the request that brought it. One that was handed on goes no further.
            body: of that request.
            authority: by which it is given.

        Raises:
            InsufficientScope: the token does not grant what the call takes, or the session is another one.
        """
        if address.boot == self._replica.boot:
            if not self._waiting.deliver(address.boot, address.call, address.key, answer_of(response), authority):
                self._addresses.reject(RejectReason.LATE)
            return
        may_hop = headers.get(HOP) is None and address.replica_url not in ("", self._replica.url)
        if not may_hop or not await self._hand_on(address.replica_url, headers, body):
            self._addresses.reject(RejectReason.GONE)

    async def _hand_on(self, url: str, headers: Headers, body: bytes) -> bool:
        """Hand a request on; return whether the replica took it.

        Raises:
            InsufficientScope: it says so.
        """
        status = await self._hop(url, headers.raw, body)
        if status == _FORBIDDEN:
            raise InsufficientScope(())
        if status not in (_TAKEN, _NO_ANSWER):  # the hop itself tells when there is no answer
            log.warning("replica refused an answer that was handed on", extra={"url": url, "status": status})
        return status == _TAKEN
