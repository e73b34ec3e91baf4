"""Streams of changes: opened, heard, and ended by either side."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.upstreams.client import stateless
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from tests.upstreams.client.serving import Answer, Asking, Shop, asking, fine, notice, result
from tests.upstreams.servers.plain_http import Exchange

WANTED = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


@pytest.fixture
async def client(shop: Shop) -> AsyncIterator[Asking]:
    async with asking(shop.server.url) as client:
        yield client


def streaming(*messages: Any, ends: bool = True) -> Answer:
    """Acknowledge, send these messages, and end the stream or stay silent."""

    async def answer(exchange: Exchange, message: Any) -> None:
        exchange.event(notice("subscriptions/acknowledged", notifications=WANTED))
        for one in messages:
            exchange.event(one(message["id"]) if callable(one) else one)
        if ends:
            exchange.end_events()
        else:
            await asyncio.Event().wait()

    return answer


async def heard(client: Asking, **options: Any) -> list[tuple[str, Any]]:
    async with client.client.listen(WANTED, **options) as changes:
        return [change async for change in changes]


async def test_changes_are_heard_until_the_upstream_ends_the_stream(shop: Shop, client: Asking) -> None:
    updated = {"uri": "a:b", "_meta": {SUBSCRIPTION: 1, "plain": 1}}
    shop.answers = [
        streaming(
            notice("tools/list_changed"),
            notice("resources/updated", **updated),
            result,
            notice("prompts/list_changed"),
        )
    ]

    assert await heard(client) == [
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "a:b", "_meta": {"plain": 1}}),
    ]
    assert shop.messages[0]["method"] == "subscriptions/listen"
    assert shop.messages[0]["params"]["notifications"] == WANTED
    assert client.counted.reasons == []


async def test_changes_of_another_subscription_are_counted(shop: Shop, client: Asking) -> None:
    shop.answers = [streaming(*(notice("tools/list_changed", _meta={SUBSCRIPTION: given}) for given in (2, "1", True)))]

    assert await heard(client) == []
    assert client.counted.things == ["notification"] * 3


async def test_leaving_the_context_closes_the_stream(shop: Shop, client: Asking) -> None:
    shop.answers = [streaming(notice("tools/list_changed"), ends=False)]

    async with client.client.listen(WANTED) as changes:
        assert await anext(changes) == ("notifications/tools/list_changed", {})

    await asyncio.to_thread(shop.server.run, shop.exchanges[0].connection.ended.wait())


async def test_a_silent_stream_ends(shop: Shop, client: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless, "LISTEN_IDLE_SECONDS", 0.1)
    shop.answers = [streaming(ends=False)]

    assert await asyncio.wait_for(heard(client), 10) == []
    assert client.counted.reasons == []


async def test_a_stream_lasts_no_longer_than_its_time(
    shop: Shop, client: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateless, "LISTEN_SECONDS", 0.2)
    shop.answers = [streaming(ends=False)]

    assert await asyncio.wait_for(heard(client), 10) == []
    assert client.counted.reasons == []


def flooding(kind: bytes, pieces: int) -> Answer:
    """Acknowledge, and send pieces of 64 KiB, all at once."""

    async def answer(exchange: Exchange, _message: Any) -> None:
        exchange.event(notice("subscriptions/acknowledged", notifications=WANTED))
        for _ in range(pieces):
            exchange.chunk(kind * (65536 // len(kind)))
        exchange.end_events()

    return answer


@pytest.mark.parametrize("kind", [b'data:{"jsonrpc":"2.0","method":"n"}\n\n', b"data:\n\n", b":\n", b"\n"])
async def test_a_stream_that_sends_too_much_is_a_failure(shop: Shop, kind: bytes) -> None:
    shop.answers = [flooding(kind, 6)]

    async with asking(shop.server.url, clock=lambda: 1.0) as client:
        with pytest.raises(UpstreamFailure, match="sends more than 65536 bytes per second"):
            await heard(client)

    assert client.counted.reasons == [Reason.MALFORMED]


async def test_a_stream_may_send_much_over_time(shop: Shop) -> None:
    heard_so_far = asyncio.Semaphore(0)

    async def steady(exchange: Exchange, _message: Any) -> None:
        exchange.event(notice("subscriptions/acknowledged", notifications=WANTED))
        for _ in range(6):
            exchange.chunk(b":\n" * 32768)
            exchange.event(notice("tools/list_changed"))
            await heard_so_far.acquire()
        exchange.end_events()

    async def go_on() -> None:
        heard_so_far.release()

    shop.answers = [steady]
    seconds = itertools.count()
    clocked = asking(shop.server.url, clock=lambda: 2.0 * next(seconds))
    async with clocked as client, client.client.listen(WANTED) as changes:
        async for _ in changes:
            await asyncio.to_thread(shop.server.run, go_on())

    assert client.counted.reasons == []


async def silent(exchange: Exchange, _message: Any) -> None:
    exchange.begin_events()
    await asyncio.Event().wait()


async def unacknowledged(exchange: Exchange, _message: Any) -> None:
    exchange.event(notice("tools/list_changed"))
    exchange.end_events()


async def ended(exchange: Exchange, _message: Any) -> None:
    exchange.begin_events()
    exchange.end_events()


async def answered(exchange: Exchange, message: Any) -> None:
    exchange.event(result(message["id"]))
    exchange.end_events()


async def cut(exchange: Exchange, _message: Any) -> None:
    exchange.cut()


async def missing(exchange: Exchange, _message: Any) -> None:
    exchange.reply(404)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (silent, Reason.TIMED_OUT),
        (unacknowledged, Reason.MALFORMED),
        (ended, Reason.CUT),
        (answered, Reason.CUT),
        (cut, Reason.CUT),
        (fine, Reason.MALFORMED),
        (missing, Reason.NOT_FOUND),
    ],
)
async def test_a_stream_that_does_not_open_is_a_failure(
    shop: Shop, client: Asking, answer: Answer, reason: Reason
) -> None:
    shop.answers = [answer]

    with pytest.raises(UpstreamFailure) as raised:
        await heard(client, seconds=0.3)

    assert raised.value.reason is reason
    assert client.counted.reasons == [reason]


@pytest.mark.parametrize("as_event", [False, True])
async def test_an_error_instead_of_a_stream_is_raised(shop: Shop, client: Asking, as_event: bool) -> None:
    async def refusing(exchange: Exchange, message: Any) -> None:
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
        if as_event:
            exchange.event(error)
            exchange.end_events()
        else:
            exchange.json(error)

    shop.answers = [refusing]

    with pytest.raises(UpstreamError, match="no such method"):
        await heard(client)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (notice("x", text="x" * stateless.MAX_CHANGE_BYTES), Reason.TOO_LARGE),
        ({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, Reason.UNASKED),
        ({"jsonrpc": "1.0"}, Reason.MALFORMED),
        (result(99), Reason.WRONG_ID),
    ],
)
async def test_a_fault_on_an_open_stream_is_a_failure(shop: Shop, client: Asking, message: Any, reason: Reason) -> None:
    shop.answers = [streaming(notice("tools/list_changed"), message)]

    async with client.client.listen(WANTED) as changes:
        assert await anext(changes) == ("notifications/tools/list_changed", {})
        with pytest.raises(UpstreamFailure) as raised:
            await anext(changes)

    assert raised.value.reason is reason
    assert client.counted.reasons == [reason]


async def test_a_failure_of_the_listener_itself_is_not_one_of_the_upstream(shop: Shop, client: Asking) -> None:
    shop.answers = [streaming(ends=False)]

    with pytest.raises(TimeoutError):
        async with client.client.listen(WANTED):
            raise TimeoutError

    assert client.counted.reasons == []
