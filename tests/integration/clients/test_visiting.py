"""Third-party clients send their user to the URLs that a server of 2025-11-25 needs first, and get the result."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.clients.running import said_by
from tests.integration.clients.test_refusals import CLIENTS as REFUSED
from tests.integration.clients.test_refusals import HERE
from tests.integration.fleet import Fleet, front_of
from tests.upstreams.servers.earlier import Earlier
from tests.upstreams.servers.recording import visit
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import entry

TYPESCRIPT, _, FOLDER, _ = REFUSED["TypeScript 1"]
CLIENTS: dict[str, tuple[Path | str, ...]] = {
    "Python 1": (REFUSED["Python 1"][0], HERE / "visiting_python1.py"),
    "Python 2": (sys.executable, HERE / "visiting_python2.py", "legacy"),
    "Python 2, newest": (sys.executable, HERE / "visiting_python2.py", "auto"),
    "TypeScript 1": (TYPESCRIPT, HERE / "visiting_typescript.mjs", FOLDER, "1"),
    "TypeScript 2": (TYPESCRIPT, HERE / "visiting_typescript.mjs", FOLDER, "2"),
}
UPSTREAMS = ("session", "sessionless")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("visiting")
    file = folder / "upstreams.json"
    with InSessions() as session, Earlier() as sessionless:
        servers = {"session": entry(session.url), "sessionless": entry(sessionless.url)}
        file.write_text(json.dumps({"mcpServers": servers}))
        environ = {"GATEWAY_UPSTREAMS": str(file), "GATEWAY_TOOLS": "", "GATEWAY_CONNECTION_CLOSE": "on"}
        with Fleet(folder, environ) as fleet:
            for replica in fleet.replicas:
                for name in UPSTREAMS:
                    wait_until(partial(_has_read, replica, name), f"the lists of {name}")
            yield fleet


def _has_read(replica: Replica, upstream: str) -> bool:
    return bool(replica.metric("gateway_upstream_list_refreshes_total", upstream=upstream))


@pytest.fixture
async def url(fleet: Fleet) -> AsyncIterator[str]:
    async with front_of(fleet) as url:
        yield url


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_visits_each_url_and_gets_the_result(client: str, upstream: str, url: str) -> None:
    arguments = json.dumps({"times": 2, "client": client})
    output, _ = await said_by(*CLIENTS[client], url, f"{upstream}__sign_in", arguments)
    saw = json.loads(output)
    assert not saw["failed"], saw
    assert [at for at, _ in saw["asked"]] == [visit(1)["url"], visit(2)["url"]]
    assert visit(1)["elicitationId"] not in [name for _, name in saw["asked"]]
    assert json.loads(saw["text"]) == ["arguments", "name"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_reads_why_a_call_ends_that_needs_too_many_visits(client: str, url: str) -> None:
    arguments = json.dumps({"times": 4, "client": client})
    output, _ = await said_by(*CLIENTS[client], url, "session__sign_in", arguments)
    saw = json.loads(output)
    assert saw["failed"]
    assert "after 3 visits were accepted" in saw["text"]
