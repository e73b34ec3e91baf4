"""Streams and waits end with the authority that opened them, in the same way as on a draining replica."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import REPOSITORY, Replica
from tests.calls.authority.conftest import SECONDS, ClientOf
from tests.calls.authority.test_tasks import RELEASED
from tests.identity import AUDIENCE as PROVIDERS_AUDIENCE
from tests.identity import ISSUER, IdentityProvider, SigningKey
from tests.integration.fleet import Fleet
from tests.integration.raw import VERSION as RELEASED_VERSION
from tests.integration.raw import post
from tests.integration.raw import request as raw_request
from tests.process.test_reload import Author, Reloading
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import SECRET, Deployment
from tests.wires.draft.messages import FIRST_FORM_TASK, VERSION, call_params
from tests.wires.draft.transport import Message
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.speaking import LEGACY, asked, result_of, text_of

pytestmark = pytest.mark.slow

SECRET_TEXT = "TOP-SECRET"


def listens(client: DraftClient) -> DraftClient:
    """Make a client use the released wire, so it can listen."""
    client.transport.headers.update({"MCP-Protocol-Version": RELEASED_VERSION, "Mcp-Method": "subscriptions/listen"})
    return client


def listening(client: DraftClient, *task_ids: str, **more: Any) -> Any:
    """Listen to tasks, and to more, while the context is open."""
    params = {**RELEASED, "notifications": {"taskIds": list(task_ids), **more}}
    return under_way(listens(client), "subscriptions/listen", params)


def is_closed(messages: list[Message]) -> bool:
    """Return whether a `subscriptions/listen` stream has ended in the regular way."""
    result: Mapping[str, Any] = messages[-1].get("result", {})
    return result.get("resultType") == "complete"


def has_to_come_again(messages: list[Message]) -> bool:
    """Return whether a wait has ended as on a draining replica: the client should ask once more."""
    error: Mapping[str, Any] = messages[-1].get("error", {})
    return error.get("code") == -31001


def is_cut(messages: list[Message]) -> bool:
    """Return whether a stream of segments has ended before its last response."""
    return not any(message.get("result", {}).get("isComplete") for message in messages)


Open = Callable[[DraftClient, str], Any]
"""Opens a stream for a task, given the client and the task id."""

WAITS: dict[str, tuple[str | None, Open, Callable[[list[Message]], bool]]] = {
    "subscriptions/listen": (None, listening, is_closed),
    "tasks/result of 2025-11-25": (
        LEGACY,
        lambda client, task: under_way(client, "tasks/result", {"taskId": task}),
        has_to_come_again,
    ),
    "tasks/result of the draft": (
        VERSION,
        lambda client, task: under_way(client, "tasks/result", {"taskId": task}),
        has_to_come_again,
    ),
    "segments": (
        VERSION,
        lambda client, gate: under_way(
            client, "tools/call", call_params("write_job", {"gate": gate}, {"responseModes": ["streaming"]})
        ),
        is_cut,
    ),
    "first form": (
        VERSION,
        lambda client, gate: under_way(
            client, "tools/call", call_params("job", {"gate": gate}, meta={FIRST_FORM_TASK: {"taskId": gate}})
        ),
        has_to_come_again,
    ),
}
"""By name: the wire, the function that opens the stream, and the check that it has ended correctly."""


@pytest.mark.parametrize("wait", WAITS)
async def test_a_wait_for_a_task_ends_with_its_token_and_reveals_nothing_of_the_result(
    client_of: ClientOf, fleet: Deployment, gate: str, wait: str
) -> None:
    version, opens, has_ended = WAITS[wait]
    user = client_of()
    creates = wait in {"segments", "first form"}
    task_id = gate if creates else str((await user.create_task("job", {"gate": gate}))["taskId"])
    session = client_of(version=version) if version else None
    if session is not None and version == LEGACY:
        await session.initialize(LEGACY)
    client = client_of(seconds=2, version=version, like=session if version == LEGACY else None)
    async with opens(client, task_id) as request:
        messages = await request.end()
        assert has_ended(messages), messages
        fleet.open(gate)
    assert SECRET_TEXT not in str(messages)
    if not creates:
        assert SECRET_TEXT in str(await user.task_result(task_id))


async def test_a_stream_of_a_token_that_lasts_brings_the_result(
    client_of: ClientOf, fleet: Deployment, gate: str
) -> None:
    user = client_of()
    task_id = str((await user.create_task("job", {"gate": gate}))["taskId"])
    async with listening(client_of(seconds=3), task_id) as short, listening(client_of(), task_id) as long:
        assert is_closed(await short.end())
        fleet.open(gate)
        await long.until(lambda message: message.get("params", {}).get("status") == "completed")
        assert SECRET_TEXT in str(long.messages)


@asynccontextmanager
async def client_with(replica: Replica, token: str, version: str | None = None) -> AsyncIterator[DraftClient]:
    """Provide a client of one replica, with a session if a version is given."""
    async with DraftClient([replica.url], token=token, seconds=SECONDS) as client:
        if version is not None:
            client.transport.headers["MCP-Protocol-Version"] = version
            await client.initialize(version)
        yield client


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


async def test_streams_and_waits_end_when_the_key_of_their_token_has_left_the_set_of_the_provider(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    stays, leaves = SigningKey("stays"), SigningKey("leaves")
    provider.publish(stays, leaves)
    environ = {
        "GATEWAY_TOOLS": "tests.calls.authority.tools",
        "GATEWAY_AUDIENCE": PROVIDERS_AUDIENCE,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWKS_URL": provider.url,
        "GATEWAY_JWT_ISSUER": ISSUER,
        "TEST_DIRECTORY": str(tmp_path),
    }
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        (replica,) = fleet.replicas
        tokens = {key: key.token(scope="admin") for key in (stays, leaves)}
        lists = {"toolsListChanged": True}
        call = call_params("greet")
        async with (
            client_with(replica, tokens[stays], LEGACY) as lasting,
            client_with(replica, tokens[leaves], LEGACY) as passing,
            client_with(replica, tokens[stays]) as lasting_listener,
            client_with(replica, tokens[leaves]) as passing_listener,
            under_way(lasting, "tools/call", call) as lasting_call,
            under_way(passing, "tools/call", call) as passing_call,
            listening(lasting_listener, **lists) as lasting_stream,
            listening(passing_listener, **lists) as passing_stream,
        ):
            for request in (lasting_call, passing_call):
                await asked(request)
            for stream in (lasting_stream, passing_stream):
                await stream.hear("notifications/subscriptions/acknowledged")
            comes = SigningKey("comes")
            provider.publish(stays, comes)
            token = comes.token(scope="admin")  # an unknown key id: the replica reads the set again
            assert post(replica, raw_request("tools/list"), token=token).status == 200
            assert is_closed(await passing_stream.end())
            result = await result_of(passing_call)
            assert result["isError"]
            assert "call again" in text_of(result)
            assert not any("result" in message for message in lasting_stream.messages + lasting_call.messages)
            await lasting.respond((await asked(lasting_call))["id"], {"error": {"code": -1, "message": "no"}})
            assert "call again" not in text_of(await result_of(lasting_call))


TOOLS = """
from gateway import Context, resource
from tests.wires.draft.tools import Name

@tool({scopes} task="optional")
async def job(ctx: Context) -> str:
    "Ask."
    return (await ctx.elicit("who", "Who are you?", Name)).name

@resource("news://all", {scopes} announces_changes=True)
async def news() -> str:
    "Tell."
    return "{edit}"
"""


RELOADING = "reloading"


async def test_streams_and_waits_end_when_what_they_reach_asks_for_a_scope_that_their_token_lacks(
    redis: Server, tmp_path: Path
) -> None:
    author = Author(tmp_path)
    author.edit("say", more=TOOLS.format(scopes="", edit=1))
    environ = {
        "GATEWAY_TOOLS": "edited",
        "GATEWAY_AUDIENCE": RELOADING,  # its keys are not those of others at this store
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_REDIS_URL": redis.url,
        "GATEWAY_TASK_PARTITIONS": "2",
        "TEST_DIRECTORY": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)]),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    fleet = Fleet(tmp_path, environ, names=())
    replica = Reloading("r1", fleet.environ, tmp_path / "r1.log", "--reload")
    fleet.replicas = [replica]
    scoped, plain = (mint(SECRET, "reloading", RELOADING, scopes=scopes) for scopes in (("admin",), ()))
    with fleet:
        async with (
            client_with(replica, plain) as user,
            waiting(replica, plain, user) as passing,
            waiting(replica, scoped, user) as lasting,
        ):
            author.edit("say", more=TOOLS.format(scopes="", edit=2))
            replica.wait_reloads(1)
            assert not any("result" in message for request in (*passing, *lasting) for message in request.messages)
            author.edit("say", more=TOOLS.format(scopes='scopes=["admin"],', edit=3))
            replica.wait_reloads(2)
            call, *streams = passing
            for stream in streams:
                assert is_closed(await stream.end())
            assert "call again" in text_of(await result_of(call))
            assert not any("result" in message for request in lasting for message in request.messages)


@asynccontextmanager
async def waiting(replica: Replica, token: str, user: DraftClient) -> AsyncIterator[tuple[UnderWay, ...]]:
    """Provide a call that waits for an answer, a stream for a task of the user, and one for a resource."""
    task = await user.create_task("job")
    async with (
        client_with(replica, token, LEGACY) as caller,
        client_with(replica, token) as listener,
        client_with(replica, token) as reader,
        under_way(caller, "tools/call", call_params("job")) as call,
        listening(listener, task["taskId"]) as tasks,
        listening(reader, resourceSubscriptions=["news://all"]) as news,
    ):
        await asked(call)
        for stream in (tasks, news):
            await stream.hear("notifications/subscriptions/acknowledged")
        yield call, tasks, news
