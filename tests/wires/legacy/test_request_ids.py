"""The ids of the server's requests. Any other id, or one for another caller, changes nothing and leads nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pytest

from gateway.sealing.binding import request_id_binding
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.sealing.request_id import CallAddress, TaskAddress, open_request_id, seal_request_id
from loadtest.cluster import new_key
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.messages import accept
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import asked, calling, rejected, result_of, text_of, undelivered

pytestmark = pytest.mark.slow

YES: Final[Any] = {"result": accept(name="ada")}
EVE: Final[Any] = {"result": accept(name="eve")}


def aad(principal: str, audience: str = AUDIENCE) -> bytes:
    return request_id_binding(audience, Principal("", principal, ""))


def sealer_of(fleet: Deployment) -> Sealer:
    return Sealer(KeyRing.parse(fleet.environ["GATEWAY_SEAL_KEYS"]), os.urandom)


def opened(fleet: Deployment, token: str, principal: str) -> CallAddress:
    """Open the id of a replica's request."""
    address = open_request_id(sealer_of(fleet), token, aad=aad(principal), now=time.time())
    assert isinstance(address, CallAddress)
    return address


def sealed(fleet: Deployment, address: CallAddress | TaskAddress, principal: str) -> str:
    """Seal an id as a replica would."""
    return seal_request_id(sealer_of(fleet), address, aad=aad(principal))


def all_rejected(fleet: Deployment, reason: str) -> float:
    return sum(rejected(replica, reason) for replica in fleet.replicas)


async def test_an_address_leads_to_its_replica_and_says_no_more_than_that_to_those_with_the_key(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        question = await asked(call)
        address = opened(fleet, question["id"], name)
        assert f"{address.replica_url}/mcp" == call.url
        assert address.key == "form"
        assert address.replica_url not in question["id"]
        await user.respond(question["id"], YES)
        assert text_of(await result_of(call)) == "form: ada"


async def test_what_is_no_address_of_ours_for_the_caller_changes_nothing_and_is_counted(
    user: DraftClient, begin: Begin, fleet: Deployment, name: str
) -> None:
    eve = await begin(f"{name}-eve")
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        good = (await asked(call))["id"]
        address = opened(fleet, good, name)
        middle = len(good) // 2
        other_key = Sealer(KeyRing.parse(new_key()), os.urandom)
        for sender, bad, reason in (
            (user, good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :], "not_authentic"),
            (user, f"{good}AAAA", "not_authentic"),
            (user, "form", "malformed"),
            (user, "", "malformed"),
            (user, 7, "malformed"),
            (user, "s1." + "A" * 1600, "too_large"),
            (eve, good, "not_authentic"),
            (user, seal_request_id(other_key, address, aad=aad(name)), "unknown_key"),
            (user, seal_request_id(sealer_of(fleet), address, aad=aad(name, "elsewhere")), "not_authentic"),
            (user, sealed(fleet, replace(address, expires_at=time.time() - 1), name), "expired"),
            (user, sealed(fleet, replace(address, key="other"), name), "late"),
            (user, sealed(fleet, replace(address, call=os.urandom(16)), name), "late"),
            (user, sealed(fleet, replace(address, boot=os.urandom(16)), name), "gone"),
            (user, sealed(fleet, replace(address, boot=os.urandom(16), replica_url=""), name), "gone"),
            (user, sealed(fleet, TaskAddress("t_unknown", "form", time.time() + 60), name), "late"),
        ):
            before = all_rejected(fleet, reason)
            is_lost = reason in ("gone", "unknown_key")
            with undelivered() if is_lost else contextlib.nullcontext():
                await sender.respond(bad, EVE)
            assert all_rejected(fleet, reason) == before + 1, bad
        await user.respond(good, YES)
        assert text_of(await result_of(call)) == "form: ada"


async def test_an_answer_counts_once(user: DraftClient, fleet: Deployment, name: str) -> None:
    async with calling(user, "ask", call=name, kinds=["form", "other_form"]) as call:
        first, second = (await asked(call))["id"], (await asked(call, 2))["id"]
        late = all_rejected(fleet, "late")
        await user.respond(first, YES)
        await user.respond(first, EVE)
        assert all_rejected(fleet, "late") == late + 1
        await user.respond(second, YES)
        assert text_of(await result_of(call)) == "form: ada, other_form: ada"
    await user.respond(first, EVE)
    await user.respond(second, EVE)
    assert all_rejected(fleet, "late") == late + 3


@dataclass
class Trap:
    """A server that notes the heads of the requests it gets."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        writer.close()


@pytest.fixture
async def trap() -> AsyncIterator[Trap]:
    trap = Trap()
    server = await asyncio.start_server(trap.serve, "127.0.0.1", 0)
    trap.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    yield trap
    server.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait_closed(), 1)


async def test_nothing_but_an_opened_address_says_where_an_answer_is_sent(
    user: DraftClient, fleet: Deployment, name: str, trap: Trap
) -> None:
    address = CallAddress(trap.url, os.urandom(16), os.urandom(16), "form", time.time() + 60)
    good = sealed(fleet, address, name)
    other_key = Sealer(KeyRing.parse(new_key()), os.urandom)
    more = YES | {"url": trap.url, "replica_url": trap.url}
    with undelivered():
        await user.respond(seal_request_id(other_key, address, aad=aad(name)), more)
    for bad in (
        seal_request_id(sealer_of(fleet), address, aad=aad("somebody")),
        sealed(fleet, replace(address, expires_at=time.time() - 1), name),
        msgspec.json.encode({"url": trap.url, "kind": "call"}).decode(),
        trap.url,
        good[:-2],
    ):
        await user.respond(bad, more)
    user.transport.headers |= {"X-Gateway-Replica-Url": trap.url, "X-Forwarded-Host": trap.url, "Referer": trap.url}
    await user.respond("s1.", YES)
    assert trap.requests == []
    with undelivered():
        await user.respond(good, YES)
    (head,) = trap.requests
    assert head.startswith(b"POST /_gateway/hop HTTP/1.1\r\n")
    assert b"\r\nHost: " + trap.url.removeprefix("http://").encode() in head
    assert b"referer" not in head.lower()


async def test_without_a_url_of_its_own_a_replica_takes_only_the_answers_that_reach_it(
    begin: Begin, fleet: Deployment, name: str
) -> None:
    alone = fleet.add_replica("alone")
    del alone.environ["GATEWAY_REPLICA_URL"]
    alone.terminate()
    alone.start()
    alone.wait_ready()
    try:
        assert [line for line in alone.log_lines() if "GATEWAY_REPLICA_URL is not set" in line["message"]]
        user = await begin(urls=[alone.url])
        async with calling(user, "ask", call=name, kinds=["form"]) as call:
            question = await asked(call)
            gone = all_rejected(fleet, "gone")
            user.transport.urls = fleet.urls[:1]
            with undelivered():
                await user.respond(question["id"], YES)
            assert all_rejected(fleet, "gone") == gone + 1
            assert [
                line
                for line in fleet.replicas[0].log_lines()
                if "has no GATEWAY_REPLICA_URL; set it" in line["message"]
            ]
            assert text_of(await result_of(call)).startswith("An answer reached another process of the server")
        user.transport.urls = [alone.url]
        async with calling(user, "ask", call=name, kinds=["form"]) as call:
            await user.respond((await asked(call))["id"], YES)
            assert text_of(await result_of(call)) == "form: ada"
    finally:
        fleet.remove_replica("alone")
