"""The interfaces that the wires need: the other end of a connection, and messages to other replicas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.versions import Wire


class Carrier(Protocol):
    """Delivers sealed messages to all other replicas."""

    async def send(self, seal: Callable[[], bytes]) -> bool:
        """Send a message within a short time, and return whether it was delivered. This raises nothing.

        `seal` seals the message again for each call; each replica gets its own.
        """
        ...

    def listening(self, take: Callable[[bytes], object]) -> AbstractAsyncContextManager[None]:
        """Pass messages from other replicas to `take` while the context is open, if they arrive by this carrier."""
        ...


class Held(Protocol):
    """Bytes that this replica holds for a caller. They count like those of a body, see `gateway.admission.bodies`."""

    def keep(self, size: int) -> None:
        """Count further bytes, which came in a body.

        Raises:
            TooManyBodyBytes: the caller has its share. None of them counts.
        """
        ...

    def grow_to(self, size: int) -> None:
        """Count so many bytes.

        Raises:
            TooManyBodyBytes: the caller has its share. None of them counts.
        """
        ...

    def clear(self) -> None:
        """Count none of the bytes any more."""
        ...


class Client(Protocol):
    """The other end of a request's connection."""

    @property
    def post(self) -> Callable[[bytes], None] | None:
        """Sends a notification before the answer, from any thread; None if the client does not accept a stream.

        A slow reader misses some notifications.
        """
        ...

    @property
    def forwarded_id(self) -> str:
        """The id that a trusted proxy gives the request in all of its attempts, or ""."""
        ...

    def identify(self, request_id: RequestId | None, wire: Wire | None) -> None:
        """Name the request that an error which is about to escape belongs to, and its wire; None if not known."""
        ...

    def ask(self, request: bytes) -> None:
        """Send a server request before the answer, to a client that accepts a stream. It waits for slow readers."""
        ...

    async def enter(self) -> None:
        """Take a place among the requests in progress, unless this request has one or needs none.

        If no place is free, this raises `Overloaded`.
        """
        ...

    def leave(self) -> None:
        """Give up the place. Call this if the request only waits for something else, such as another replica."""
        ...

    def streaming(self) -> AbstractContextManager[None]:
        """Count as one open stream of the caller while the context is open. Nested contexts count only once.

        Entering it raises `TooManyStreams` if the caller has as many open streams as allowed.
        """
        ...

    def holding(self) -> AbstractContextManager[Held]:
        """Count bytes of the caller while the context is open. It begins with none."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Wait for something else while the context is open.

        The request gives up its place, counts as an open stream (see `streaming`), and ends if the client disconnects.
        """
        ...
