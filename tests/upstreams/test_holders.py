"""Holders: processes that have all sessions and programs of a deployment, which the other processes use."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import Replica, wait_until
from tests.storage.servers import Server
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import Site, User, entry
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params
from tests.wires.legacy.speaking import text_of

MEMORY = Path(__file__).parent / "servers" / "memory.py"


def answer_of(question: Any) -> dict[str, Any]:
    """Return an answer that repeats the text of the question."""
    return {"action": "accept", "content": {"sure": question["params"]["message"]}}


ANSWERS = {"elicitation/create": answer_of}


class Held(Site):
    """Edges r1 and r2, and holders, with a server in sessions, and one with a memory that is a program."""

    def __init__(
        self,
        directory: Path,
        upstreams: dict[str, Any],
        holders: tuple[str, ...] = ("h1",),
        server: Server | None = None,
        **settings: str,
    ) -> None:
        self.notes = directory / "notes"
        directory.mkdir(parents=True, exist_ok=True)
        program = {"command": sys.executable, "args": ["-S", str(MEMORY)], "env": {"NOTES": str(self.notes)}}
        own = {"memory": {**program, "gateway": {}}, "own": {**program, "gateway": {"scope": "caller"}}}
        super().__init__(directory, {**own, **upstreams}, server, settings, names=("r1", "r2", *holders))
        urls = ",".join(self[name].environ["GATEWAY_REPLICA_URL"] for name in holders)
        self.environ["GATEWAY_HOLDERS"] = urls
        for replica in self.replicas:
            replica.environ["GATEWAY_HOLDERS"] = urls

    @property
    def edges(self) -> list[Replica]:
        return [self["r1"], self["r2"]]

    def at_edges(self, principal: str = "ada", **options: Any) -> User:
        """Return a client that only knows the edges."""
        return self.user(principal, urls=[edge.url for edge in self.edges], **options)

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture(scope="module")
def server() -> Iterator[InSessions]:
    with InSessions() as server:
        yield server


@pytest.fixture(scope="module")
def site(server: InSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    upstreams = {"held": entry(server.url, scope="caller")}
    with Held(tmp_path_factory.mktemp("held"), upstreams) as site:
        site.wait_listed("memory")
        yield site


async def test_all_edges_use_one_program_with_one_memory(site: Held) -> None:
    async with site.at_edges() as user:
        assert "memory__remember" in await user.names()
        pids = {(await user.call("memory__about")).said for _ in range(4)}
        for text in ("a", "b", "c"):
            said = (await user.call("memory__remember", {"text": text})).said
    assert len(pids) == 1
    assert said == ["a", "b", "c"]


@pytest.mark.parametrize("wire", WIRES)
async def test_questions_of_a_program_are_answered_over_edges(site: Held, wire: str) -> None:
    texts = [f"Delete {files} files of {wire}?" for files in (3, 300)]
    async with speaking(wire, site, "ada", urls=[edge.url for edge in site.edges]) as call:
        result = await call("tools/call", call_params("own__delete", {"owner": wire}), ANSWERS)
    assert json.loads(text_of(result)) == [[text, text] for text in texts]
    assert [line for line in site.noted() if line.startswith(wire)] == [f"{wire} 3", f"{wire} 300"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("on", ["call", "session"])
async def test_questions_in_sessions_are_answered_over_edges(site: Held, wire: str, on: str) -> None:
    async with speaking(wire, site, "ada", urls=[edge.url for edge in site.edges]) as call:
        result = await call("tools/call", call_params("held__delete", {"on": on}), ANSWERS)
    expected = [[files, answer_of({"params": {"message": f"Delete {files} files?"}})] for files in (3, 300)]
    assert json.loads(text_of(result)) == expected


async def test_a_caller_has_one_session_and_another_caller_another(site: Held, server: InSessions) -> None:
    before = set(server.open)
    async with site.at_edges("carol") as carol, site.at_edges("dan") as dan:
        for user in (carol, dan):
            assert [(await user.call("held__count")).text.split(": ")[1] for _ in range(4)] == ["1", "2", "3", "4"]
    assert len(set(server.open) - before) == 2


async def test_a_change_of_a_list_is_heard_at_each_edge(site: Held) -> None:
    async with site.at_edges() as user:
        async with user.listening(site["r2"].url, toolsListChanged=True) as heard:
            changed = await user.send("tools/list")
            assert changed.status == 200
            await user.call("memory__change")
            for edge in site.edges:
                wait_until(
                    lambda edge=edge: edge.metric("gateway_upstream_list_refreshes_total", upstream="memory") >= 2,
                    f"the lists are read again at {edge.name}",
                )
            assert heard.of("notifications/subscriptions/acknowledged")


async def test_one_leg_has_one_line_of_audit_and_one_count(site: Held) -> None:
    def counted() -> float:
        return site.metric("gateway_upstream_requests_total", upstream="own", method="tools/call")

    def legs() -> list[dict[str, Any]]:
        lines = [line for replica in site.replicas for line in replica.logged("leg finished", subject="erin")]
        return [line for line in lines if line.get("method") == "tools/call"]

    before = counted()
    async with site.at_edges("erin") as user:
        await user.call("own__delete", {"owner": "erin"}, ANSWERS)
    wait_until(lambda: len(legs()) >= 3, "three lines of audit")
    assert len(legs()) == 3, "two that asked, and one with the result"
    assert counted() == before + 1
