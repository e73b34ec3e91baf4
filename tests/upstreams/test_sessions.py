"""Servers that are called in sessions, through two replicas: calls, callers, changes, and what a broken one costs."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import pytest

from loadtest.cluster import wait_until
from tests.upstreams.servers.recording import Recording
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import Site, entry
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params

every_wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def server() -> Iterator[InSessions]:
    with InSessions() as server:
        yield server


@pytest.fixture(scope="module")
def other() -> Iterator[Recording]:
    with Recording() as server:
        yield server


@pytest.fixture(scope="module")
def site(server: InSessions, other: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {
        "held": entry(server.url),
        "shared": entry(server.url, scope="shared"),
        "own": entry(server.url, scope="caller", era="session"),
        "refusing": entry(server.url, ask="refuse"),
        "other": entry(other.url),
    }
    with Site(tmp_path_factory.mktemp("sessions"), upstreams) as site:
        site.wait_listed("held", "shared", "other")
        yield site


@every_wire
async def test_tools_resources_and_lists_are_served_on_every_wire(site: Site, wire: str) -> None:
    async with speaking(wire, site, "ada") as call:
        for _ in range(2):
            listed = await call("tools/list", {})
            assert {"held__echo", "shared__echo", "own__echo"} <= {tool["name"] for tool in listed["tools"]}
            for upstream in ("held", "shared", "own"):
                result = await call("tools/call", call_params(f"{upstream}__echo", {"text": "hi"}))
                assert result["content"][0]["text"] == "hi"
            read = await call("resources/read", {"uri": "held+note://today"})
            assert read["contents"][0]["text"] == "at note://today"


@every_wire
async def test_a_question_in_the_middle_of_a_call_is_refused_in_words(site: Site, wire: str) -> None:
    async with speaking(wire, site, "ada") as call:
        for tool in ("ask", "ask_aside"):
            result = await call("tools/call", call_params(f"refusing__{tool}"))
            assert "passes no question of the server 'refusing' on" in result["content"][0]["text"]


async def test_no_caller_uses_the_session_of_another_one(site: Site) -> None:
    counts: dict[str, set[str]] = {}
    for name in ("carol", "dave"):
        async with site.user(name) as user:
            counts[name] = {(await user.call("held__count")).text.partition(":")[0] for _ in range(4)}
    assert all(len(sessions) == len(site.replicas) for sessions in counts.values())
    assert counts["carol"].isdisjoint(counts["dave"])


async def test_a_server_that_was_started_again_loses_no_call(site: Site, server: InSessions) -> None:
    async with site.user("erin") as user:
        for _ in range(3):
            streams = [each.stream for each in server.open.values() if each.stream is not None]
            before = server.methods.count("GET")
            server.forget()
            server.wait_for("GET", before + len(streams))
            for _ in site.replicas:
                assert (await user.call("held__echo", {"text": "hi"})).text == "hi"


async def test_a_call_that_breaks_off_is_sent_once_and_says_that_it_may_have_acted(
    site: Site, server: InSessions
) -> None:
    before = len(server.ran)
    async with site.user("frank") as user:
        reply = await user.call("held__cut")
        assert "It may have acted" in reply.text
        assert (await user.call("other__echo", {"text": "fine"})).text == "fine"
    assert [tool for _, tool in server.ran[before:]] == ["cut"]


async def test_a_change_that_the_server_announces_reads_its_lists_again(site: Site, server: InSessions) -> None:
    def readings() -> list[float]:
        """Return how often each replica has read the lists."""
        counts = []
        for replica in site.replicas:
            samples = replica.samples("gateway_upstream_list_refreshes_total")
            counts.append(sum(value for labels, value in samples if labels["upstream"] == "held"))
        return counts

    wait_until(lambda: sum(each.stream is not None for each in server.open.values()) >= 4, "the streams")
    before = readings()
    server.send("tools/list_changed")
    wait_until(lambda: all(map(operator.lt, before, readings())), "another reading of the lists in each replica")


def test_a_gateway_that_stops_ends_its_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    with InSessions() as server:
        with Site(tmp_path_factory.mktemp("ended"), {"held": entry(server.url)}) as site:
            site.wait_listed("held")
            assert server.open
        assert not server.open
