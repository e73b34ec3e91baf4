"""Servers in sessions that ask their user while a call runs: each answer comes to its question, over every wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import Site, entry
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params
from tests.wires.legacy.speaking import text_of

every_wire = pytest.mark.parametrize("wire", WIRES)


def answer_of(question: Any) -> dict[str, Any]:
    """Return an answer that repeats the text of the question."""
    return {"action": "accept", "content": {"sure": question["params"]["message"]}}


ANSWERS = {"elicitation/create": answer_of}
EACH_ITS_OWN = [[files, answer_of({"params": {"message": f"Delete {files} files?"}})] for files in (3, 300)]


@pytest.fixture(scope="module")
def server() -> Iterator[InSessions]:
    with InSessions() as server:
        yield server


@pytest.fixture(scope="module")
def site(server: InSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {"held": entry(server.url, scope="caller")}
    with Site(tmp_path_factory.mktemp("held"), upstreams) as site:
        yield site


@every_wire
@pytest.mark.parametrize("on", ["call", "session"])
async def test_two_questions_get_the_answers_that_belong_to_them(site: Site, wire: str, on: str) -> None:
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params("held__delete", {"on": on}), ANSWERS)
    assert json.loads(text_of(result)) == EACH_ITS_OWN
