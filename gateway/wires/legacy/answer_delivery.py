"""Delivers a client's answer to the call that waits for it, in this process or in the process that the id names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from gateway.calls.authority import Authority
from gateway.errors import InsufficientScope, NotDelivered, RejectReason, RpcError
from gateway.protocol.handshake.questions import read_answer
from gateway.sealing.principal import Claims, Principal
from gateway.sealing.request_id import CallAddress
from gateway.tokens.hop_messages import Hops, NoReply
from gateway.tokens.request_ids import ReplicaAddress, RequestIds
from gateway.wires.broadcasts import Broadcasts
from gateway.wires.legacy.pending_answers import WaitingCalls

ANSWER: Final = "answer"
"""The kind of message that carries an answer."""

UNDELIVERED: Final = "undelivered"
"""The hint that an answer could not be delivered. The process that holds the call ends it.

Its text is the boot id of that process, the id of the call, the session and the wire key, separated by blanks. The
first three are in hex.
"""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Delivers answers to calls.

    `waiting` has the calls of this process, `replica` is its address. `addresses` counts answers that are not
    delivered, and broadcasts report them to other replicas. The limits are for the body of a client's response.
    """

    waiting: WaitingCalls
    replica: ReplicaAddress
    addresses: RequestIds
    hops: Hops
    broadcasts: Broadcasts
    _: KW_ONLY
    max_json_depth: int
    max_json_values: int

    def __post_init__(self) -> None:
        self.hops.handle(ANSWER, self._take)
        self.broadcasts.forward_to(UNDELIVERED, self._take_report)

    async def deliver(self, address: CallAddress, body: bytes, authority: Authority) -> None:
        """Deliver an answer. If its call has ended, or has this answer already, that is counted and ignored.

        Only the address decides which replica may receive it. `body` is a response that has been checked, and
        `authority` that of the client that answers.

        Raises:
            InsufficientScope: the call does not accept an answer with this authority.
            NotDelivered: the process where the call waits did not reply.
        """
        if address.boot == self.replica.boot:
            self._deliver_here(address.call, address.key, body, authority)
            return
        try:
            await self._hand_over(address, body, authority)
        except NoReply as error:
            self.addresses.undelivered(str(error), error.fields)
            place = f"{address.boot.hex()} {address.call.hex()} {authority.session.hex()} {address.key}"
            self.broadcasts.send(UNDELIVERED, place, authority.principal)
            raise NotDelivered from None

    async def _hand_over(self, address: CallAddress, body: bytes, authority: Authority) -> None:
        """Send an answer to the replica that waits for it.

        If the replica refused it, this raises `InsufficientScope`; if it did not arrive there, `NoReply`.
        """
        replica = ReplicaAddress(address.replica_url, address.boot)
        message = {"call": address.call, "key": address.key, "response": body, "authority": _packed(authority)}
        reply = await self.hops.ask(replica, ANSWER, message)
        match reply:
            case {"outcome": "refused", "scopes": list(scopes), "message": str(text)}:
                raise InsufficientScope((str(scope) for scope in scopes), text)
            case {"outcome": "taken" | "late"}:
                return
        raise NoReply("the process that it is for sent a reply that this release does not know")

    def _take_report(self, report: str) -> None:
        """End the call whose answer another replica could not deliver, if it waits here."""
        match report.split(" ", 3):
            case [boot, call, session, key] if boot == self.replica.boot.hex():
                with contextlib.suppress(ValueError):  # a form of another release
                    self.waiting.lose(bytes.fromhex(call), key, bytes.fromhex(session))

    def _take(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take an answer from another replica. It is never forwarded again."""
        match message:
            case {"call": bytes(call), "key": str(key), "response": bytes(body), "authority": packed}:
                authority = _unpacked(packed)
                if authority is not None and self._is_response(body):
                    return self._outcome(call, key, body, authority)
        return None

    def _is_response(self, body: bytes) -> bool:
        try:
            read_answer(body, self.max_json_depth, self.max_json_values)
        except RpcError:
            return False
        return True

    def _outcome(self, call: bytes, key: str, body: bytes, authority: Authority) -> Mapping[str, Any]:
        try:
            taken = self._deliver_here(call, key, body, authority)
        except InsufficientScope as refusal:
            return {"outcome": "refused", "scopes": sorted(refusal.required), "message": str(refusal)}
        return {"outcome": "taken" if taken else "late"}

    def _deliver_here(self, call: bytes, key: str, body: bytes, authority: Authority) -> bool:
        taken = self.waiting.deliver(self.replica.boot, call, key, body, authority)
        if not taken:
            self.addresses.reject(RejectReason.LATE)
        return taken


def _packed(authority: Authority) -> dict[str, Any]:
    principal = authority.principal
    return {
        "principal": None if principal is None else [principal.issuer, principal.subject, principal.client_id],
        "scopes": sorted(authority.scopes),
        "ends_at": float(authority.ends_at),
        "key": authority.key,
        "session": authority.session,
        "claims": "{}" if principal is None else principal.claims.text,
    }


def _unpacked(packed: object) -> Authority | None:
    """Return the authority that another replica has packed, or None if it is malformed."""
    match packed:
        case {
            "principal": None | [str(), str(), str()] as names,
            "scopes": [*scopes],
            "ends_at": float(ends_at),
            "key": bytes(key),
            "session": bytes(session),
            **more,
        } if all(type(scope) is str for scope in scopes):
            claims = more.get("claims")  # a replica of an earlier release sends none
            held = Claims(claims if isinstance(claims, str) else "{}")
            principal = None if names is None else Principal(*names).holding(scopes=scopes, claims=held)
            return Authority(principal, frozenset(scopes), ends_at, key, session)
    return None
