"""One caller, or forged tokens, sends many requests in the same moment as somebody else sends one."""

from __future__ import annotations

import functools
import http.client
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import Replica
from tests.integration.fleet import Fleet
from tests.security.costs import Sent, call
from tests.security.crowd import AUDIENCE, SECRET, message_of

pytestmark = pytest.mark.slow

ROUNDS = 2
FEW = 8
SIZE = 60_000
"""Each request still arrives in one piece with its headers."""

PATIENCE_SECONDS = 30.0
FORGED = "Bearer aaaa.bbbb."
GREEDY = call("echo", f'{{"text":"{"a" * SIZE}"}}')
BENIGN = call("echo", '{"text":"hello"}')


@pytest.fixture(scope="module", params=[FEW, None], ids=["few places", "adaptive"])
def replica(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    environ = {
        "GATEWAY_TOOLS": "tests.security.crowd",
        "GATEWAY_AUDIENCE": AUDIENCE,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        **({} if request.param is None else {"GATEWAY_MAX_INFLIGHT": str(request.param)}),
    }
    with Fleet(tmp_path_factory.mktemp("fleet"), environ, names=["r1"]) as fleet:
        yield fleet["r1"]


@functools.cache
def token_of(user: str) -> str:
    """Return the one token of a user: the replica does not know another one, even of the same user."""
    return f"Bearer {mint(SECRET, user, AUDIENCE)}"


def send(connection: socket.socket, sent: Sent, authorization: str) -> None:
    connection.sendall(message_of(sent, {**sent.headers, "authorization": authorization}))


def status(connection: socket.socket) -> int:
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def by_one_caller(_number: int) -> str:
    return token_of("greedy")


def forged_alike(_number: int) -> str:
    return FORGED + "cccc"


def forged_differently(number: int) -> str:
    return f"{FORGED}{number:04}"


@pytest.mark.parametrize("authorization", [by_one_caller, forged_alike, forged_differently])
def test_whoever_sends_many_requests_at_once_keeps_out_nobody_whose_request_comes_after_them(
    replica: Replica, authorization: Callable[[int], str], tmp_path: Path
) -> None:
    count = 32 if replica.metric("gateway_inflight_limit") == FEW else 400
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stop = call("stop_everything", f'{{"pipe":"{pipe}"}}')
    flood: Counter[int] = Counter()
    with ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(closing(socket.create_connection(replica.address, timeout=PATIENCE_SECONDS)))

        benign, stopping, *others = (connect() for _ in range(2 + count))
        for _ in range(ROUNDS):
            send(benign, BENIGN, token_of("benign"))
            assert status(benign) == 200
            send(stopping, stop, token_of("stopping"))
            with pipe.open("w"):  # once the tool has opened it too
                for number, other in enumerate(others):
                    send(other, GREEDY, authorization(number))
                send(benign, BENIGN, token_of("benign"))
            assert status(benign) == 200
            assert status(stopping) == 200
            flood.update(map(status, others))
    assert flood[503] > 0  # there was not room for all of them
