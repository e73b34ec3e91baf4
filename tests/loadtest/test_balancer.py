"""The shipped HAProxy configuration copes with replicas that refuse, die, drain and stream."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from loadtest.cluster import Balancer, wait_until
from loadtest.cluster.balancer import SHIPPED
from loadtest.cluster.common import find_program, reserve_port
from tests.loadtest.stubs import WAIT_SECONDS, Behave, Exchange, StubReplica

pytestmark = pytest.mark.slow

LARGEST_TRIED_TWICE = 90_000
LISTEN = {"mcp-method": "subscriptions/listen"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes


@pytest.fixture(scope="module")
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    balancer = Balancer(tmp_path_factory.mktemp("balancer"))
    try:
        balancer.start()
        balancer.wait_ready()
        yield balancer
    finally:
        balancer.stop()


@pytest.fixture
def stubs(balancer: Balancer) -> Iterator[tuple[StubReplica, StubReplica]]:
    """Two replicas that serve, with equal turns: a new one may have to wait for its first."""
    with StubReplica("a") as a, StubReplica("b") as b:
        balancer.set_servers({stub.name: stub.address for stub in (a, b)})
        balancer.wait_up("a", "b")
        wait_until(lambda: post(balancer).status == 200 and bool(a.received and b.received), "both replicas to serve")
        a.received, b.received = [], []
        yield a, b
        balancer.set_servers({})


def connect(balancer: Balancer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(balancer.url).netloc, timeout=WAIT_SECONDS)


def post(balancer: Balancer, content: bytes = b"{}", headers: Mapping[str, str] | None = None) -> Answer:
    """Send a request; http.client sends its head and its body one after the other."""
    with closing(connect(balancer)) as connection:
        connection.request("POST", "/mcp", content, headers or {})
        with connection.getresponse() as response:
            given = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, given, response.read())


def refuse(exchange: Exchange) -> None:
    """Refuse as a full replica does."""
    exchange.reply(503, b'{"from":"a replica"}', content_type="application/json", retry_after="7")


def test_the_shipped_configuration_needs_nothing_but_its_file() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    command = [find_program("haproxy", package="haproxy"), "-c", "-q", "-f", str(SHIPPED)]
    checked = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_requests_go_to_the_replicas_in_turn_also_over_one_connection(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    connection = connect(balancer)
    served = []
    for _ in range(6):
        connection.request("POST", "/mcp", b"{}")
        served.append(connection.getresponse().read())
    connection.close()
    assert sorted(served[:2]) == [b"a", b"b"]
    assert served == served[:2] * 3


@pytest.mark.parametrize("size", [2, LARGEST_TRIED_TWICE])
@pytest.mark.parametrize("behave", [refuse, Exchange.hang_up, Exchange.reset])
def test_what_one_replica_does_not_serve_another_one_does(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica], behave: Behave, size: int
) -> None:
    stubs[0].behave = behave
    content = os.urandom(size)
    assert [post(balancer, content)[::2] for _ in range(4)] == [(200, b"b")] * 4
    assert stubs[0].received
    assert {exchange.content for stub in stubs for exchange in stub.received} == {content}


def test_a_replica_that_is_gone_costs_no_request(balancer: Balancer, stubs: tuple[StubReplica, StubReplica]) -> None:
    with reserve_port() as gone:
        balancer.set_servers({"a": stubs[0].address, "gone": gone.getsockname()})
        assert [post(balancer)[::2] for _ in range(4)] == [(200, b"a")] * 4
        balancer.wait_down("gone")


def test_the_last_refusal_reaches_the_client_as_it_is(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    for stub in stubs:
        stub.behave = refuse
    answer = post(balancer)
    assert (answer.status, answer.content) == (503, b'{"from":"a replica"}')
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["content-type"] == "application/json"
    assert [len(stub.received) for stub in stubs] == [1, 1]


def test_what_is_sent_again_has_the_id_of_the_first_attempt_and_no_other_request_has_it(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    for stub in stubs:
        stub.behave = Exchange.hang_up
    for _ in range(2):
        post(balancer, headers={"x-gateway-request-id": "the client's own"})
    first, second = [
        [exchange.headers.get_all("x-gateway-request-id", []) for exchange in stub.received] for stub in stubs
    ]
    assert sorted(first) == sorted(second)
    assert len({tuple(ids) for ids in first}) == 2
    assert all(len(ids) == 1 and len(ids[0]) >= 32 for ids in first)


def test_what_may_have_been_done_is_sent_once(balancer: Balancer, stubs: tuple[StubReplica, StubReplica]) -> None:
    for stub in stubs:
        stub.behave = lambda exchange: exchange.reply(504, b"silent", retry_after="2")
    answer = post(balancer)
    assert (answer.status, answer.content, answer.headers["retry-after"]) == (504, b"silent", "2")
    assert sum(len(stub.received) for stub in stubs) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/_gateway/hop",
        "/_gateway/",
        "/tools/_gateway/hop",
        "/%5fgateway/hop",
        "/_gatewa%79%2Fhop",
        "//_gateway//hop",
        "/mcp/../_gateway/hop",
        "/_gateway/hop?x=1",
        "http://elsewhere.example.com/_gateway/hop",
    ],
)
def test_no_client_reaches_the_path_on_which_replicas_talk_to_each_other(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica], path: str
) -> None:
    with closing(connect(balancer)) as connection:
        for method in ("POST", "GET"):
            connection.request(method, path, b"{}", {"content-type": "application/vnd.sealed-gateway.hop"})
            with connection.getresponse() as response:
                assert (response.status, stubs[0].received, stubs[1].received) == (404, [], [])
                response.read()
    assert post(balancer).status == 200


def test_a_body_that_does_not_fit_is_sent_once(balancer: Balancer, stubs: tuple[StubReplica, StubReplica]) -> None:
    for stub in stubs:
        stub.behave = refuse
    answer = post(balancer, bytes(1024 * 1024))
    assert (answer.status, answer.headers["retry-after"]) == (503, "7")
    assert sum(len(stub.received) for stub in stubs) == 1


def test_a_reply_that_has_begun_is_not_asked_for_again(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    def die_within(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.chunk(b"data: 1\n\n")
        exchange.reset()

    for stub in stubs:
        stub.behave = die_within
    with pytest.raises(http.client.HTTPException):
        post(balancer)
    assert sum(len(stub.received) for stub in stubs) == 1


def test_without_replicas_clients_get_the_answer_of_a_full_one(balancer: Balancer) -> None:
    answer = post(balancer)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.startswith(b'{"jsonrpc":"2.0","id":null,"error":{"code":-31001,')


def made_by_the_proxy(answer: Answer) -> tuple[int, int]:
    """Return the status and the JSON-RPC code of an error that the proxy created."""
    assert answer.headers["content-type"] == "application/json"
    message = json.loads(answer.content)
    assert (message["jsonrpc"], message["id"]) == ("2.0", None)
    return answer.status, message["error"]["code"]


def test_a_request_that_was_lost_with_the_last_replica_is_not_said_to_have_done_nothing(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    last, leaving = stubs
    leaving.ready = False
    balancer.wait_down(leaving.name)

    def be_lost(exchange: Exchange) -> None:
        last.ready = False
        balancer.wait_down(last.name)
        exchange.reset()

    last.behave = be_lost
    lost = post(balancer)
    assert made_by_the_proxy(lost) == (504, -31004)
    assert lost.headers["retry-after"] == "2"
    assert "x-gateway-lost" not in lost.headers
    assert made_by_the_proxy(post(balancer)) == (503, -31001)
    assert len(last.received) == 1


def test_a_replica_that_answers_nonsense_or_not_at_all_is_reported_as_an_error_that_clients_can_read(
    tmp_path: Path,
) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(SHIPPED.read_text().replace("timeout server 90s", "timeout server 1s"))
    balancer = Balancer(tmp_path, config)
    with ExitStack() as stack, StubReplica("a") as stub:
        stack.callback(balancer.stop)
        balancer.start()
        balancer.wait_ready()
        balancer.set_servers({stub.name: stub.address})
        balancer.wait_up("a")
        stub.behave = lambda exchange: exchange.wfile.write(b"nonsense\r\n\r\n")
        assert made_by_the_proxy(post(balancer)) == (502, -31004)
        stub.behave = Exchange.wait_for_hang_up
        assert made_by_the_proxy(post(balancer)) == (504, -31004)


def test_each_event_of_a_stream_arrives_before_the_next_one_is_sent(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    arrived = threading.Semaphore(0)

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        for number in range(5):
            exchange.chunk(b"data: %d\n" % number)
            assert arrived.acquire(timeout=WAIT_SECONDS)
        exchange.chunk(b"")

    for stub in stubs:
        stub.behave = stream
    connection = connect(balancer)
    connection.request("POST", "/mcp", b"{}")
    lines = []
    for line in connection.getresponse():
        lines.append(line)
        arrived.release()
    connection.close()
    assert lines == [b"data: %d\n" % number for number in range(5)]


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_hangs_up_is_gone_for_the_replica_too(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica], streams: bool
) -> None:
    began, gone = threading.Event(), threading.Event()

    def wait(exchange: Exchange) -> None:
        if streams:
            exchange.begin_stream()
        began.set()
        exchange.wait_for_hang_up()
        gone.set()

    for stub in stubs:
        stub.behave = wait
    connection = connect(balancer)
    connection.request("POST", "/mcp", b"{}")
    assert began.wait(WAIT_SECONDS)
    response = connection.getresponse() if streams else None
    assert not gone.is_set()
    if response is not None:
        response.close()
    connection.close()
    assert gone.wait(WAIT_SECONDS)


def test_a_replica_that_leaves_gets_no_more_and_finishes_what_it_has(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    leaving, staying = stubs
    began, finish = threading.Event(), threading.Event()

    def take_long(exchange: Exchange) -> None:
        began.set()
        assert finish.wait(WAIT_SECONDS)
        exchange.reply(200, b"finished")

    leaving.behave = take_long
    staying.behave = refuse
    answers: list[Answer] = []
    client = threading.Thread(target=lambda: answers.append(post(balancer)))
    client.start()
    assert began.wait(WAIT_SECONDS)
    leaving.ready = False
    balancer.wait_down("a")
    staying.behave = lambda exchange: exchange.reply(200, b"b")
    assert [post(balancer).content for _ in range(4)] == [b"b"] * 4
    finish.set()
    client.join(WAIT_SECONDS)
    assert [answer.content for answer in answers] == [b"finished"]
    leaving.ready = True
    balancer.wait_up("a")


def test_a_replica_learns_where_a_request_really_comes_from(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    post(balancer, headers={"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https"})
    (exchange,) = (exchange for stub in stubs for exchange in stub.received)
    assert exchange.headers.get_all("x-forwarded-for") == ["192.0.2.1", "127.0.0.1"]
    assert exchange.headers.get_all("x-forwarded-proto") == ["http"]


def test_idle_streams_take_little_memory(balancer: Balancer, stubs: tuple[StubReplica, StubReplica]) -> None:
    ended = threading.Event()

    def stay_open(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.chunk(b"data: 1\n")
        assert ended.wait(WAIT_SECONDS)
        exchange.chunk(b"")

    for stub in stubs:
        stub.behave = stay_open
    connections: list[tuple[http.client.HTTPConnection, Any]] = []
    for _ in range(250):
        connection = connect(balancer)
        connection.request("POST", "/mcp", b"{}", LISTEN)
        response = connection.getresponse()
        assert response.readline() == b"data: 1\n"
        connections.append((connection, response))
        if len(connections) == 50:
            memory = resident_kib(balancer.pid)
    assert (resident_kib(balancer.pid) - memory) / 200 < 32
    ended.set()
    for connection, response in connections:
        response.read()
        connection.close()


def resident_kib(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


def test_it_serves_metrics(balancer: Balancer, stubs: tuple[StubReplica, StubReplica]) -> None:
    url = urlsplit(balancer.metrics_url)
    connection = http.client.HTTPConnection(url.netloc, timeout=WAIT_SECONDS)
    connection.request("GET", url.path)
    text = connection.getresponse().read().decode()
    connection.close()
    assert 'haproxy_server_status{proxy="replicas",server="replica1",state="UP"} 1' in text


def test_it_keeps_its_address_and_its_replicas_over_a_restart(
    balancer: Balancer, stubs: tuple[StubReplica, StubReplica]
) -> None:
    balancer.kill()
    with pytest.raises(ConnectionRefusedError):
        post(balancer)
    balancer.restart()
    balancer.wait_up("a", "b")
    assert post(balancer).status == 200
