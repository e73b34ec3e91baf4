"""A replica whose clock differs much from its identity provider's reports it, and serves. A real process."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest.cluster import Replica
from tests.identity import AUDIENCE, ISSUER, IdentityProvider, SigningKey
from tests.integration.fleet import Fleet
from tests.integration.raw import RawConnection, headers_of, tool_call

pytestmark = pytest.mark.slow

HOUR = 3600
SLACK_SECONDS = 60
KEY = SigningKey("known")
ECHO = tool_call("echo", {"text": "hello"})


@pytest.fixture(params=[HOUR, -HOUR, 0], ids=["ahead", "behind", "right"])
def ahead_seconds(request: pytest.FixtureRequest) -> int:
    """Return how far the provider's clock is ahead."""
    return int(request.param)


@pytest.fixture
def replica(tmp_path: Path, ahead_seconds: int) -> Iterator[Replica]:
    with IdentityProvider(KEY) as provider:
        provider.set_clock(ahead_seconds)
        environ = {
            "GATEWAY_TOOLS": "tests.integration.tools",
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_ISSUER": ISSUER,
            "GATEWAY_JWKS_URL": provider.url,
        }
        with Fleet(tmp_path, environ, names=["r1"]) as fleet:
            yield fleet["r1"]


def test_a_replica_says_how_far_its_clock_is_from_its_provider_s_and_serves(
    replica: Replica, ahead_seconds: int
) -> None:
    with RawConnection(replica) as connection:
        connection.socket.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        ready = connection.answer()
    offset = pytest.approx(-ahead_seconds, abs=SLACK_SECONDS)
    assert (ready.status, ready.message) == (200, {"status": "ready", "clock": {"identity_provider": offset}})
    assert replica.metric("gateway_clock_offset_seconds", source="identity_provider") == offset
    client = http.client.HTTPConnection(*replica.address)
    client.request("POST", "/mcp", msgspec.json.encode(ECHO), bearer())
    assert client.getresponse().status == 200
    client.close()
    replica.wait_for_log("serving")  # it is logged before
    told = replica.logged("clock is off", source="identity_provider")
    assert [line["seconds"] for line in told] == ([offset] if ahead_seconds else [])


def bearer() -> dict[str, str]:
    return {**headers_of(ECHO), "authorization": f"Bearer {KEY.token()}"}
