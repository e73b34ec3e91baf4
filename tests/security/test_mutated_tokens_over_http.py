"""Two thousand forged tokens, sent to two replicas, all get the same refusal."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import parse_headers
from typing import Any, BinaryIO

import msgspec
import pytest

from gateway.auth.tokens import mint
from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Replica, new_key
from tests.integration.fleet import Fleet
from tests.integration.raw import SECONDS, accept, head_of, post, tool_call
from tests.security.mutations import Material, mutated

pytestmark = pytest.mark.slow

TOKENS = 2_000
CONNECTIONS = 4
"""To each replica."""
PIPELINED = 10
"""Requests sent before the first answer is read."""
MAX_BYTES = 1024
SECRET = "a secret that only these tests know, 32 bytes"
KEYS = f"{new_key()},{new_key()}"
ARGUMENTS = {"greeting": "Hi"}
REFUSAL = (
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid or expired requestState",'
    b'"data":{"reason":"invalid_request_state"}}}'
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_SEAL_KEYS": KEYS,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_STATE_MAX_BYTES": str(MAX_BYTES),
    }
    with Fleet(tmp_path_factory.mktemp("fleet"), environ) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def bearer() -> str:
    return mint(SECRET, "alice", "tests")


def first_leg(replica: Replica, bearer: str) -> str:
    return post(replica, tool_call("greet", ARGUMENTS), token=bearer).state


def retry(state: Any) -> dict[str, Any]:
    return tool_call("greet", ARGUMENTS, requestState=state, inputResponses=accept(name="Ada"))


def as_http(message: dict[str, Any], bearer: str) -> bytes:
    body = msgspec.json.encode(message)
    headers = [*head_of(message), ("Authorization", f"Bearer {bearer}"), ("Content-Length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def answers(replica: Replica, requests: list[bytes]) -> list[tuple[int, bytes]]:
    """Send requests over one connection, some ahead of the answers, and return status and body of each answer."""
    read: list[tuple[int, bytes]] = []
    with socket.create_connection(replica.address, timeout=SECONDS) as connection:
        for start in range(0, len(requests), PIPELINED):
            batch = requests[start : start + PIPELINED]
            connection.sendall(b"".join(batch))
            with connection.makefile("rb") as stream:
                read += [next_answer(stream) for _ in batch]
    return read


def next_answer(stream: BinaryIO) -> tuple[int, bytes]:
    """Read one answer and not a byte more."""
    status = int(stream.readline().split()[1])
    headers = parse_headers(stream)
    return status, stream.read(int(headers["content-length"]))


def rejections(replica: Replica) -> float:
    return replica.metric("gateway_state_rejections_total")


def test_of_two_thousand_mutated_tokens_over_http_none_opens(fleet: Fleet, bearer: str) -> None:
    """Both replicas answer each with the same bytes, count it, and still serve the token as it was sealed."""
    states = [first_leg(replica, bearer) for replica in fleet.replicas for _ in range(8)]
    material = Material(states, [key.key_id for key in KeyRing.parse(KEYS).keys], 4, longest=MAX_BYTES)
    # Each half to both replicas: what one refuses, the other must refuse too.
    hostile = [as_http(retry(state), bearer) for state in itertools.islice(mutated(material), TOKENS // 2)]
    parts = [hostile[start::CONNECTIONS] for start in range(CONNECTIONS)]
    before = [rejections(replica) for replica in fleet.replicas]
    with ThreadPoolExecutor(CONNECTIONS * len(fleet.replicas)) as pool:
        jobs = [pool.submit(answers, replica, part) for replica in fleet.replicas for part in parts]
        told = [answer for job in jobs for answer in job.result()]
    assert len(told) == TOKENS
    assert set(told) == {(400, REFUSAL)}
    for replica, counted in zip(fleet.replicas, before, strict=True):
        assert rejections(replica) - counted == TOKENS // 2
        assert replica.logged("request failed") == []
        assert replica.alive
    assert {post(replica, retry(states[0]), token=bearer).text for replica in fleet.replicas} == {"Hi Ada"}
