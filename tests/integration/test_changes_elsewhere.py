"""Changes that one replica announces reach clients that listen to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.streams import Stream, asking, calling, send
from tests.storage.servers import Server, own_redis

pytestmark = pytest.mark.slow

TOOLS: Final = "tests.wires.legacy.working_tools"
EDITED: Final = "tests.integration.edited"
MODULE: Final = "from gateway import tool\n\n@tool\nasync def {name}() -> str:\n    return 'said'\n"


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    with own_redis() as server:
        yield server


def peers_of(fleet: Fleet) -> str:
    return ",".join(replica.url.removesuffix("/mcp") for replica in fleet.replicas)


@pytest.fixture(scope="module", params=["store", "peers"])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two replicas that notify each other of changes, by a store or without one."""
    environ = {"GATEWAY_TOOLS": TOOLS}
    if request.param == "store":
        environ["GATEWAY_REDIS_URL"] = request.getfixturevalue("store").url
    fleet = Fleet(tmp_path_factory.mktemp("changes"), environ)
    if request.param == "peers":
        for replica in fleet.replicas:
            replica.environ["GATEWAY_PEERS"] = peers_of(fleet)
    with fleet:
        yield fleet


@pytest.mark.parametrize(
    ("wanted", "what", "method"),
    [
        ({"toolsListChanged": True}, "tools", "notifications/tools/list_changed"),
        ({"resourcesListChanged": True}, "resources", "notifications/resources/list_changed"),
        ({"resourceSubscriptions": ["test://watched"]}, "test://watched", "notifications/resources/updated"),
    ],
    ids=["tools", "resources", "resource"],
)
def test_listeners_at_another_replica_are_notified_of_a_change(
    fleet: Fleet, wanted: dict[str, object], what: str, method: str
) -> None:
    first, second = fleet.replicas
    with Stream(first, asking("subscriptions/listen", {"notifications": wanted})) as stream:
        stream.next()
        assert send(second, calling("change", {"what": what})).text == "told"
        assert stream.next()["method"] == method


def test_each_listener_is_notified_once_of_a_change(fleet: Fleet) -> None:
    """The replica that announces a change receives it again from the store, and from nowhere else."""
    first, second = fleet.replicas
    listen = asking("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourcesListChanged": True}})
    with Stream(first, listen) as there, Stream(second, listen) as here:
        for stream in (there, here):
            stream.next()
        for what in ("tools", "resources"):
            send(second, calling("change", {"what": what}))
            for stream in (there, here):
                assert stream.next()["method"] == f"notifications/{what}/list_changed"


def test_a_replica_that_reloads_notifies_listeners_at_another(tmp_path: Path) -> None:
    """Only one of them reloads its modules, so the listener's notification comes from there."""
    module = tmp_path / "edited.py"
    module.write_text(MODULE.format(name="say"))
    fleet = Fleet(tmp_path, {"GATEWAY_TOOLS": "edited", "TEST_FOLDER": str(tmp_path)}, names=())
    first = Replica("r1", fleet.environ, tmp_path / "r1.log", module=EDITED)
    second = Replica("r2", fleet.environ, tmp_path / "r2.log", "--reload", module=EDITED)
    fleet.replicas = [first, second]
    for replica in fleet.replicas:
        replica.environ["GATEWAY_PEERS"] = peers_of(fleet)
    with fleet:
        wait_until(lambda: bool(second.logged("watching tool modules")), "the modules to be watched")
        with Stream(first, asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}})) as stream:
            stream.next()
            module.write_text(MODULE.format(name="shout"))
            assert stream.next()["method"] == "notifications/tools/list_changed"
