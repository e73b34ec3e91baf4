"""Third-party clients show their users the gateway's own reason for a refusal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import REPOSITORY
from tests.integration.clients.running import said_by
from tests.integration.fleet import Fleet

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"

AUDIENCE, SECRET = "tests", "a secret of more than thirty-two bytes"
SETTINGS = {
    "GATEWAY_TOOLS": "tests.integration.clients.refusing",
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_SECRET": SECRET,
    "GATEWAY_AUDIENCE": AUDIENCE,
}
OWN = {
    "unlimited": {},
    "limited": {"GATEWAY_RATE_LIMIT": "1/h burst 20"},
    "small": {"GATEWAY_MAX_INFLIGHT": "4"},
}

TYPESCRIPT = (NODE / "bin/node", HERE / "refused_typescript.mjs", NODE)
CLIENTS: dict[str, tuple[Path | str, ...]] = {
    "Python 1": (PEERS / "mcp1/bin/python", HERE / "refused_python1.py"),
    "Python 2": (sys.executable, HERE / "refused_python2.py"),
    "TypeScript 1": (*TYPESCRIPT, "1"),
    "TypeScript 2": (*TYPESCRIPT, "2"),
}


class Refusal(NamedTuple):
    """A refusal of a client, and the gateway's message.

    Attributes:
        words: a pattern of what its user should read.
        token: that it calls with, None for the one that it connected with.
        without_body: what a user reads whose client does not read what comes with this status, as Python 1 does not.
    """

    replica: str
    tool: str
    calls: int
    words: str
    token: str | None = None
    without_body: str | None = None


REFUSALS = {
    "401": Refusal("unlimited", "plain", 1, "The access token is not valid", "nobody's", "401 Unauthorized"),
    "403": Refusal("unlimited", "guarded", 1, "This needs the scopes: admin", without_body="403 Forbidden"),
    "rate limited": Refusal("limited", "plain", 40, "Too many requests"),
    "overloaded": Refusal("small", "hold", 40, "The server is overloaded|One caller may have no more waiting requests"),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), SETTINGS, names=list(OWN), own=OWN) as fleet:
        yield fleet


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("why", REFUSALS)
async def test_a_refused_client_tells_its_user_why(why: str, client: str, fleet: Fleet) -> None:
    refusal = REFUSALS[why]
    token = mint(SECRET, f"{client}, {why}", AUDIENCE)
    arguments = (fleet[refusal.replica].url, token, refusal.token or token, refusal.tool, str(refusal.calls))
    expected = refusal.without_body if client == "Python 1" and refusal.without_body else refusal.words
    assert re.search(expected, "".join(await said_by(*CLIENTS[client], *arguments)))
