"""Changes of lists, resources and tasks, for the `subscriptions/listen` streams of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Final

PAUSE_SECONDS: Final = 0.25
"""How long changes are collected after some were delivered."""


class Subscription:
    """The changes that one stream has not sent yet. Repeated changes are sent once.

    `topics` are names of lists, URIs of resources, or values that stand for tasks.
    """

    def __init__(self, topics: Iterable[Hashable]) -> None:
        self._topics = frozenset(topics)
        self._pending: dict[Hashable, None] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def notify(self, topic: Hashable) -> None:
        """Note a change, if the stream listens for it."""
        if topic in self._topics:
            self._pending[topic] = None
            self._wake.set()

    def close(self) -> None:
        """End the stream after what is pending."""
        self._closed = True
        self._wake.set()

    def cut(self) -> None:
        """End the stream at once, without what is pending."""
        self._topics = frozenset()
        self._pending.clear()
        self.close()

    async def changed(self) -> bool:
        """Wait for a change, and return True; False when the stream should end."""
        while not self._pending:
            if self._closed:
                return False
            self._wake.clear()
            await self._wake.wait()
        return True

    def take(self) -> Hashable | None:
        """Return the next change that is pending, or None without one."""
        topic = next(iter(self._pending), None)
        self._pending.pop(topic, None)
        return topic


class ChangeHub:
    """Passes announcements to the subscriptions of this process, and to other replicas.

    `forward` notifies all other replicas of a change. It may be called from any thread. A change is delivered at once,
    but changes within `PAUSE_SECONDS` after a delivery wait for the next one: a server may announce them without end.
    """

    def __init__(self) -> None:
        self.forward: Callable[[str], None] = lambda _topic: None
        self._subscriptions: set[Subscription] = set()
        self._changed: dict[str, None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def subscribe(self, topics: Iterable[Hashable]) -> Subscription:
        """Return a new subscription; end it with `unsubscribe`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._pause = loop, None
        subscription = Subscription(topics)
        self._subscriptions.add(subscription)
        if self._closed:
            subscription.close()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._subscriptions.discard(subscription)

    def announce(self, topic: str) -> None:
        """Announce a change on all replicas: the name of a list, or the URI of a resource. Thread-safe."""
        self.announce_here(topic)
        self.forward(topic)

    def announce_here(self, topic: str) -> None:
        """Announce a change in this process only, such as one that another replica has announced."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, topic)

    def _note(self, topic: str) -> None:
        self._changed[topic] = None
        if self._pause is None or self._closed:
            self._deliver()

    def _deliver(self) -> None:
        """Deliver what has changed, and pause. After a pause without a change, the next one is delivered at once."""
        self._pause = None
        changed, self._changed = self._changed, {}
        for subscription in self._subscriptions:
            for topic in changed:
                subscription.notify(topic)
        if changed:
            self._pause = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._deliver)

    def close(self) -> None:
        """End every stream after what has changed, including later ones. Call it on the event loop."""
        self._closed = True
        self._deliver()
        for subscription in self._subscriptions:
            subscription.close()
