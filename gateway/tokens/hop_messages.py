"""Sealed messages between the processes of a deployment, as one process sends and receives them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias

from gateway.errors import GatewayError, HopReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.hop import (
    EVERYONE,
    NONCE_BYTES,
    Head,
    HopContent,
    HopRefused,
    HopSealer,
    Process,
    Role,
    SeenNonces,
    message_bytes,
    receiver_of,
)
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress

HOP_PATH: Final = "/_gateway/hop"
"""The path, below the URL of a process, that receives messages."""

MAX_REPLY_BYTES: Final = 65536

_MAX_BESIDE_BODY: Final = 32_768
"""The rest of a message with a client's request body: its caller, their scopes, and the question that it answers."""

MessageHandler: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes the body of a request and returns that of the reply, or None if the request is malformed."""

log = logging.getLogger(__name__)


class NoReply(GatewayError):
    """A message got no reply from the process that it is for. The text says why, for the operator.

    `fields` are what the text leaves out, for the log, such as the URL.
    """

    def __init__(self, why: str, **fields: object) -> None:
        super().__init__(why)
        self.fields = fields


class LostPeer(NoReply):
    """A process did not answer a request for a stream, or did not finish its answer.

    `may_have_acted` tells whether it may have received the request, and `is_gone` whether it seems to have ended.
    """

    def __init__(self, why: str, *, may_have_acted: bool = True, is_gone: bool = False, **fields: object) -> None:
        super().__init__(why, **fields)
        self.may_have_acted = may_have_acted
        self.is_gone = is_gone


class Neighbours(Protocol):
    """The other processes of the deployment on this host."""

    def has(self, boot: bytes) -> bool:
        """Return whether the process with this boot id seems to be one of them."""
        ...

    async def post(self, boot: bytes, message: bytes) -> bytes:
        """Post a sealed message to one of them, and return its reply within a short time, or raise `NoReply`."""
        ...

    def stream(self, boot: bytes, message: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a sealed request for a stream to one of them; the context has the stream in pieces.

        If it cannot be sent, entering the context raises `LostPeer`. If the stream breaks, that raises `OSError`.
        """
        ...


def max_message_bytes(max_body_bytes: int) -> int:
    """Return the largest message for client request bodies of up to `max_body_bytes`."""
    return message_bytes(max_body_bytes + _MAX_BESIDE_BODY)


class Hops:
    """Sends messages to other replicas and receives messages for this one.

    `neighbours` posts messages to processes on this host, which may share its URL or have none. A message longer than
    `max_bytes` is not opened.
    """

    def __init__(
        self,
        keys: KeyHolder,
        replica: ReplicaAddress,
        *,
        post: Post,
        neighbours: Neighbours,
        telemetry: Telemetry,
        max_bytes: int,
    ) -> None:
        self._keys = keys
        self._url = replica.url
        self._process = Process(Role.REPLICA, replica.boot)
        self._post = post
        self._neighbours = neighbours
        self._telemetry = telemetry
        self._max_bytes = max_bytes
        self._handlers: dict[str, MessageHandler] = {}
        self._seen = SeenNonces()

    def handle(self, kind: str, handler: MessageHandler) -> None:
        """Register the handler for requests of a kind."""
        self._handlers[kind] = handler

    async def ask(self, replica: ReplicaAddress, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request to another replica and return the body of its reply.

        The replica's URL must come from one of our own tokens or settings. The bodies are maps of JSON values and
        `bytes`.

        Raises:
            NoReply: no reply opens.
        """
        answered = False
        try:
            reply = await self._exchange(replica, HopContent(kind, body))
            answered = True
        finally:
            self._telemetry.hop_sent(answered=answered)
        return reply

    async def _exchange(self, replica: ReplicaAddress, content: HopContent) -> Mapping[str, Any]:
        hops = self._hops(replica.url)
        request = self._head(Process(Role.REPLICA, replica.boot))
        message = await self._send(replica, hops.seal_request(request, content))
        try:
            reply = hops.open_reply(message, request, max_bytes=MAX_REPLY_BYTES)
        except HopRefused as refused:
            raise NoReply("the reply does not open", url=replica.url, reason=refused.reason.value) from None
        if reply.kind != content.kind:
            raise NoReply("the reply is of another kind", url=replica.url)
        return reply.body

    async def _send(self, replica: ReplicaAddress, message: bytes) -> bytes:
        if self._neighbours.has(replica.boot):
            return await self._neighbours.post(replica.boot, message)
        if not replica.url:
            raise NoReply(
                "the process is not on this host, or has ended, and has no GATEWAY_REPLICA_URL; set it on each replica"
            )
        if replica.url == self._url:
            raise NoReply(
                "the process is not on this host, or has ended, and has the same GATEWAY_REPLICA_URL; give each host "
                "its own",
                url=replica.url,
            )
        try:
            return await self._post(replica.url, message)
        except NoReply as error:
            raise NoReply(f"{error}; if its replica runs, correct its GATEWAY_REPLICA_URL", **error.fields) from None

    def seal_for_everyone(self, kind: str, body: Mapping[str, Any]) -> bytes:
        """Return a message for all replicas. Each accepts it once. The body is a map of JSON values and `bytes`."""
        return self._hops("").seal_request(self._head(Process(Role.REPLICA, EVERYONE)), HopContent(kind, body))

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

    async def receive(self, message: bytes) -> bytes | None:
        """Do what `take` does, or pass a message for another process on this host on to it.

        Processes that share a URL get each other's messages. A message is only passed on if it opens, and the process
        that gets it from a neighbour never passes it on again.
        """
        boot = receiver_of(message)
        if boot == self._process.boot or not self._neighbours.has(boot) or not self._is_authentic(message, boot):
            return self.take(message)
        try:
            return await self._neighbours.post(boot, message) or None
        except NoReply as error:
            message_text = f"message of a replica not passed on: {error}"
            log.warning(message_text, extra=error.fields)
            return None

    def _is_authentic(self, message: bytes, boot: bytes) -> bool:
        receiver = Process(Role.REPLICA, boot)
        try:
            self._hops(self._url).open_request(message, receiver, now=self._keys.clock(), max_bytes=self._max_bytes)
        except HopRefused:
            return False
        return True

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
        return hops.seal_reply(self._head(request.sender), HopContent(content.kind, body), request)

    def _hops(self, url: str) -> HopSealer:
        return HopSealer(self._keys.current, self._keys.audience, url)

    def _head(self, receiver: Process) -> Head:
        keys = self._keys
        return Head(self._process, receiver, keys.random_bytes(NONCE_BYTES), int(keys.clock() * 1000))


Post: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]
"""Posts a sealed message to the process at a URL, within a short time, and returns its reply. It raises `NoReply`."""
