"""The draft wire with a session and without one: who chooses it, what is declared, and which sessions are found."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import msgspec
import pytest

from gateway.protocol.versions import negotiate
from gateway.sealing.binding import session_binding
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.sealing.session import MAX_SESSION_CHARS, Session, seal_session
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.messages import CAPABILITIES, VERSION, accept
from tests.wires.draft.transport import RpcError
from tests.wires.draft.written import call, say, text_of

SESSION = "Mcp-Session-Id"
BEGINNING = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ASKED = {"form": accept(name="ada")}


def sealed(
    fleet: Deployment,
    principal: str,
    *,
    version: str = VERSION,
    seconds_left: float = 60,
    audience: str = AUDIENCE,
    key: str | None = None,
) -> str:
    """Return a session as a replica of the fleet would seal it."""
    sealer = Sealer(KeyRing.parse(key or fleet.environ["GATEWAY_SEAL_KEYS"]), os.urandom)
    session = Session(version, frozenset(), os.urandom(16), time.time() + seconds_left)
    return seal_session(sealer, session, aad=session_binding(audience, Principal("", principal, "")))


async def test_a_header_alone_chooses_the_draft_wire(fleet: Deployment, user: DraftClient, name: str) -> None:
    listed = await user.send("tools/list")
    called = await user.send("tools/call", call("say", call=name, text="hello"))
    assert {listed.url, called.url} == set(fleet.urls)
    (tool,) = [tool for tool in listed.result["tools"] if tool["name"] == "say"]
    assert tool["execution"] == {"taskSupport": "optional"}
    assert text_of(called.result) == "hello"
    assert "resultType" not in listed.result | called.result

    user.transport.headers["MCP-Protocol-Version"] = "1999-01-01"
    with pytest.raises(RpcError) as refused:
        await user.send("tools/list")
    assert refused.value.code == -32022
    assert refused.value.data["requested"] == "1999-01-01"
    assert "2026-07-28" in refused.value.data["supported"]
    assert VERSION not in refused.value.data["supported"]


async def test_initialize_opens_a_session_that_any_replica_reads(
    fleet: Deployment, user: DraftClient, client_of: ClientOf, name: str
) -> None:
    result = await user.initialize()
    assert result["protocolVersion"] == VERSION
    assert result["serverInfo"]["name"] == "sealed-gateway"
    assert {"tools", "prompts", "resources", "tasks"} <= set(result["capabilities"])
    assert user.session_id is not None
    assert user.session_id.isascii()
    assert len(user.session_id) <= MAX_SESSION_CHARS
    for url in fleet.urls:
        other = client_of(name, urls=[url])
        other.transport.headers[SESSION] = user.session_id
        assert await other.request("ping") == {}

    answered = await user.send("initialize", BEGINNING | {"protocolVersion": "1999-01-01"})
    assert answered.result["protocolVersion"] == negotiate("1999-01-01")


async def test_the_capability_for_tasks_is_declared(user: DraftClient, releases: Deployment, redis: Server) -> None:
    tasks = (await user.initialize())["capabilities"]["tasks"]
    assert (tasks["list"], tasks["cancel"], tasks["requests"]) == ({}, {}, {"tools": {"call": {}}})
    async with releases.client("ada") as elsewhere:
        assert "tasks" not in (await elsewhere.initialize())["capabilities"]

    anonymous = Client(make_app("tests.wires.draft.tools", redis_url=redis.url))
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": BEGINNING | {"protocolVersion": VERSION}}
    answer = await anonymous.send([msgspec.json.encode(message)], [HOST, (b"content-type", b"application/json")])
    tasks = answer.result["capabilities"]["tasks"]
    assert "list" not in tasks
    assert tasks["cancel"] == {}


async def test_without_a_session_a_client_is_taken_to_answer_forms_sampling_and_roots(
    user: DraftClient, name: str
) -> None:
    for kind, method in {
        "form": "elicitation/create",
        "sampling": "sampling/createMessage",
        "roots": "roots/list",
    }.items():
        asked = await user.request("tools/call", call("ask", call=name, kinds=[kind]))
        assert asked["inputRequests"][kind]["method"] == method
    refused = await user.request("tools/call", call("ask", call=name, kinds=["url"]))
    assert refused["isError"] is True
    assert "elicitation.url" in text_of(refused)
    assert not {"inputRequests", "requestState"} & set(refused)


async def test_a_session_says_what_the_client_can_answer(client_of: ClientOf, name: str) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    silent = client_of(name, capabilities={})
    await silent.initialize()
    refused = await silent.request("tools/call", wanted)
    assert refused["isError"] is True
    assert "This needs a client that supports elicitation.form" in text_of(refused)
    assert not {"inputRequests", "requestState"} & set(refused)

    talking = client_of(name, capabilities={"elicitation": {}})
    await talking.initialize()
    assert set((await talking.request("tools/call", wanted))["inputRequests"]) == {"form"}
    assert text_of(await talking.call_tool(**wanted, answers=ASKED)) == "form: ada"
    assert (await talking.request("tools/call", call("ask", call=name, kinds=["url"])))["isError"] is True


async def test_a_version_header_that_differs_from_the_session_is_refused(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    await user.initialize()
    draft = user.session_id or ""
    for version, session_id in {"2025-11-25": draft, VERSION: sealed(fleet, name, version="2025-11-25")}.items():
        user.transport.headers |= {SESSION: session_id, "MCP-Protocol-Version": version}
        with pytest.raises(RpcError) as refused:
            await user.request("tools/call", call("say", call=name))
        assert refused.value.status == 400
    assert fleet.lines(name) == []

    del user.transport.headers["MCP-Protocol-Version"]
    user.transport.headers[SESSION] = draft
    await user.request("tools/call", call("say", call=name))
    assert len(fleet.lines(name)) == 1


async def test_a_session_that_does_not_open_is_not_found(
    fleet: Deployment, user: DraftClient, client_of: ClientOf, name: str
) -> None:
    await user.initialize()
    good = user.session_id or ""
    middle = len(good) // 2
    other = client_of(f"{name}-other")
    await other.initialize()
    refusals = set()
    for bad in (
        good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :],
        good[:-1],
        good + "A" * MAX_SESSION_CHARS,
        "nothing",
        "",
        other.session_id,
        sealed(fleet, name, seconds_left=-1),
        sealed(fleet, name, audience="elsewhere"),
        sealed(fleet, name, key=new_key()),
    ):
        user.transport.headers[SESSION] = bad or ""
        with pytest.raises(RpcError) as refused:
            await user.request("tools/call", call("say", call=name))
        assert refused.value.status == 404, bad
        refusals.add((refused.value.code, refused.value.message))
    assert [code for code, _ in refusals] == [-32001], "the reason shows"
    assert fleet.lines(name) == []

    user.transport.headers[SESSION] = sealed(fleet, name)
    await user.request("ping")
    user.transport.headers[SESSION] = sealed(fleet, name, seconds_left=-1)
    await user.initialize()
    await user.request("ping")


async def test_a_session_survives_the_restart_of_the_whole_fleet(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    await user.initialize()
    asked = await user.request("tools/call", wanted)
    task = await user.create_task("ask", {"call": f"{name}-task", "kinds": ["form"]})
    await asyncio.to_thread(fleet.restart)

    answers = {"inputResponses": {"form": {"result": ASKED["form"]}}, "requestState": asked["requestState"]}
    assert text_of(await user.request("tools/call", wanted | answers)) == "form: ada"
    finished = await user.finish_task(task["taskId"], ASKED)
    assert text_of(finished.result or {}) == "form: ada"
    assert set(user.urls_of()) == set(fleet.urls)
    assert len(user.sent("initialize")) == 1


async def test_a_session_survives_the_loss_of_the_replica_that_opened_it(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    first, second = fleet.replicas
    opener = client_of(name, urls=[first.url], capabilities=CAPABILITIES)
    await opener.initialize()
    first.kill()
    try:
        survivor = client_of(name, urls=[second.url])
        survivor.transport.headers[SESSION] = opener.session_id or ""
        result = await survivor.call_tool("ask", {"call": name, "kinds": ["url"]}, answers={"url": accept()})
        assert result["isError"] is False
    finally:
        first.restart()


@pytest.mark.parametrize("in_a_session", [False, True])
async def test_a_malformed_request_with_an_id_is_refused_as_every_request_of_this_wire(
    user: DraftClient, in_a_session: bool
) -> None:
    if in_a_session:
        await user.initialize()
        del user.transport.headers["MCP-Protocol-Version"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    malformed: list[dict[str, Any]] = [
        request | {"params": []},
        request | {"jsonrpc": "1.0"},
        {"jsonrpc": "2.0", "id": 1},
    ]
    for body in malformed:
        said = await say(user, body)
        assert (said.status, said.response["id"], said.response["error"]["code"]) == (200, 1, -32600)
    without_id: list[dict[str, Any]] = [request | {"id": None}, {"jsonrpc": "1.0", "method": "tools/call"}]
    for body in without_id:
        said = await say(user, body)
        assert (said.status, said.response["id"], said.response["error"]["code"]) == (400, None, -32600)
