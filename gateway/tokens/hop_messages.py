"""Sealed messages between the processes of a deployment, as one process sends and receives them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from gateway.errors import HopReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.hop import (
    EVERYONE,
    NONCE_BYTES,
    Content,
    Head,
    HopRefused,
    HopSealer,
    Process,
    Role,
    SeenNonces,
    message_bytes,
)
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress

MAX_REPLY_BYTES: Final = 65536

_MAX_BESIDE_BODY: Final = 32_768
"""The rest of a message with a client's request body: its caller, their scopes, and the question that it answers."""

MessageHandler: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes the body of a request and returns that of the reply, or None if the request is malformed."""

log = logging.getLogger(__name__)


def max_message_bytes(max_body_bytes: int) -> int:
    """Return the largest message for client request bodies of up to `max_body_bytes`."""
    return message_bytes(max_body_bytes + _MAX_BESIDE_BODY)


class Hops:
    """Sends messages to other replicas and receives messages for this one.

    Args:
        keys: seal and open.
        replica: this process.
        post: posts a message to another process.
        telemetry: counts messages.
        max_bytes: the longest message that is opened.
    """

    def __init__(
        self,
        keys: KeyHolder,
        replica: ReplicaAddress,
        *,
        post: Post,
        telemetry: Telemetry,
        max_bytes: int,
    ) -> None:
        self._keys = keys
        self._url = replica.url
        self._process = Process(Role.REPLICA, replica.boot)
        self._post = post
        self._telemetry = telemetry
        self._max_bytes = max_bytes
        self._handlers: dict[str, MessageHandler] = {}
        self._seen = SeenNonces()

    def handle(self, kind: str, handler: MessageHandler) -> None:
        """Register the handler for requests of a kind."""
        self._handlers[kind] = handler

    async def ask(self, replica: ReplicaAddress, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Send a request to another replica and return the body of its reply.

        Args:
            replica: the other one. Its URL must come from one of our own tokens.
            kind: of the request.
            body: of the request, a map of JSON values and `bytes`.

        Returns:
            None if no reply opens: then the process at that URL is not the right one.
        """
        hops = self._hops(replica.url)
        request = self._head(Process(Role.REPLICA, replica.boot))
        message = await self._post(replica.url, hops.seal_request(request, Content(kind, body)))
        reply: Content | None = None
        if message is not None:
            try:
                reply = hops.open_reply(message, request, max_bytes=MAX_REPLY_BYTES)
            except HopRefused as refused:
                log.warning("reply of a replica rejected", extra={"url": replica.url, "reason": refused.reason.value})
        answered = reply is not None and reply.kind == kind
        self._telemetry.hop_sent(answered=answered)
        return reply.body if answered and reply is not None else None

    def seal_for_everyone(self, kind: str, body: Mapping[str, Any]) -> bytes:
        """Return a message for all replicas. Each of them accepts it once.

        Args:
            kind: of the message.
            body: a map of JSON values and `bytes`.
        """
        return self._hops("").seal_request(self._head(Process(Role.REPLICA, EVERYONE)), Content(kind, body))

    def take(self, message: bytes) -> bytes | None:
        """Open a request from another process, handle it, and return the reply; None if it is refused.

        The reply to a message for everyone is empty. The process ignores its own messages, which may come back. A
        refused request is counted, and logged without any of its content.
        """
        reason: HopReason
        try:
            return self._answer(message)
        except HopRefused as refused:
            reason = refused.reason
        log.warning("message of a replica rejected", extra={"reason": reason.value})
        self._telemetry.hop_refused(reason)
        return None

    def _answer(self, message: bytes) -> bytes:
        now = self._keys.clock()
        hops = self._hops(self._url)
        request, content = hops.open_request(message, self._process, now=now, max_bytes=self._max_bytes)
        self._seen.add(request.nonce, now)
        if request.sender == self._process:
            return b""
        handler = self._handlers.get(content.kind)
        body = None if handler is None else handler(content.body)
        if body is None:
            raise HopRefused(HopReason.MALFORMED)
        if request.receiver.boot == EVERYONE:
            return b""
        return hops.seal_reply(self._head(request.sender), Content(content.kind, body), request)

    def _hops(self, url: str) -> HopSealer:
        return HopSealer(self._keys.current, self._keys.audience, url)

    def _head(self, receiver: Process) -> Head:
        keys = self._keys
        return Head(self._process, receiver, keys.random_bytes(NONCE_BYTES), int(keys.clock() * 1000))


Post: TypeAlias = Callable[[str, bytes], Awaitable[bytes | None]]
"""Posts a sealed message to the process at a URL, within a short time. Returns its reply, None if there is none."""
