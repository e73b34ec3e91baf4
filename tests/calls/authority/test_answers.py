"""An answer counts with the session and scopes of its question, and the call continues under the answer's token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from loadtest.cluster import wait_until
from tests.calls.authority.conftest import ClientOf, challenge_of, replica_of
from tests.integration.raw import post
from tests.integration.raw import request as raw_request
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import FIRST_FORM_TASK, VERSION, accept, call_params
from tests.wires.draft.transport import Message, RpcError
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.speaking import LEGACY, asked, calling, rejected, result_of, text_of

pytestmark = pytest.mark.slow

YES: Mapping[str, Any] = {"result": accept(name="ada")}

REQUESTS: list[tuple[str, Mapping[str, Any]]] = [
    ("tools/call", call_params("greet")),
    ("prompts/get", {"name": "greeting"}),
    ("resources/read", {"uri": "admin://page"}),
]
"""Calls of 2025-11-25 that ask, and whose function requires a scope."""


async def is_refused(client: DraftClient, question: Message) -> None:
    """Answer a question, and check that the answer is refused."""
    with pytest.raises(RpcError) as refused:
        await client.respond(question["id"], YES)
    assert refused.value.status == 403
    assert 'error="insufficient_scope"' in challenge_of(client)


async def answer_all(client: DraftClient, request: UnderWay, count: int) -> None:
    """Answer this many questions."""
    for number in range(1, count + 1):
        await client.respond((await asked(request, number))["id"], YES)


def is_over(fleet: Deployment, client: DraftClient) -> bool:
    """Return whether the client's token is refused everywhere."""
    token = client.transport.headers["Authorization"].removeprefix("Bearer ")
    answers = [post(replica, raw_request("tools/list"), token=token) for replica in fleet.replicas]
    return all(answer.status == 401 for answer in answers)


@pytest.mark.parametrize("replica", ["r1", "r2"])
@pytest.mark.parametrize(("method", "params"), REQUESTS)
async def test_an_answer_from_a_token_without_the_scope_is_forbidden_and_the_call_waits_on(
    user: DraftClient, client_of: ClientOf, replica: str, method: str, params: Mapping[str, Any]
) -> None:
    async with under_way(user, method, params) as request:
        question = await asked(request)
        await is_refused(client_of(replica, scopes=("other",), like=user), question)
        await answer_all(client_of(replica, like=user), request, 2 if method == "tools/call" else 1)
        assert "ADMIN ada" in str(await result_of(request))


@pytest.mark.parametrize("replica", ["r1", "r2"])
async def test_an_answer_counts_only_with_the_session_in_which_the_call_began(
    user: DraftClient, client_of: ClientOf, replica: str
) -> None:
    other = client_of(replica, version=LEGACY)
    await other.initialize(LEGACY)
    without = client_of(replica, version=VERSION)
    async with calling(user, "greet") as request:
        question = await asked(request)
        await is_refused(other, question)
        await is_refused(without, question)
        await answer_all(client_of(replica, like=user), request, 2)
        assert text_of(await result_of(request)) == "ADMIN ada ada"


async def test_a_call_continues_under_the_token_of_its_answer_when_the_first_token_has_ended(
    user: DraftClient, client_of: ClientOf, fleet: Deployment
) -> None:
    began = client_of(seconds=3, like=user)
    async with calling(began, "greet") as request:
        await user.respond((await asked(request))["id"], YES)
        second = await asked(request, 2)
        wait_until(lambda: is_over(fleet, began), "the token to be over")
        assert not any("result" in message for message in request.messages)
        await client_of("r2", like=user).respond(second["id"], YES)
        assert text_of(await result_of(request)) == "ADMIN ada ada"


@pytest.mark.parametrize("replica", ["r1", "r2"])
async def test_a_call_ends_with_the_token_of_its_answer(user: DraftClient, client_of: ClientOf, replica: str) -> None:
    async with calling(user, "greet") as request:
        first = await asked(request)
        await client_of(replica, seconds=3, like=user).respond(first["id"], YES)
        await asked(request, 2)
        result = await result_of(request)
    assert result["isError"]
    assert "call again" in text_of(result)


@pytest.mark.parametrize(("method", "params"), REQUESTS)
async def test_a_call_that_waits_ends_with_its_token_and_an_answer_comes_too_late(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, method: str, params: Mapping[str, Any]
) -> None:
    before = rejected(replica_of(fleet, "r1"), "late")
    async with under_way(client_of(seconds=2, like=user), method, params) as request:
        question = await asked(request)
        response = await request.response()
        await user.respond(question["id"], YES)
    assert "call again" in str(response)
    if method != "tools/call":
        error = response["error"]
        assert (error["code"], error["data"]) == (-31005, {"reason": "unanswered"}), "nothing is wrong at our side"
    assert "ADMIN" not in str(response)
    assert rejected(replica_of(fleet, "r1"), "late") == before + 1


@pytest.mark.parametrize("in_session", [True, False])
async def test_an_answer_on_the_stream_of_a_task_counts_with_its_session_and_the_scope(
    client_of: ClientOf, name: str, in_session: bool
) -> None:
    user = client_of(version=VERSION)
    if in_session:
        await user.initialize()
    other = client_of("r2", version=VERSION)
    await other.initialize()
    without = client_of("r2", version=VERSION)
    params = call_params("ask_job", meta={FIRST_FORM_TASK: {"taskId": name}})
    async with under_way(user, "tools/call", params) as request:
        question = await asked(request)
        await is_refused(client_of("r2", scopes=("other",), version=VERSION), question)
        if in_session:
            await is_refused(other, question)
            await is_refused(without, question)
            await is_refused(client_of("r2", scopes=("other",), like=user), question)
            await client_of("r2", like=user).respond(question["id"], YES)
        else:
            await without.respond(question["id"], YES)
        assert text_of(await result_of(request)) == "ADMIN ada"
