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
