"""Answers go from replica to replica in sealed messages. An impostor in a replica's place learns and gains nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from gateway.sealing.envelope import Sealer
from gateway.sealing.hop import Head, HopContent, HopSealer, Process, Role
from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Replica, new_key
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.messages import accept
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import asked, calling, rejected, result_of, speak, text_of, undelivered

PATH: Final = "/_gateway/hop"
TYPE: Final = "application/vnd.sealed-gateway.hop"
PRIVATE: Final = "a-private-answer"
USER: Final = "ada-lovelace"
SECONDS: Final = 20.0
HEAD_BYTES: Final = 59


class Stranger:
    """A server in the place of a replica, which notes all that it is sent.

    Attributes:
        upstream: the address that requests are passed on to; None to say `answer` instead.
    """

    def __init__(self) -> None:
        self.received = bytearray()
        self.bodies: list[bytes] = []
        self.upstream: tuple[str, int] | None = None
        self.answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(length)
        self.received += head + body
        self.bodies.append(body)
        writer.write(self.answer if self.upstream is None else await self._passed_on(head + body))
        writer.close()

    async def _passed_on(self, request: bytes) -> bytes:
        assert self.upstream is not None
        reader, writer = await asyncio.open_connection(*self.upstream)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def strange(**where: Any) -> AsyncIterator[Stranger]:
    stranger = Stranger()
    server = await asyncio.start_server(stranger.serve, **where)
    stranger.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield stranger
    finally:
        server.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Deployment]:
    """Two replicas that a test may break."""
    with Deployment(
        tmp_path, None, {"GATEWAY_TOOLS": "tests.wires.draft.tools,tests.wires.legacy.guarded_tools"}
    ) as pair:
        yield pair


def refused(replica: Replica, reason: str) -> float:
    return replica.metric("gateway_hop_messages_refused_total", reason=reason)


def sent(replica: Replica, result: str) -> float:
    return replica.metric("gateway_hop_messages_sent_total", result=result)


async def post(url: str, body: bytes, **headers: str) -> httpx.Response:
    """Post something to the path for messages of replicas."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=SECONDS) as client:
        return await client.post(
            url.removesuffix("/mcp") + PATH, content=body, headers={"content-type": TYPE, **headers}
        )


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/mcp\r\ncontent-length: 0\r\n\r\n",
    ],
    ids=["accepted", "ok", "redirect"],
)
async def test_who_takes_the_place_of_a_killed_replica_reads_no_token_no_session_and_no_answer(
    pair: Deployment, answer: bytes
) -> None:
    first, second = pair.replicas
    user = await speak(pair.client(USER, urls=[first.url]))
    async with calling(user, "ask_politely") as call:
        question = await asked(call)
        first.kill()
        async with strange(sock=first.listener.dup()) as stranger:
            stranger.answer = answer
            user.transport.urls = [second.url]
            gone = rejected(second, "gone")
            with undelivered():
                await user.respond(question["id"], {"result": accept(name=PRIVATE)})
            assert len(stranger.bodies) == 1
            assert rejected(second, "gone") == gone + 1
            assert sent(second, "failed") == 1
    token = user.transport.headers["Authorization"].removeprefix("Bearer ")
    session = user.session_id
    assert session is not None
    heard = bytes(stranger.received)
    for secret in (token, token.split(".")[1], session, PRIVATE, question["id"], USER, "Bearer", "mcp-session-id"):
        assert secret.encode() not in heard, secret
        assert secret.lower().encode() not in heard.lower(), secret
    assert heard.startswith(f"POST {PATH} HTTP/1.1\r\n".encode())


async def test_a_message_that_was_listened_to_is_of_no_use_to_anybody(tmp_path: Path) -> None:
    """A listener sits between the replicas: it can carry a message to the one that it is for, once."""
    async with strange(host="127.0.0.1", port=0) as listener:
        own = {"r1": {"GATEWAY_REPLICA_URL": listener.url}, "r2": {}}
        with Deployment(tmp_path, None, {"GATEWAY_TOOLS": "tests.wires.draft.tools"}, own) as pair:
            first, second = pair.replicas
            listener.upstream = first.address
            user = await speak(pair.client(USER, urls=[first.url]))
            async with calling(user, "ask_politely") as call:
                question = await asked(call)
                user.transport.urls = [second.url]
                await user.respond(question["id"], {"result": accept(name=PRIVATE)})
                assert text_of(await result_of(call)) == PRIVATE
            (message,) = listener.bodies
            assert PRIVATE.encode() not in listener.received
            answers = [await post(first.url, message)]
            assert refused(first, "replayed") == 1
            answers.append(await post(second.url, message))
            assert refused(second, "other_receiver") == 1
            for place in (0, 1, 2, 3, 19, 35, 51, 58, 59, 63, 80, len(message) - 1):
                changed = bytearray(message)
                changed[place] ^= 1
                answers.append(await post(first.url, bytes(changed)))
            first.restart()
            answers.append(await post(first.url, message))
            assert refused(first, "other_receiver") == 1
            for garbage in (b"", b"{}", os.urandom(2000), message[:HEAD_BYTES] + os.urandom(1000)):
                answers += [await post(first.url, garbage)]
            answers.append(await post(first.url, message, **{"content-type": "application/json"}))
            answers.append(await post(first.url, message, host="evil.example.com"))
    assert {(answer.status_code, answer.content) for answer in answers} == {(404, b"")}
    told = {tuple(sorted(item for item in answer.headers.items() if item[0] != "date")) for answer in answers}
    assert told == {(("connection", "close"), ("content-length", "0"))}


async def test_an_answer_that_its_token_or_session_does_not_allow_is_refused_alike_at_either_replica(
    pair: Deployment,
) -> None:
    first, second = pair.replicas
    user = await speak(pair.client(USER, urls=[first.url], scopes=["admin"]))
    poor = await speak(pair.client(USER, urls=[first.url], scopes=["other"]))
    elsewhere = await speak(pair.client(USER, urls=[first.url], scopes=["admin"]))
    assert poor.session_id != user.session_id != elsewhere.session_id
    poor.transport.headers["Mcp-Session-Id"] = str(user.session_id)
    async with calling(user, "ask_guarded") as call:
        question = await asked(call)
        for sender, challenge in ((poor, 'scope="admin other"'), (elsewhere, "")):
            here, there = [
                await _answer_at(replica, sender, question["id"], {"result": accept(name="eve")})
                for replica in (first, second)
            ]
            assert here.status_code == there.status_code == 403
            assert challenge in here.headers["www-authenticate"]
            assert here.headers["www-authenticate"] == there.headers["www-authenticate"]
            assert here.content == there.content
        other = await _answer_at(second, user, question["id"], {"result": accept(name=PRIVATE)})
        assert (other.status_code, other.content) == (202, b"")
        assert text_of(await result_of(call)) == PRIVATE


async def _answer_at(replica: Replica, sender: DraftClient, question: str, answer: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=SECONDS) as client:
        message = {"jsonrpc": "2.0", "id": question, **answer}
        return await client.post(replica.url, json=message, headers=sender.transport.headers)


async def test_messages_of_another_time_or_key_are_refused(fleet: Deployment) -> None:
    first = fleet.replicas[0]
    url = first.url.removesuffix("/mcp")
    keys = fleet.environ["GATEWAY_SEAL_KEYS"]
    receiver = Process(Role.REPLICA, bytes(16))
    for key, seconds, reason in ((keys, -31, "stale"), (keys, 31, "stale"), (new_key(), 0, "unknown_key")):
        hops = HopSealer(Sealer(KeyRing.parse(key), os.urandom), AUDIENCE, url)
        time_ms = int((time.time() + seconds) * 1000)
        head = Head(Process(Role.REPLICA, b"s" * 16), receiver, os.urandom(16), time_ms)
        before = refused(first, reason)
        assert (await post(url, hops.seal_request(head, HopContent("answer", {})))).status_code == 404
        assert refused(first, reason) == before + 1


async def test_a_flood_of_garbage_keeps_no_answer_away(
    begin: Begin, fleet: Deployment, name: str, user: DraftClient
) -> None:
    """Outsiders hold every message place there is with bodies that never end, and send garbage beside."""
    first, second = fleet.replicas
    user.transport.urls = [first.url]
    head = f"POST {PATH} HTTP/1.1\r\nhost: {first.url[7:-4]}\r\ncontent-type: {TYPE}\r\n".encode()
    async with contextlib.AsyncExitStack() as stack:
        call = await stack.enter_async_context(calling(user, "ask", call=name, kinds=["form"]))
        question = await asked(call)
        before = refused(first, "overloaded")
        writers: list[asyncio.StreamWriter] = []
        for _ in range(100):
            _reader, writer = await asyncio.open_connection(*first.address)
            stack.callback(writer.transport.abort)
            writer.write(head + b"content-length: 100000\r\n\r\n" + b"x" * 100)
            writers.append(writer)
        await asyncio.gather(*(writer.drain() for writer in writers))
        answers = await asyncio.gather(*(post(first.url, os.urandom(20_000)) for _ in range(50)))
        assert {answer.status_code for answer in answers} == {404}
        assert refused(first, "overloaded") > before
        user.transport.urls = [second.url]
        await user.respond(question["id"], {"result": accept(name="ada")})
        assert text_of(await result_of(call)) == "form: ada"


async def test_a_large_answer_reaches_the_other_replica_whole(begin: Begin, fleet: Deployment, name: str) -> None:
    first, second = fleet.replicas
    user = await begin(urls=[first.url])
    long = "ä" * 400_000
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        question = await asked(call)
        user.transport.urls = [second.url]
        await user.respond(question["id"], {"result": accept(name=long)})
        assert text_of(await result_of(call)) == f"form: {long}"
