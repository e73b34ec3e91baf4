"""Connections: how many there are, when they close, and what a failure says about the request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from tests.http_client.peers import OK, Script, Talk, always, ask, once, serving, soon, then_silence
from tests.waiting import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def unused_port() -> Iterator[int]:
    """Reserve a port on which nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield int(reserved.getsockname()[1])


def held(release: asyncio.Event) -> Script:
    """Answer each request once the test says so."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await release.wait()
            await talk.send(OK)

    return script


async def test_a_connection_is_used_again_and_closed_when_the_client_is() -> None:
    async with serving(always(OK)) as peer:
        client = HttpClient(peer.url())
        for _ in range(5):
            await ask(client)
        assert len(peer.talks) == 1
        await client.aclose()
        await peer.talks[0].is_over.wait()


async def test_a_refused_connection_is_not_sent_and_takes_no_place() -> None:
    with unused_port() as port:
        client = HttpClient(f"http://127.0.0.1:{port}/", max_connections=1)
        for _ in range(3):
            with pytest.raises(HttpFailure) as caught:
                await ask(client, seconds=2)
            assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)


async def test_a_name_that_does_not_exist_is_not_sent() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(HttpFailure) as caught:
        await ask(HttpClient("http://upstream.example/", resolve=resolve))
    assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
    assert caught.value.detail == "the name cannot be resolved: Name or service not known"


async def test_a_deadline_ends_a_slow_resolution_unsent() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(HttpFailure) as caught:
        await ask(HttpClient("http://upstream.example/", resolve=resolve), seconds=0.02)
    assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)


async def test_a_name_that_is_never_found_takes_one_lookup_at_a_time() -> None:
    """A lookup takes one of a few threads of the process, also when nobody waits for it any more."""
    lookups, may_end = 0, asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        await may_end.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    client = HttpClient("http://upstream.example/", resolve=resolve)
    for _ in range(3):
        with pytest.raises(HttpFailure):
            await asyncio.gather(*(ask(client, seconds=0.02) for _ in range(5)))
    assert lookups == 1
    may_end.set()
    with pytest.raises(HttpFailure):
        await ask(client)
    with pytest.raises(HttpFailure):
        await ask(client)
    assert lookups > 1


async def test_an_address_that_cannot_be_reached_is_followed_by_the_next() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with serving(always(OK)) as peer:
        client = peer.closing(HttpClient(peer.url(host="upstream.example"), resolve=resolve))
        assert await ask(client) == b"ok"
        assert peer.requests[0].values("host") == [f"upstream.example:{peer.port}"]


async def test_more_requests_than_connections_wait_for_their_turn() -> None:
    release = asyncio.Event()
    async with serving(held(release)) as peer:
        client = peer.closing(HttpClient(peer.url(), max_connections=3))
        calls = [asyncio.create_task(ask(client)) for _ in range(10)]
        await until(lambda: len(peer.requests) == 3)
        release.set()
        assert await asyncio.gather(*calls) == [b"ok"] * 10
        assert len(peer.talks) == 3


async def test_a_request_that_waited_for_a_connection_in_vain_is_not_sent() -> None:
    async with serving(held(asyncio.Event())) as peer:
        client = HttpClient(peer.url(), max_connections=1)
        first = asyncio.create_task(ask(client))
        await until(lambda: len(peer.requests) == 1)
        with pytest.raises(HttpFailure) as caught:
            await ask(client, seconds=0.02)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.BUSY, False)
        first.cancel()


@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_cancelled_wait_costs_no_connection(ends_well: bool) -> None:
    release = asyncio.Event()
    async with serving(held(release)) as peer:
        client = peer.closing(HttpClient(peer.url(), max_connections=1))
        first = asyncio.create_task(ask(client))
        await until(lambda: len(peer.requests) == 1)
        waiting = [asyncio.create_task(ask(client)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in waiting[:3]:
            task.cancel()
        release.set()
        if not ends_well:
            first.cancel()
        assert await waiting[3] == b"ok"
        assert await ask(client) == b"ok"


async def test_a_waiter_cancelled_as_it_gets_a_connection_passes_it_on() -> None:
    release = asyncio.Event()
    async with serving(held(release)) as peer:
        client = peer.closing(HttpClient(peer.url(), max_connections=1))
        waiting: list[asyncio.Task[bytes]] = []

        async def first() -> None:
            await ask(client)
            waiting[0].cancel()  # it has the connection, and has not run yet

        task = asyncio.create_task(first())
        await until(lambda: len(peer.requests) == 1)
        waiting += [asyncio.create_task(ask(client)) for _ in range(2)]
        await asyncio.sleep(0.01)
        release.set()
        await task
        assert await waiting[1] == b"ok"
        assert waiting[0].cancelled()


async def test_an_unused_connection_closes_after_its_time() -> None:
    async with serving(always(OK)) as peer:
        client = peer.closing(HttpClient(peer.url(), idle_seconds=0.03))
        await asyncio.gather(ask(client), ask(client))
        for talk in peer.talks:
            await asyncio.wait_for(talk.is_over.wait(), 20)
        assert await ask(client) == b"ok"


async def test_a_connection_is_not_used_when_its_upstream_is_about_to_close_it() -> None:
    answer = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=5\r\nContent-Length: 2\r\n\r\nok"
    async with serving(always(answer)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        assert [await ask(client), await ask(client)] == [b"ok", b"ok"]
        assert len(peer.talks) == 2


async def test_a_connection_that_was_closed_meanwhile_is_replaced_before_anything_is_sent() -> None:
    async with serving(once(OK)) as peer:
        client = HttpClient(peer.url())
        for count in range(1, 4):
            assert await ask(client) == b"ok"
            assert len(peer.requests) == count
        await until(lambda: not client._pool._idle)


async def test_a_close_that_the_event_loop_has_not_seen_is_found_in_the_socket() -> None:
    async with serving(always(OK)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        assert await ask(client) == b"ok"
        # Nothing awaits here, so the event loop cannot notice the close.
        peer.talks[0].writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        assert await ask(client) == b"ok"
        assert len(peer.talks) == 2


async def test_bytes_that_nobody_asked_for_are_never_taken_for_a_response() -> None:
    async def two_answers(talk: Talk) -> None:
        await talk.request()
        await talk.send(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await talk.until_closed()

    async def half_an_answer(talk: Talk) -> None:
        await talk.request()
        await talk.send(OK + b"HTTP/1.1 2")
        await talk.until_closed()

    for script in (two_answers, half_an_answer):
        async with serving(script) as peer:
            client = peer.closing(HttpClient(peer.url()))
            for _ in range(3):
                assert await ask(client) == b"ok"


async def test_a_connection_on_which_something_arrives_unasked_is_closed() -> None:
    is_answered = asyncio.Event()

    async def late_answer(talk: Talk) -> None:
        await talk.request()
        await talk.send(OK)
        await is_answered.wait()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await talk.until_closed()

    async with serving(late_answer) as peer:
        client = peer.closing(HttpClient(peer.url()))
        assert await ask(client) == b"ok"
        is_answered.set()
        await asyncio.wait_for(peer.talks[0].is_over.wait(), 20)
        assert await ask(client) == b"ok"


async def test_a_connection_closed_instead_of_an_answer_may_have_been_acted_on() -> None:
    async def second_time(talk: Talk) -> None:
        await talk.request()
        await talk.send(OK)
        await talk.request()

    async with serving(second_time) as peer:
        client = HttpClient(peer.url())
        await ask(client)
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.CUT, True)
        assert len(peer.requests) == 2


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.1 200 OK\r\nConte",), (CHUNKED, b"5\r\nab")])
async def test_cancelling_closes_the_connection_at_once(pieces: tuple[bytes, ...]) -> None:
    async with serving(then_silence(*pieces)) as peer:
        client = HttpClient(peer.url())
        task = asyncio.create_task(ask(client))
        await until(lambda: len(peer.requests) == 1)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(peer.talks[0].is_over.wait(), 20)


async def test_leaving_a_response_early_closes_the_connection_at_once() -> None:
    async with serving(then_silence(CHUNKED, b"2\r\nok\r\n")) as peer:
        client = HttpClient(peer.url())
        async with client.post([], b"", deadline=soon()) as response:
            assert await anext(response.chunks()) == b"ok"
        await asyncio.wait_for(peer.talks[0].is_over.wait(), 20)


async def test_a_response_without_a_reader_keeps_its_connection_if_it_is_complete() -> None:
    async with serving(always(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")) as peer:
        client = peer.closing(HttpClient(peer.url()))
        for _ in range(3):
            async with client.post([], b"", deadline=soon()) as response:
                assert response.status == 202
        assert len(peer.talks) == 1


async def test_an_answer_before_the_end_of_the_request_is_read_and_its_connection_closed() -> None:
    async def refuse_early(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with serving(refuse_early) as peer:
        client = peer.closing(HttpClient(peer.url()))
        async with client.post([], b"x" * 50_000_000, deadline=soon()) as response:
            assert response.status == 413
        async with client.post([], b"", deadline=soon()) as response:
            assert response.status == 413
        assert len(peer.talks) == 2


async def test_requests_of_a_closed_client_are_served_and_leave_nothing_open() -> None:
    release = asyncio.Event()
    async with serving(held(release)) as peer:
        client = HttpClient(peer.url(), max_connections=1)
        calls = [asyncio.create_task(ask(client)) for _ in range(2)]
        await until(lambda: len(peer.requests) == 1)
        await client.aclose()
        release.set()
        assert await asyncio.gather(*calls) == [b"ok", b"ok"]
        for talk in peer.talks:
            await asyncio.wait_for(talk.is_over.wait(), 20)


async def test_ipv6_is_spoken() -> None:
    async with serving(always(OK), host="::1") as peer:
        client = peer.closing(HttpClient(peer.url(host="[::1]")))
        assert await ask(client) == b"ok"
        assert peer.requests[0].values("host") == [f"[::1]:{peer.port}"]


async def test_nothing_is_left_open_after_many_requests_that_end_in_all_ways() -> None:
    endings = [(), (b"HTTP/1.1 200",), (OK,), (OK + OK,), (CHUNKED, b"2\r\nab\r\n"), (CHUNKED, b"zz"), (b"?",)]

    async def one_of_all(talk: Talk) -> None:
        number = int((await talk.request()).body)
        for piece in endings[number % len(endings)]:
            await talk.send(piece)
        if number % 2:
            await talk.until_closed()

    async def outcome(client: HttpClient, number: int) -> None:
        with suppress(HttpFailure, TimeoutError):
            await asyncio.wait_for(ask(client, b"%d" % number, seconds=0.1), 0.05 if number % 3 else 20)

    before = descriptors()
    tasks = asyncio.all_tasks()
    async with serving(one_of_all) as peer:
        client = HttpClient(peer.url(), max_connections=8)
        await asyncio.gather(*(outcome(client, number) for number in range(200)))
        await client.aclose()
        await until(lambda: not peer.tasks)
    await until(lambda: descriptors() <= before)
    assert asyncio.all_tasks() == tasks
