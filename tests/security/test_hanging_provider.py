"""Clients without a good token cannot block a replica whose identity provider accepts connections and stays silent."""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.auth.providers import MAX_WAITING
from loadtest.cluster import Replica
from loadtest.cluster.common import wait_until
from tests.identity import AUDIENCE, ISSUER, IdentityProvider, SigningKey
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, RawConnection, head_of, headers_of, tool_call

pytestmark = pytest.mark.slow

KEY, STRANGER = SigningKey("known"), SigningKey("unknown")
ECHO = tool_call("echo", {"text": "hello"})
BODY = msgspec.json.encode(ECHO)
FLOOD = 230
"""More requests than a replica works on and queues: 128, and half as many again."""

SECONDS = 30


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider(KEY) as provider:
        yield provider


@pytest.fixture
def replica(tmp_path: Path, provider: IdentityProvider) -> Iterator[Replica]:
    environ = {
        "GATEWAY_TOOLS": "tests.security.served",
        "GATEWAY_AUDIENCE": AUDIENCE,
        "GATEWAY_JWT_ISSUER": ISSUER,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWKS_URL": provider.url,
    }
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        yield fleet["r1"]


@pytest.fixture
def victim(replica: Replica) -> Iterator[Victim]:
    victim = Victim(replica)
    yield victim
    victim.close()


class Victim:
    """A client that calls repeatedly over one connection, with a token that the replica has seen before."""

    def __init__(self, replica: Replica) -> None:
        self._connection = http.client.HTTPConnection(*replica.address, timeout=SECONDS)
        self._headers = {**headers_of(ECHO), "authorization": f"Bearer {KEY.token()}"}
        assert self.calls(1) == {200: 1}

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def calls(self, count: int) -> Counter[int]:
        """Call repeatedly, and return how often each status was returned."""
        return Counter(self._call() for _ in range(count))

    def _call(self) -> int:
        self._connection.request("POST", "/mcp", BODY, self._headers)
        response = self._connection.getresponse()
        response.read()
        return response.status


@contextlib.contextmanager
def flood(replica: Replica) -> Iterator[list[RawConnection]]:
    """Send a token with an unknown key id over each of many connections, and read no answer yet."""
    with contextlib.ExitStack() as stack:
        connections = []
        for number in range(FLOOD):
            connection = stack.enter_context(RawConnection(replica))
            bearer = ("Authorization", f"Bearer {STRANGER.token(sub=f'nobody-{number}')}")
            connection.head([*head_of(ECHO), bearer, ("Content-Length", str(len(BODY)))])
            connection.socket.sendall(BODY)
            connections.append(connection)
        yield connections


def sent_away(replica: Replica) -> float:
    return replica.metric("gateway_requests_refused_total", reason="overloaded")


def statuses(answers: list[Answer]) -> dict[int, int]:
    return dict(Counter(answer.status for answer in answers))


def test_a_hanging_provider_locks_nobody_out(replica: Replica, victim: Victim, provider: IdentityProvider) -> None:
    provider.hang()
    with flood(replica) as connections:
        provider.wait_for_request(2)
        assert victim.calls(50) == {200: 50}
        wait_until(lambda: sent_away(replica) == FLOOD - MAX_WAITING, "all others are told to come again")
        assert replica.metric("gateway_requests_in_flight") == 0
        answers = [connection.answer() for connection in connections]
    # A few waited until the provider timed out.
    assert statuses(answers) == {401: MAX_WAITING, 503: FLOOD - MAX_WAITING}
    for refused in (answer for answer in answers if answer.status == 503):
        assert refused.headers["retry-after"] == "1"
        assert refused.message["error"]["code"] == -31001
    # From now on no request waits for a provider that did not answer.
    with flood(replica) as connections:
        assert victim.calls(50) == {200: 50}
        assert statuses([connection.answer() for connection in connections]) == {401: FLOOD}
