"""Messages for all replicas go over a channel of the store, to each process of the deployment and to no other."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import redis

from tests.storage.deployments import Deployment, eventually
from tests.storage.servers import Server

ANY_BYTES = bytes(range(256))


class Heard:
    """The messages that a process has received."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def has(self, *messages: bytes) -> bool:
        return [message for message in self.messages if message in messages] == list(messages)


def _listening(deployment: Deployment, heard: Heard) -> AbstractAsyncContextManager[None]:
    return deployment.store().replica_channel().listening(heard.messages.append)


async def test_every_process_of_the_deployment_hears_a_message(here: Deployment) -> None:
    first, second = Heard(), Heard()
    async with _listening(here, first), _listening(here, second):
        assert await here.store().replica_channel().send(lambda: ANY_BYTES)
        await eventually(lambda: first.has(ANY_BYTES))
        await eventually(lambda: second.has(ANY_BYTES))


async def test_on_a_cluster_too(cluster: str) -> None:
    there, heard = Deployment(cluster), Heard()
    async with _listening(there, heard):
        assert await there.store().replica_channel().send(lambda: ANY_BYTES)
        await eventually(lambda: heard.has(ANY_BYTES))
    await there.aclose()


async def test_another_deployment_on_the_same_server_hears_nothing(here: Deployment, server: Server) -> None:
    other, heard, witness = Deployment(server.url), Heard(), Heard()
    async with _listening(other, heard), _listening(here, witness):
        assert await here.store().replica_channel().send(lambda: b"for here")
        assert await other.store().replica_channel().send(lambda: b"for there")
        await eventually(lambda: heard.has(b"for there"))
        await eventually(lambda: witness.has(b"for here"))
    assert heard.messages == [b"for there"]
    await other.aclose()


async def test_messages_that_others_publish_there_do_no_harm(here: Deployment, server: Server) -> None:
    heard = Heard()
    async with _listening(here, heard):
        with redis.Redis.from_url(server.url) as stranger:
            for text in (b"", b"not base64!", b"=", "\u00e9".encode(), os.urandom(8).hex().encode()[:-1]):
                stranger.publish(here.keys.replicas(), text)
        assert await here.store().replica_channel().send(lambda: ANY_BYTES)
        await eventually(lambda: heard.has(ANY_BYTES))


async def test_an_unreachable_store_delivers_nothing_and_delivers_again_when_it_is_back(own_server: Server) -> None:
    there, heard = Deployment(own_server.url), Heard()
    channel = there.store().replica_channel()
    async with _listening(there, heard):
        assert await channel.send(lambda: b"first")
        await eventually(lambda: heard.has(b"first"))
        own_server.kill()
        assert not await channel.send(lambda: b"lost")
        own_server.start()

        async def heard_again() -> bool:
            await channel.send(lambda: b"again")
            return b"again" in heard.messages

        await eventually(heard_again)
    assert b"lost" not in heard.messages
    await there.aclose()


async def test_a_store_unreachable_at_the_start_delays_nobody_for_long(tmp_path: Path) -> None:
    nowhere, heard = Deployment(f"unix://{tmp_path}/nobody"), Heard()
    async with asyncio.timeout(20), _listening(nowhere, heard):
        pass
    await nowhere.aclose()
