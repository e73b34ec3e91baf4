"""A client that vanishes is noticed by the heartbeat of its stream, and its call ends.

Without a heartbeat that is watched, the system takes a quarter of an hour to notice.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pytest

from loadtest.cluster import Cluster, wait_until
from tests.integration.lost import vanish
from tests.integration.raw import SECONDS, accept, post_bytes
from tests.integration.streams import ACCEPT_BOTH, asking, calling, complete_headers

pytestmark = pytest.mark.slow

TOOLS: Final = "tests.wires.draft.tools,tests.wires.legacy.working_tools"
PATIENCE_SECONDS: Final = 5 * 30.0
AT_ONCE_SECONDS: Final = 10.0
"""Less than the time to the next comment on a quiet stream, which would reveal that the client is gone."""
VERSION: Final = "2025-11-25"


class Client:
    """One request on its own connection. Its `question` is what the server has asked on its stream."""

    def __init__(self, url: str, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.question: dict[str, Any] = {}
        place = urlsplit(url)
        self._socket = socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=SECONDS)
        body = msgspec.json.encode(message)
        fields = {**headers, "host": place.netloc, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket.sendall(f"POST {place.path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def read_until(self, wanted: bytes) -> bytes:
        read = b""
        while wanted not in read:
            piece = self._socket.recv(65536)
            assert piece, read
            read += piece
        return read

    def vanish(self) -> None:
        """Receive nothing more, so that nothing is acknowledged."""
        vanish(self._socket)

    def close(self) -> None:
        self._socket.close()


def session_headers(url: str) -> dict[str, str]:
    """Open a session of 2025-11-25, and return the headers of its requests."""
    client = {"name": "t", "version": "1"}
    params = {"protocolVersion": VERSION, "capabilities": {"elicitation": {"form": {}}}, "clientInfo": client}
    headers = {"content-type": "application/json", "accept": ACCEPT_BOTH}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = post_bytes(_At(url), msgspec.json.encode(begin), headers)
    return {**headers, "mcp-protocol-version": VERSION, "mcp-session-id": answer.headers["mcp-session-id"]}


class _At:
    def __init__(self, url: str) -> None:
        self.url = url


def asking_call(url: str) -> Client:
    """Call a tool of a session that asks, and return once it has asked."""
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask_politely", "arguments": {}}}
    client = Client(url, call, session_headers(url))
    (line,) = (line for line in client.read_until(b"elicitation/create").splitlines() if line.startswith(b"data: "))
    client.question = msgspec.json.decode(line.removeprefix(b"data: "))
    return client


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A replica behind the shipped balancer configuration."""
    directory = tmp_path_factory.mktemp("lost")
    environ = {"GATEWAY_TOOLS": TOOLS, "TEST_DIRECTORY": str(directory), "GATEWAY_LEG_SECONDS": "600"}
    with Cluster(directory, replicas=1, environ=environ) as cluster:
        yield cluster


def working_call(url: str, directory: Path) -> Client:
    """Call a tool that works until its gate opens, and return once it works."""
    message = calling("outlive", {"gate": "lost"})
    client = Client(url, message, complete_headers(message))
    wait_until((directory / "started-lost").exists, "the tool to work")
    return client


def test_clients_that_are_gone_without_a_word_are_noticed_and_their_calls_end(cluster: Cluster) -> None:
    (replica,) = cluster.replicas

    def waiting() -> float:
        return replica.metric("gateway_calls_waiting")

    def ended() -> bool:
        return waiting() == 1 and replica.metric("gateway_legs_total", outcome="cancelled") == 1

    with contextlib.ExitStack() as stack:
        lost = [
            asking_call(replica.url),
            asking_call(cluster.url),
            working_call(replica.url, cluster.directory),
            _listening(replica.url),
        ]
        quiet = asking_call(replica.url)
        for client in (*lost, quiet):
            stack.callback(client.close)
        assert waiting() == 3
        for client in lost:
            client.vanish()
        wait_until(ended, "the calls of the lost clients to end", PATIENCE_SECONDS)
        wait_until(lambda: replica.metric("gateway_clients_lost_total") == 3, "all to be noticed", PATIENCE_SECONDS)
        assert b":" in quiet.read_until(b"\n:\n"), "a client that is quiet and there was heard of"
        assert waiting() == 1


def _listening(url: str) -> Client:
    message = asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    client = Client(url, message, complete_headers(message))
    client.read_until(b"acknowledged")
    return client


def test_a_client_that_is_gone_behind_a_balancer_that_hangs_up_is_noticed_at_once(cluster: Cluster) -> None:
    (replica,) = cluster.replicas
    client = asking_call(cluster.url)
    before = replica.metric("gateway_calls_waiting")
    client.close()
    wait_until(lambda: replica.metric("gateway_calls_waiting") == before - 1, "the call to end", AT_ONCE_SECONDS)


def test_the_balancer_sends_an_answer_to_another_replica_where_the_first_has_died(tmp_path: Path) -> None:
    environ = {"GATEWAY_TOOLS": TOOLS, "TEST_DIRECTORY": str(tmp_path)}
    with Cluster(tmp_path, replicas=2, environ=environ) as cluster, contextlib.ExitStack() as stack:
        first, second = cluster.replicas
        calls = [asking_call(first.url) for _ in cluster.replicas]
        for call in calls:
            stack.callback(call.close)
        second.kill()
        for call in calls:  # in turn, so one of them goes to the dead replica
            response = {"jsonrpc": "2.0", "id": call.question["id"], "result": accept(name="ada")["who"]}
            assert post_bytes(cluster, msgspec.json.encode(response), call.headers).status == 202
        for call in calls:
            assert b"ada" in call.read_until(b'"result"')
