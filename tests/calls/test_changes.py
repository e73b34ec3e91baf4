"""Changes reach every stream that listens for them: once each, in order, and none is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.calls.changes import PAUSE_SECONDS, ChangeHub, Subscription
from tests.asgi import Client, make_app
from tests.integration.raw import request


@pytest.fixture
def hub() -> Iterator[ChangeHub]:
    hub = ChangeHub()
    yield hub
    hub.close()


async def hear(subscription: Subscription) -> list[Hashable]:
    """Return the pending changes of a closed subscription."""
    heard = []
    while await subscription.changed():
        heard.append(subscription.take())
    return heard


async def settle() -> None:
    """Wait until announcements have arrived."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_change_wakes_the_streams_that_wait_for_it(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["tools"])
    waiting = asyncio.create_task(subscription.changed())
    await settle()
    assert not waiting.done()
    hub.announce("tools")
    assert await waiting
    assert [subscription.take(), subscription.take()] == ["tools", None]


async def test_a_subscription_that_is_cut_sends_nothing_more_not_even_pending_changes(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["tools"])
    subscription.notify("tools")
    subscription.cut()
    subscription.notify("tools")
    assert await hear(subscription) == []


async def test_a_change_repeated_before_it_is_sent_is_sent_once(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["tools", "prompts"])
    for _ in range(1000):
        hub.announce("tools")
    hub.announce("prompts")
    hub.announce("tools")
    await settle()
    hub.close()
    assert await hear(subscription) == ["tools", "prompts"]


async def test_a_change_repeated_after_it_was_sent_is_sent_again(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["tools"])
    for _ in range(3):
        hub.announce("tools")
        assert await subscription.changed()
        assert subscription.take() == "tools"
    hub.close()
    assert not await subscription.changed()


async def test_a_change_that_is_announced_without_end_reaches_a_stream_a_few_times_in_a_second(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["docs://a"])
    loop = asyncio.get_running_loop()
    over, sent = loop.time() + 1.0, 0
    while loop.time() < over:
        hub.announce("docs://a")
        await settle()
        sent += subscription.take() is not None
    assert 1 <= sent <= 1 + 1.0 / PAUSE_SECONDS
    hub.announce("docs://a")
    await settle()
    hub.close()
    assert await hear(subscription) == ["docs://a"]


@given(st.lists(st.sampled_from(["tools", "prompts", "docs://a", "docs://b"])))
def test_changes_come_in_the_order_they_first_happened_and_never_twice(topics: list[str]) -> None:
    async def tell() -> list[Hashable]:
        subscription = Subscription(["tools", "docs://a", "docs://b"])
        for topic in topics:
            subscription.notify(topic)
        subscription.close()
        return await hear(subscription)

    assert asyncio.run(tell()) == [topic for topic in dict.fromkeys(topics) if topic != "prompts"]


async def test_nobody_hears_of_what_they_did_not_ask_for(hub: ChangeHub) -> None:
    tools, resource = hub.subscribe(["tools"]), hub.subscribe(["docs://a"])
    for topic in ("prompts", "docs://b", "docs://a", "docs://a/b"):
        hub.announce(topic)
    await settle()
    hub.close()
    assert await hear(tools) == []
    assert await hear(resource) == ["docs://a"]


async def test_a_subscription_gets_no_earlier_announcements(hub: ChangeHub) -> None:
    hub.announce("tools")
    early = hub.subscribe(["tools"])
    hub.announce("tools")
    await settle()
    late = hub.subscribe(["tools"])
    hub.close()
    assert await hear(early) == ["tools"]
    assert await hear(late) == []


async def test_closing_ends_everybody_after_what_is_pending_and_those_that_come_later_at_once(hub: ChangeHub) -> None:
    busy, idle = hub.subscribe(["tools"]), hub.subscribe(["tools"])
    waiting = asyncio.create_task(idle.changed())
    await settle()
    hub.announce("tools")
    assert await waiting
    assert idle.take() == "tools"
    waiting = asyncio.create_task(idle.changed())
    await settle()
    hub.close()
    assert not await waiting
    assert await hear(busy) == ["tools"]
    assert not await hub.subscribe(["tools"]).changed()


async def test_changes_that_were_announced_just_before_the_end_are_pending_then(hub: ChangeHub) -> None:
    subscription = hub.subscribe(["a", "b", "c"])
    hub.announce("a")
    await settle()
    hub.announce("b")
    await settle()
    hub.announce("c")
    hub.close()
    await settle()
    assert await hear(subscription) == ["a", "b", "c"]


async def test_an_ended_subscription_gets_nothing_more_and_is_forgotten(hub: ChangeHub) -> None:
    subscription, other = hub.subscribe(["tools"]), hub.subscribe(["tools"])
    hub.unsubscribe(subscription)
    hub.unsubscribe(subscription)
    hub.announce("tools")
    await settle()
    hub.close()
    subscription.close()
    assert await hear(subscription) == []
    assert await hear(other) == ["tools"]
    assert hub._subscriptions == {other}


async def test_announcements_of_other_threads_are_delivered_on_that_of_the_event_loop(
    hub: ChangeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered_on: set[int] = set()
    note = hub._note

    def note_thread(topic: str) -> None:
        delivered_on.add(threading.get_ident())
        note(topic)

    monkeypatch.setattr(hub, "_note", note_thread)
    subscription = hub.subscribe(f"docs://{number}" for number in range(100))

    def announce(first: int) -> None:
        for number in range(first, 100, 4):
            hub.announce(f"docs://{number}")

    await asyncio.gather(*(asyncio.to_thread(announce, first) for first in range(4)))
    await settle()
    hub.close()
    assert set(await hear(subscription)) == {f"docs://{number}" for number in range(100)}
    assert delivered_on == {threading.get_ident()}


def test_announcing_where_nobody_listens_or_after_the_end_is_harmless(hub: ChangeHub) -> None:
    hub.announce("tools")

    async def listen() -> None:
        hub.subscribe(["tools"])

    asyncio.run(listen())
    thread = threading.Thread(target=hub.announce, args=("tools",))
    thread.start()
    thread.join()
    hub.announce("tools")


async def test_a_stream_that_its_client_closed_leaves_no_subscription_behind() -> None:
    app = make_app()
    client = Client(app)
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    stream = asyncio.create_task(client.post(listen, accept="text/event-stream"))
    for _ in range(10):
        await settle()
    assert len(client.sent) == 2  # the head of the answer, and the acknowledgement
    assert len(app._services.changes._subscriptions) == 1
    stream.cancel()
    await asyncio.wait({stream})
    assert len(app._services.changes._subscriptions) == 0
