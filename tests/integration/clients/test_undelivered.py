"""Third-party clients keep their session when an answer cannot be delivered, and learn that the call is over."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.clients.running import said_by
from tests.integration.clients.test_refusals import CLIENTS as REFUSED
from tests.integration.clients.test_refusals import HERE
from tests.integration.fleet import Fleet, front_of

CLIENTS = {
    name: [
        HERE / part.name.replace("refused", "undelivered") if isinstance(part, Path) and part.parent == HERE else part
        for part in command
    ]
    for name, command in REFUSED.items()
}
"""The command line of each client, which `test_refusals` names with another script."""

LOST = "An answer reached another process of the server, which could not deliver it; call again"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a front that gives each connection to the next of two replicas.

    Their URLs lead nowhere, so answers are lost. They report that to each other.
    """
    fleet = Fleet(tmp_path, {"GATEWAY_TOOLS": "tests.integration.clients.losing", "GATEWAY_CONNECTION_CLOSE": "on"})
    for replica in fleet.replicas:
        replica.environ["GATEWAY_REPLICA_URL"] = "http://127.0.0.1:9"
        replica.environ["GATEWAY_PEERS"] = ",".join(other.url for other in fleet.replicas)
    with fleet:
        async with front_of(fleet) as url:
            yield url


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_lost_answer_ends_its_call_and_not_the_session(client: str, url: str) -> None:
    output, _ = await said_by(*CLIENTS[client], url)
    texts = json.loads(output.splitlines()[0])
    assert texts[1::2] == ["done"] * 3
    assert LOST in texts
    assert set(texts[::2]) <= {LOST, "Ada"}, "a request that the client makes at any time may change whose turn it is"
