"""The path for messages of other replicas: what is a message gets a reply, all else one answer, at little cost."""

from __future__ import annotations

import asyncio
import math
import os
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gateway.errors import HopReason
from gateway.process.app import GatewayApp
from gateway.sealing.envelope import Sealer
from gateway.sealing.hop import Head, HopContent, HopSealer, Process, Role
from gateway.sealing.keyring import KeyRing
from gateway.tokens.hop_messages import HOP_PATH
from gateway.web import hop_endpoint
from gateway.web.hop import HOP_TYPE
from gateway.web.hop_endpoint import MAX_ARRIVING
from gateway.wires.legacy.answer_delivery import ANSWER
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import Answer

URL = "http://127.0.0.1:8080/inner"
KEY = new_key()
SENDER = Process(Role.REPLICA, b"s" * 16)
TYPE = (b"content-type", HOP_TYPE)
REFUSED = (404, b"")
SECONDS = 20.0


def make(**settings: Any) -> GatewayApp:
    return make_app(seal_keys=KEY, replica_url=URL, **settings)


def hops() -> HopSealer:
    return HopSealer(Sealer(KeyRing.parse(KEY), os.urandom), "tests", URL)


def request_for(app: GatewayApp) -> Head:
    receiver = Process(Role.REPLICA, app._services.waiting.boot)
    return Head(SENDER, receiver, os.urandom(16), int(time.time() * 1000))


def message_for(head: Head, size: int = 0) -> bytes:
    response = b'{"jsonrpc":"2.0","id":"s1.","result":{}}' + b" " * size
    authority: dict[str, Any] = {"principal": None, "scopes": [], "ends_at": math.inf, "key": b"", "session": b""}
    body = {"call": b"c" * 16, "key": "key", "response": response, "authority": authority}
    return hops().seal_request(head, HopContent(ANSWER, body))


def refusals(app: GatewayApp) -> dict[HopReason, float]:
    counted: dict[HopReason, float] = {}
    for reason in HopReason:
        value = app._services.telemetry.registry.get_sample_value(
            "gateway_hop_messages_refused_total", {"reason": reason.value}
        )
        if value:
            counted[reason] = value
    return counted


async def post(app: GatewayApp, *chunks: bytes, headers: Any = (HOST, TYPE), method: str = "POST") -> Answer:
    return await Client(app).send(chunks or [b""], headers, method=method, path=HOP_PATH)


@pytest.mark.parametrize("pieces", [1, 2, 50])
async def test_a_message_gets_a_sealed_reply_however_it_arrives(pieces: int) -> None:
    app = make()
    head = request_for(app)
    message = message_for(head)
    size = len(message) // pieces + 1
    answer = await post(app, *(message[start : start + size] for start in range(0, len(message), size)))
    assert answer.status == 200
    assert answer.headers["content-type"] == HOP_TYPE.decode()
    reply = hops().open_reply(answer.body, head, max_bytes=65_536)
    assert reply == HopContent(ANSWER, {"outcome": "late"})
    assert refusals(app) == {}


async def test_no_token_is_asked_for() -> None:
    app = make(auth="jwt", jwt_secret="0123456789abcdef0123456789abcdef")
    assert (await post(app, message_for(request_for(app)))).status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "DELETE"])
async def test_other_methods_learn_nothing(method: str) -> None:
    app = make()
    answer = await post(app, message_for(request_for(app)), method=method)
    assert (answer.status, answer.body) == REFUSED


@pytest.mark.parametrize(
    "headers",
    [
        (HOST,),
        (HOST, (b"content-type", b"application/json")),
        (HOST, TYPE, HOST),
        ((b"host", b"evil.example.com"), TYPE),
        (HOST, TYPE, (b"origin", b"https://evil.example.com")),
    ],
    ids=["no type", "other type", "two hosts", "other host", "web page"],
)
async def test_what_no_replica_would_send_is_not_even_read(headers: Any) -> None:
    app = make()
    client = Client(app)
    answer = await client.send([message_for(request_for(app))], headers, path=HOP_PATH)
    assert (answer.status, answer.body) == REFUSED
    assert client.asked_for == 0
    assert refusals(app) == {HopReason.MALFORMED: 1}


@pytest.mark.setting("replica_url", "allowed_hosts")
async def test_a_replica_is_called_by_the_name_in_its_url_whatever_hosts_it_serves() -> None:
    app = make(allowed_hosts=("mcp.example.com",))
    for host, status in {b"127.0.0.1:8080": 200, b"mcp.example.com": 200, b"other.example.com": 404}.items():
        message = message_for(request_for(app))
        assert (await post(app, message, headers=((b"host", host), TYPE))).status == status


@pytest.mark.setting("max_body_bytes")
async def test_a_message_that_is_too_long_is_not_read_to_its_end() -> None:
    app = make(max_body_bytes=1000)
    client = Client(app)
    answer = await client.send([os.urandom(10_000)] * 1000, (HOST, TYPE), path=HOP_PATH)
    assert (answer.status, answer.body) == REFUSED
    assert client.asked_for < 10
    assert refusals(app) == {HopReason.TOO_LARGE: 1}


@pytest.mark.setting("max_body_bytes")
async def test_the_largest_body_that_a_client_may_send_fits_into_a_message() -> None:
    app = make(max_body_bytes=100_000)
    message = message_for(request_for(app), size=100_000 - 40)
    assert (await post(app, message[:50_000], message[50_000:])).status == 200


async def test_messages_that_do_not_arrive_are_bounded_in_number_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop_endpoint, "ARRIVAL_SECONDS", 0.2)
    app = make()
    stalled = [_Stalled(app) for _ in range(MAX_ARRIVING)]
    tasks = [asyncio.create_task(client.send([b"x"], (HOST, TYPE), path=HOP_PATH)) for client in stalled]
    await asyncio.wait_for(asyncio.gather(*(client.stalls.wait() for client in stalled)), SECONDS)
    one_more = await post(app, message_for(request_for(app)))
    assert (one_more.status, one_more.body) == REFUSED
    assert refusals(app) == {HopReason.OVERLOADED: 1}
    answers = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
    assert {(answer.status, answer.body) for answer in answers} == {REFUSED}
    assert (await post(app, message_for(request_for(app)))).status == 200


class _Stalled(Client):
    """A client that never sends the end of its body."""

    def __init__(self, app: GatewayApp) -> None:
        super().__init__(app)
        self.stalls = asyncio.Event()

    async def run(self, chunks: Any, headers: Any, *, method: str = "POST", path: str = "/mcp") -> None:
        async def receive() -> dict[str, Any]:
            self.asked_for += 1
            if self.asked_for == 1:
                return {"type": "http.request", "body": b"x", "more_body": True}
            self.stalls.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(event: Any) -> None:
            self.sent.append(event)

        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": list(headers)}
        await self.app(scope, receive, send)


async def test_a_client_that_disconnects_before_its_message_is_complete_is_forgotten() -> None:
    app = make()
    client = Client(app, leaves=True)
    await client.run([b"x"], (HOST, TYPE), path=HOP_PATH)
    assert client.sent == []
    assert app._hop_endpoint._arriving == 0


@pytest.mark.parametrize(
    "path", ["/tools/_gateway/hop", "/_gateway/hop/", "/_gateway", "/_gateway/", "/_gateway/other"]
)
async def test_nothing_is_at_any_other_path(path: str) -> None:
    app = make()
    answer = await Client(app).send([message_for(request_for(app))], (HOST, TYPE), path=path)
    assert answer.status in (404, 405, 307)
    assert refusals(app) == {}


async def test_below_the_path_where_the_application_is_mounted_a_message_gets_its_reply() -> None:
    app = make()
    host = FastAPI()
    host.mount("/tools", app)
    head = request_for(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://127.0.0.1:8080") as client:
        headers = {"content-type": HOP_TYPE.decode()}
        answer = await client.post(f"/tools{HOP_PATH}", content=message_for(head), headers=headers)
        elsewhere = await client.post(HOP_PATH, content=message_for(head), headers=headers)
    assert elsewhere.status_code == 404
    assert answer.status_code == 200
    assert hops().open_reply(answer.content, head, max_bytes=65_536).body == {"outcome": "late"}


async def test_large_messages_are_opened_one_after_the_other_with_other_work_between_them() -> None:
    app = make()
    opened: list[str] = []
    size = hop_endpoint.QUICK_BYTES

    async def send(name: str, size: int) -> None:
        message = message_for(request_for(app), size=size)
        started.set()
        assert (await post(app, message)).status == 200
        opened.append(name)

    started = asyncio.Event()
    large = [asyncio.create_task(send("large", size)) for _ in range(3)]
    await started.wait()
    await send("small", 0)
    await asyncio.gather(*large)
    assert opened.index("small") < 2


async def test_few_large_messages_are_held_at_a_time_before_anybody_knows_who_sent_them() -> None:
    app = make()
    message = os.urandom(2 * hop_endpoint.QUICK_BYTES)
    answers = await asyncio.gather(*(post(app, message) for _ in range(2 * MAX_ARRIVING)))
    assert {(answer.status, answer.body) for answer in answers} == {REFUSED}
    assert refusals(app)[HopReason.OVERLOADED] > MAX_ARRIVING // 2, "some had been opened before others came"
