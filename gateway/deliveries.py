"""Brings a client's answer to the call that waits for it, in this process or in the one that the answer names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import RejectReason, RpcError
from gateway.hops import Hops
from gateway.protocol.handshake.questions import answer_of
from gateway.protocol.jsonrpc import Response, parse_message
from gateway.protocol.strict_json import decode
from gateway.return_addresses import ReplicaAddress, ReturnAddresses
from gateway.sealing.return_address import CallAddress
from gateway.waiting import WaitingCalls

ANSWER: Final = "answer"
"""The kind of message that brings an answer."""

_TAKEN: Final = "taken"
_LATE: Final = "late"


class Deliveries:
    """Delivers answers to calls.

    Args:
        waiting: the calls of this process.
        replica: this process.
        addresses: told what is not delivered.
        hops: carries answers to other replicas, and brings theirs.
        max_json_depth: how deep the body of a client's response may nest.
    """

    def __init__(
        self,
        waiting: WaitingCalls,
        replica: ReplicaAddress,
        addresses: ReturnAddresses,
        hops: Hops,
        *,
        max_json_depth: int,
    ) -> None:
        self._waiting = waiting
        self._replica = replica
        self._addresses = addresses
        self._hops = hops
        self._max_json_depth = max_json_depth
        hops.handle(ANSWER, self._take)

    async def deliver(self, address: CallAddress, response: Response, body: bytes) -> None:
        """Deliver an answer; one that nobody waits for any more means nothing, and is counted.

        Args:
            address: where it belongs. Nothing else says where it may be sent.
            response: the answer.
            body: of the request that brought it.
        """
        if address.boot == self._replica.boot:
            self._deliver_here(address.call, address.key, response)
        elif await self._hand_over(address, body) is None:
            self._addresses.reject(RejectReason.GONE)

    async def _hand_over(self, address: CallAddress, body: bytes) -> object:
        """Send an answer to the replica that waits for it, and return what becomes of it, None if nothing does."""
        if address.replica_url in ("", self._replica.url):
            return None
        replica = ReplicaAddress(address.replica_url, address.boot)
        reply = await self._hops.ask(replica, ANSWER, {"call": address.call, "key": address.key, "response": body})
        return None if reply is None else reply.get("outcome")

    def _take(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take an answer that another replica brings. It goes no further."""
        match message:
            case {"call": bytes(call), "key": str(key), "response": bytes(body)}:
                try:
                    response = parse_message(decode(body, self._max_json_depth))
                except RpcError:
                    return None
                if isinstance(response, Response):
                    return {"outcome": self._deliver_here(call, key, response)}
        return None

    def _deliver_here(self, call: bytes, key: str, response: Response) -> str:
        if self._waiting.deliver(self._replica.boot, call, key, answer_of(response)):
            return _TAKEN
        self._addresses.reject(RejectReason.LATE)
        return _LATE
