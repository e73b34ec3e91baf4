"""What the wires need from outside: the other end of a connection, and messages to other replicas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol


class Carrier(Protocol):
    """Delivers sealed messages to all other replicas."""

    async def send(self, seal: Callable[[], bytes]) -> bool:
        """Send a message, within a short time; return whether it was delivered. Raises nothing.

        Args:
            seal: returns the message, sealed anew each time: for one delivery to each replica.
        """
        ...

    def listening(self, take: Callable[[bytes], object]) -> AbstractAsyncContextManager[None]:
        """Hand the messages of other replicas to `take` while the context is open, if they arrive this way."""
        ...


class Client(Protocol):
    """The other end of a request's connection."""

    @property
    def post(self) -> Callable[[bytes], None] | None:
        """Sends a notification ahead of the answer, from any thread; None if the client takes no stream.

        Who reads slowly misses some.
        """
        ...

    @property
    def forwarded_id(self) -> str:
        """What a trusted proxy calls the request, each time that it sends it; "" where none did."""
        ...

    def ask(self, request: bytes) -> None:
        """Send a request of ours ahead of the answer, to a client that takes a stream. It waits for slow readers."""
        ...

    async def enter(self) -> None:
        """Take a place among the requests that are worked on, unless this one needs none or has one.

        Raises:
            Overloaded: there is none.
        """
        ...

    def leave(self) -> None:
        """Give up the place: all that there is to do is to wait for others, such as another replica."""
        ...

    def streaming(self) -> AbstractContextManager[None]:
        """Count as one open stream of the caller while the context is open; inside of another one, no second time.

        Raises:
            TooManyStreams: by the context, as it is entered: the caller has as many open as allowed.
        """
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Wait for somebody else while the context is open.

        The request gives up its place, counts as an open stream, see `streaming`, and ends if the client goes away.

        Raises:
            TooManyStreams: by the context, as it is entered: the caller has as many open as allowed.
        """
        ...
