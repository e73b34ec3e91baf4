"""An answer that cannot be delivered is refused, and its call ends with a sentence instead of waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from loadtest.cluster import Replica
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.messages import accept
from tests.wires.draft.under_way import under_way
from tests.wires.legacy.speaking import asked, calling, rejected, result_of, speak, text_of, undelivered

pytestmark = pytest.mark.slow

USER: Final = "ada"
ANSWER: Final[Mapping[str, Any]] = {"result": accept(name="ada")}
LOST: Final = "An answer reached another process of the server, which could not deliver it; call again"
LATE: Final = "No answer came in time; call again"
SOON_SECONDS: Final = 30.0
"""Much less than a call waits by default."""


def lost(directory: Path, server: Server | None, *, peers: bool, **settings: str) -> Deployment:
    """Return two replicas, whose messages do not reach each other by the URL that they have."""
    # Another deployment on the same server has other keys, so the audience differs.
    own = {"GATEWAY_AUDIENCE": "lost", "GATEWAY_JWT_AUDIENCE": AUDIENCE, "GATEWAY_TOOLS": "tests.wires.draft.tools"}
    pair = Deployment(directory, server, {**own, **settings})
    urls = ",".join(replica.url for replica in pair.replicas)
    for replica in pair.replicas:
        replica.environ["GATEWAY_REPLICA_URL"] = "http://127.0.0.1:9"
        if peers:
            replica.environ["GATEWAY_PEERS"] = urls
    return pair


@pytest.fixture(scope="module", params=["peers", "redis"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis: Server
) -> Iterator[Deployment]:
    store = redis if request.param == "redis" else None
    with lost(tmp_path_factory.mktemp("pair"), store, peers=store is None) as pair:
        yield pair


async def speaker(pair: Deployment) -> DraftClient:
    return await speak(pair.client(USER, urls=[pair.replicas[0].url]))


async def lose(user: DraftClient, replica: Replica, question: str) -> None:
    """Answer a question at a replica that cannot deliver the answer."""
    before, user.transport.urls = user.transport.urls, [replica.url]
    with undelivered():
        await user.respond(question, ANSWER)
    user.transport.urls = before


async def test_a_call_whose_answer_is_lost_ends_at_once_and_says_what_to_do(pair: Deployment) -> None:
    first, second = pair.replicas
    user = await speaker(pair)
    async with calling(user, "ask_politely") as call, asyncio.timeout(SOON_SECONDS):
        gone = rejected(second, "gone")
        await lose(user, second, (await asked(call))["id"])
        result = await result_of(call)
    assert result["isError"]
    assert text_of(result) == LOST
    assert rejected(second, "gone") == gone + 1
    assert not [line for line in first.log_lines() if line["level"] == "error"]


async def test_a_lost_copy_of_an_answer_that_arrived_ends_nothing(pair: Deployment) -> None:
    first, second = pair.replicas
    user = await speaker(pair)
    async with calling(user, "ask_politely") as call:
        question = (await asked(call))["id"]
        await user.respond(question, ANSWER)
        await lose(user, second, question)
        assert text_of(await result_of(call)) == "ada"
    await user.respond(question, ANSWER)
    assert rejected(first, "late") >= 1, "after the end of the call, an answer is still accepted"


async def test_a_resource_whose_answer_is_lost_ends_with_an_error(pair: Deployment) -> None:
    user = await speaker(pair)
    reading = under_way(user, "resources/read", {"uri": "draft://notes"})
    async with reading as call, asyncio.timeout(SOON_SECONDS):
        await lose(user, pair.replicas[1], (await asked(call))["id"])
        assert (await call.response())["error"] == {"code": -32603, "message": LOST}


async def test_without_a_way_to_report_it_the_call_ends_when_its_time_is_over(tmp_path: Path) -> None:
    with lost(tmp_path, None, peers=False, GATEWAY_ANSWER_SECONDS="1") as pair:
        user = await speaker(pair)
        async with calling(user, "ask_politely") as call:
            began = time.monotonic()
            await lose(user, pair.replicas[1], (await asked(call))["id"])
            assert text_of(await result_of(call)) == LATE
            assert time.monotonic() - began < SOON_SECONDS
