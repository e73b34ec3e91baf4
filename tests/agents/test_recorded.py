"""Replicas that serve requests in turn answer what agents once sent as they did then.

`make agents` records it from the real agents (`test_live.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.auth.tokens import mint
from tests.agents.exchanges import ANYTHING, TOKEN, Answer, Exchange, Recording, events_in, is_named, mapped
from tests.agents.programs import AGENTS, Place
from tests.agents.tools import ANSWERED, AUDIENCE, CLOSED, SECRET, SETTINGS
from tests.integration.fleet import Fleet

SECONDS = 20


class Sealed:
    """The values that the names in a recording stand for in a replay."""

    def __init__(self) -> None:
        self._learned: dict[str, asyncio.Future[str]] = {}

    def _of(self, name: str) -> asyncio.Future[str]:
        return self._learned.setdefault(name, asyncio.get_running_loop().create_future())

    async def filled(self, value: Any) -> Any:
        """Return a JSON value with the values that its names stand for, once they have arrived."""
        names: list[str] = []
        mapped(value, lambda leaf: names.append(leaf) if is_named(leaf) else None)
        known = {name: await self._of(name) for name in names}
        return mapped(value, lambda leaf: known.get(leaf, leaf) if isinstance(leaf, str) else leaf)

    def compare(self, recorded: Any, live: Any) -> None:
        """Compare two JSON values, and learn from the live one."""
        if isinstance(recorded, dict) and isinstance(live, dict):
            assert recorded.keys() == live.keys()
            for key in recorded:
                self.compare(recorded[key], live[key])
        elif isinstance(recorded, list) and isinstance(live, list):
            for one, other in zip(recorded, live, strict=True):
                self.compare(one, other)
        elif is_named(recorded):
            self._of(recorded).set_result(live)
        elif recorded != ANYTHING:
            assert recorded == live


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), SETTINGS) as fleet:
        yield fleet


async def messages_of(response: httpx2.Response) -> AsyncIterator[Any]:
    """Yield the body, or the data of each event as it comes."""
    if response.headers.get("content-type") == "text/event-stream":
        async for line in response.aiter_lines():
            for data in events_in(line):
                yield json.loads(data)
    elif body := await response.aread():
        yield json.loads(body)


async def compare_answer(recorded: Answer, response: httpx2.Response, sealed: Sealed) -> None:
    """Compare an answer with the recorded one, up to where the agent stopped reading."""
    got = response.status_code, response.headers.get("content-type")
    assert got == (recorded.status, recorded.type)
    sealed.compare(recorded.session, response.headers.get("mcp-session-id"))
    stream = messages_of(response)
    for message in recorded.messages:
        sealed.compare(message, await anext(stream, None))
    if recorded.complete:
        assert [message async for message in stream] == []


async def replay(recording: Recording, fleet: Fleet, token: str) -> None:
    """Send the requests of a recording to the replicas in turn, each when its agent did."""
    sealed = Sealed()
    urls = itertools.cycle([replica.url for replica in fleet.replicas])
    async with httpx2.AsyncClient(timeout=SECONDS) as client, asyncio.TaskGroup() as group:

        async def exchange(each: Exchange, headers: Mapping[str, str], body: Any) -> None:
            content = None if body is None else json.dumps(body)
            async with client.stream(each.request.method, next(urls), headers=headers, content=content) as response:
                await compare_answer(each.answer, response, sealed)

        for each in recording.exchanges:
            headers = await sealed.filled({**each.request.headers})
            if "authorization" in headers:
                headers["authorization"] = headers["authorization"].replace(TOKEN, f"Bearer {token}")
            sent = group.create_task(exchange(each, headers, await sealed.filled(each.request.body)))
            if not each.overlaps:
                await sent


@pytest.mark.parametrize("name", AGENTS)
async def test_what_an_agent_sent_is_answered_as_it_was(name: str, fleet: Fleet) -> None:
    async with asyncio.timeout(SECONDS):
        await replay(Recording.load(name), fleet, mint(SECRET, name, AUDIENCE))


@pytest.mark.parametrize("name", AGENTS)
def test_the_recipe_of_an_agent_names_the_gateway_and_the_variable_of_the_token(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path, "http://gateway.example", "http://model.example")
    AGENTS[name].prepare(place)
    written = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert [text for text in written if "http://gateway.example/mcp" in text and "MCP_TOKEN" in text]


@pytest.mark.parametrize("name", AGENTS)
def test_a_recording_has_the_list_both_calls_and_what_the_model_read(name: str) -> None:
    agent, recording = AGENTS[name], Recording.load(name)
    assert recording.version == agent.version
    assert recording.asked_for("tools/list")
    calls = [
        message["result"]
        for each in recording.asked_for("tools/call")
        for message in each.answer.messages
        if "result" in message
    ]
    read = [call["content"][0]["text"] for call in calls if "content" in call]
    assert read == [CLOSED, ANSWERED if agent.shows_forms else agent.refused]
