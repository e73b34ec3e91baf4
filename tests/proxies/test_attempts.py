"""The requests that each shipped configuration sends to replicas when one refuses, is lost, or is gone."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import httpx
import pytest

from loadtest.cluster import wait_until
from loadtest.cluster.common import reserve_port
from tests.integration.raw import Answer, post_bytes
from tests.loadtest.stubs import WAIT_SECONDS, Behave, Exchange, StubReplica
from tests.proxies.front import ALL_FILES, Front

FROZEN_SECONDS = 1.0

Stubs = tuple[StubReplica, StubReplica]


def serve(stub: StubReplica) -> Behave:
    return lambda exchange: exchange.reply(200, stub.name.encode())


def refuse(exchange: Exchange) -> None:
    """Refuse as a full replica does."""
    exchange.reply(503, b'{"from":"a replica"}', content_type="application/json", retry_after="7")


@pytest.fixture(scope="module")
def pair() -> Iterator[Stubs]:
    with StubReplica("a") as a, StubReplica("b") as b:
        yield a, b


@pytest.fixture(scope="module", params=ALL_FILES, ids=lambda proxy: proxy.__name__)
def front(request: pytest.FixtureRequest, pair: Stubs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    kind: type[Front] = request.param
    front = kind(tmp_path_factory.mktemp(kind.program), [stub.address for stub in pair])
    try:
        front.start()
        front.wait_ready()
        yield front
    finally:
        front.stop()


@pytest.fixture
def stubs(front: Front, pair: Stubs) -> Stubs:
    """Two replicas that serve and get requests."""
    for stub in pair:
        stub.behave, stub.received = serve(stub), []
    wait_until(lambda: send(front).status == 200 and all(stub.received for stub in pair), "both replicas to serve")
    for stub in pair:
        stub.received = []
    return pair


def send(front: Front, content: bytes = b"{}", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return post_bytes(front, content, {"content-type": "application/json", **named})


def made_by_the_proxy(answer: Answer) -> tuple[int, int]:
    assert answer.headers["content-type"] == "application/json", answer
    assert (answer.message["jsonrpc"], answer.message["id"]) == ("2.0", None)
    assert int(answer.headers["retry-after"]) >= 1
    return answer.error


@pytest.mark.parametrize("size", [2, 90_000])
def test_what_one_replica_refuses_another_one_gets(front: Front, stubs: Stubs, size: int) -> None:
    """Otherwise the client learns of it, which a proxy that keeps no bodies cannot avoid."""
    stubs[0].behave = refuse
    content = b"x" * size
    answers = []
    while not stubs[0].received:
        answers.append(send(front, content))
    if front.repeats_refused:
        assert {(answer.status, answer.body) for answer in answers} == {(200, b"b")}
    else:
        assert (answers[-1].status, answers[-1].body) == (503, b'{"from":"a replica"}')
        assert answers[-1].headers["retry-after"] == "7"
    assert {exchange.content for stub in stubs for exchange in stub.received} == {content}


def test_a_refusal_of_all_replicas_reaches_the_client_as_it_is(front: Front, stubs: Stubs) -> None:
    for stub in stubs:
        stub.behave = refuse
    for _ in range(8):  # and does not make the proxy think that they are gone
        answer = send(front)
        assert (answer.status, answer.body) == (503, b'{"from":"a replica"}')
        assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("behave", [Exchange.hang_up, Exchange.reset])
def test_a_request_that_was_lost_with_its_replica_is_not_sent_again(front: Front, stubs: Stubs, behave: Behave) -> None:
    """HAProxy sends it once more, with the same id, if no upstream can have received it."""
    for stub in stubs:
        stub.behave = behave
    answer = send(front)
    ids = [exchange.headers["x-gateway-request-id"] for stub in stubs for exchange in stub.received]
    assert answer.error[1] == -31004
    assert answer.status == front.lost_status
    assert made_by_the_proxy(answer)
    assert len(ids) == (2 if front.repeats_lost else 1)
    assert len(set(ids)) == 1


def test_a_request_that_was_lost_and_then_refused_may_have_run(front: Front, stubs: Stubs) -> None:
    """The second replica knows nothing of the first one, which was frozen or killed in the middle."""

    def freeze(exchange: Exchange) -> None:
        threading.Event().wait(FROZEN_SECONDS)  # the balancer must see that it takes long
        exchange.hang_up()

    def take_first_attempts(exchange: Exchange) -> None:
        (refuse if stubs[0].received else serve(stubs[1]))(exchange)

    stubs[0].behave, stubs[1].behave = freeze, take_first_attempts
    answers = []
    while not stubs[0].received:
        answers.append(send(front))
    assert made_by_the_proxy(answers[-1]) == (504 if front.repeats_lost else front.lost_status, -31004)
    assert len(stubs[1].received) == len(answers) - (0 if front.repeats_lost else 1)


@pytest.mark.parametrize("behave", [Exchange.hang_up, Exchange.reset])
def test_a_client_whose_connection_was_used_before_is_told_too(front: Front, stubs: Stubs, behave: Behave) -> None:
    """Browsers, curl and others send a request again when a connection ends that worked before."""
    if front.repeats_lost:
        stubs[0].behave = behave
    else:
        for stub in stubs:
            stub.behave = lambda exchange: exchange.reply(200) if exchange.content == b"{}" else behave(exchange)
    with closing(http.client.HTTPConnection(urlsplit(front.url).netloc, timeout=WAIT_SECONDS)) as connection:
        for content, status in ((b"{}", 200), (b"lost", 200 if front.repeats_lost else front.lost_status)):
            connection.request("POST", "/mcp", content)
            with connection.getresponse() as response:
                assert response.status == status
                response.read()
    if not front.repeats_lost:
        assert sum(exchange.content == b"lost" for stub in stubs for exchange in stub.received) == 1


def test_a_request_of_which_a_replica_says_that_its_fate_is_unknown_is_not_sent_again(
    front: Front, stubs: Stubs
) -> None:
    for stub in stubs:
        stub.behave = lambda exchange: exchange.reply(504, b"unknown", retry_after="2")
    answer = send(front)
    assert (answer.status, answer.headers["retry-after"]) == (504, "2")
    assert sum(len(stub.received) for stub in stubs) == 1


def test_no_client_chooses_the_id_that_replicas_believe(front: Front, stubs: Stubs) -> None:
    given: list[list[str]] = []

    def note(exchange: Exchange) -> None:
        given.append(exchange.headers.get_all("x-gateway-request-id", []))
        exchange.reply(200)

    for stub in stubs:
        stub.behave = note
    for _ in range(2):
        assert send(front, x_gateway_request_id="the client's own").status == 200
    first, second = (only for (only,) in given)
    assert 32 <= len(first) <= 64 >= len(second) >= 32, "replicas take ids of 16 to 64 characters"
    assert first != second


@pytest.mark.parametrize(
    "path",
    [
        "/_gateway/hop",
        "/_gateway/",
        "/tools/_gateway/hop",
        "/%5fgateway/hop",
        "//_gateway//hop",
        "/mcp/../_gateway/hop",
    ],
)
def test_no_client_reaches_the_path_on_which_replicas_talk_to_each_other(front: Front, stubs: Stubs, path: str) -> None:
    with closing(http.client.HTTPConnection(urlsplit(front.url).netloc, timeout=WAIT_SECONDS)) as connection:
        for method in ("POST", "GET"):
            connection.request(method, path, b"{}")
            with connection.getresponse() as response:
                assert (response.status, stubs[0].received, stubs[1].received) == (404, [], [])
                response.read()


def test_without_replicas_the_client_learns_that_nothing_ran(
    front: Front, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A proxy that checks health reports it as soon as it has noticed."""
    with ExitStack() as stack:
        gone = [stack.enter_context(reserve_port()).getsockname() for _ in range(2)]
        lonely = type(front)(tmp_path_factory.mktemp("lonely"), gone)
        stack.callback(lonely.stop)
        lonely.start()

        dropped = 0

        def noticed() -> bool:
            nonlocal dropped
            try:
                return made_by_the_proxy(send(lonely)) == (503, -31001)
            except httpx.ConnectError:  # it does not listen yet
                return False
            except httpx.RemoteProtocolError:  # it was about to send the request to a replica that it gave up just now
                dropped += 1
                return False

        wait_until(noticed, "the proxy to notice")
        wait_until(lambda: dropped <= lonely.closed_unsent, "the proxy to log what it dropped")
