"""The port `gateway.wires.ports.Carrier` on a Redis channel. Messages are sealed, and Redis stores none of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.errors import TaskStoreDown
from gateway.runtime.background import task_running
from gateway.storage.client import RedisClient
from gateway.storage.lua.shared_scripts import TELL
from gateway.storage.pubsub import Listener, Subscriber
from gateway.storage.redis_keys import RedisKeys

_WAIT_SECONDS = 60.0


class ReplicaChannel:
    """Publishes messages for all replicas, and receives them."""

    def __init__(self, client: RedisClient, notices: Subscriber, keys: RedisKeys) -> None:
        self._client = client
        self._notices = notices
        self._keys = keys

    async def send(self, seal: Callable[[], bytes]) -> bool:
        """See `gateway.wires.ports.Carrier.send`. A replica that is not listening misses the message."""
        text = base64.b64encode(seal()).decode("ascii")
        try:
            await self._client.run(TELL, [self._keys.agreed_partitions()], [self._keys.replicas(), text])
        except TaskStoreDown:
            return False
        return True

    @asynccontextmanager
    async def listening(self, take: Callable[[bytes], object]) -> AsyncIterator[None]:
        """See `gateway.wires.ports.Carrier.listening`. The process that sent a message receives it too."""
        async with self._notices.listen(self._keys.replicas()) as listener, task_running(_hear(listener, take)):
            yield


async def _hear(listener: Listener, take: Callable[[bytes], object]) -> None:
    while True:
        for text in await listener.wait(_WAIT_SECONDS):
            try:
                message = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                continue
            take(message)
