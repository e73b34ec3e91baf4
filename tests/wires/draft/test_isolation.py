"""Nobody reaches what is somebody else's, and no sealed value is good for anything but its own purpose."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from gateway.auth.tokens import mint
from gateway.sealing.binding import request_id_binding
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.sealing.request_id import TaskAddress, seal_request_id
from loadtest.cluster import new_key
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, post_bytes
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, SECRET, Deployment
from tests.wires.draft.first_form import (
    ADA,
    BOB,
    NOT_FOUND,
    ClientOf,
    call,
    leave,
    poll,
    refusal,
    status_of,
    timeless,
    wish,
    without_streams,
)
from tests.wires.draft.messages import FIRST_FORM_RELATED_TASK, RELATED_TASK, VERSION, call_params
from tests.wires.draft.transport import RpcError
from tests.wires.draft.under_way import under_way
from tests.wires.legacy.speaking import undelivered

pytestmark = pytest.mark.slow

REJECTED: Final = "gateway_response_rejections_total"


def altered(token: str) -> str:
    """Return a sealed value with one bit of it changed."""
    return token[:-6] + ("A" if token[-6] != "A" else "B") + token[-5:]


def rejections(fleet: Deployment, **labels: str) -> float:
    """Count the responses that replicas did not accept."""
    return sum(replica.metric(REJECTED, **labels) for replica in fleet.replicas)


def about(task_id: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Return every request that a task's owner can make about it, by what it is."""
    task = {"taskId": task_id}
    return {
        "tasks/get": task,
        "tasks/result": {**task, **more},
        "tasks/cancel": task,
        "tasks/delete": task,
        "tasks/input_response": {"inputResponses": {"form": ADA}, "_meta": {RELATED_TASK: task}},
    }


def ask(fleet: Deployment, principal: str, method: str, params: Mapping[str, Any], turn: int = 0) -> Answer:
    """Send a request of a user's, and return the answer as it came."""
    headers = {
        "authorization": "Bearer " + mint(SECRET, principal, AUDIENCE),
        "content-type": "application/json",
        "mcp-protocol-version": VERSION,
    }
    body = httpx.Request("POST", "http://x", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return post_bytes(fleet.replicas[turn % 2], body.read(), headers)


def seen_by_client(answer: Answer) -> tuple[Any, ...]:
    """Return all that a client sees of an answer, but for when it was given and by whom."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"date", "x-gateway-replica"}}
    return answer.status, headers, answer.body


async def in_every_state(user: DraftClient, fleet: Deployment, name: str, gate: str) -> dict[str, str]:
    """Create tasks of both forms in every state that lasts; return their ids."""
    ids = {}
    for form in ("ttl", "first"):
        for status, tool, arguments in (
            ("working", "wait", {"gate": gate}),
            ("input_required", "ask", {"call": name, "kinds": ["form"]}),
            ("completed", "say", {"call": name}),
            ("cancelled", "ask", {"call": name, "kinds": ["form"]}),
        ):
            task_id = f"{name}-{status}"
            if form == "first":
                await leave(user, tool, task_id, **arguments)
            else:
                task_id = (await user.create_task(tool, arguments))["taskId"]
            if status == "cancelled":
                await user.cancel_task(task_id)
            await poll(user, task_id, status)
            ids[f"{form} {status}"] = task_id
    return ids


async def test_tasks_of_others_look_like_unknown_ones(
    user: DraftClient, fleet: Deployment, name: str, gate: str
) -> None:
    ids = await in_every_state(user, fleet, name, gate)
    before = {kind: timeless(await user.get_task(task_id)) for kind, task_id in ids.items()}
    turns = itertools.count()
    for task_id in ids.values():
        for more in ({}, {"lastSeqNr": 1}):
            for (method, foreign), unknown in zip(
                about(task_id, **more).items(), about("never", **more).values(), strict=True
            ):
                turn = next(turns)
                refused = [ask(fleet, "eve", method, params, turn) for params in (foreign, unknown)]
                assert seen_by_client(refused[0]) == seen_by_client(refused[1])
                assert refused[0].error == (200, -32602)
                assert refused[0].message["error"] == {"code": -32602, "message": NOT_FOUND}
    assert ask(fleet, "eve", "tasks/list", {}).result == {"tasks": []}
    assert {kind: timeless(await user.get_task(task_id)) for kind, task_id in ids.items()} == before
    fleet.open(gate)
    for form in ("ttl", "first"):
        await user.cancel_task(ids[f"{form} input_required"])


async def test_a_question_is_answered_by_its_own_user_alone(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str
) -> None:
    """All other messages change nothing and are counted. They get 202, or an error if the call may still wait."""
    sealer = Sealer(KeyRing.parse(fleet.environ["GATEWAY_SEAL_KEYS"]), os.urandom)
    other_sealer = Sealer(KeyRing.parse(new_key()), os.urandom)
    aad = request_id_binding(AUDIENCE, Principal("", name, ""))
    async with call(user, "ask", name, call=name, kinds=["form"]) as request:
        question = (await request.hear("elicitation/create"))["id"]
        expired = seal_request_id(sealer, TaskAddress(name, "form", 1.0), aad=aad)
        forged = seal_request_id(other_sealer, TaskAddress(name, "form", 1e11), aad=aad)
        wrong: list[tuple[Any, Any, str]] = [
            (client_of("eve"), question, "not_authentic"),
            (user, altered(question), "not_authentic"),
            (user, expired, "expired"),
            (user, forged, "unknown_key"),
            (user, "x" * 2000, "too_large"),
            (user, "", "malformed"),
            (user, "1", "malformed"),
            (user, 1, "malformed"),
        ]
        for sender, response_id, reason in wrong:
            before, of_reason = rejections(fleet), rejections(fleet, reason=reason)
            with undelivered() if reason == "unknown_key" else contextlib.nullcontext():
                await sender.respond(response_id, ADA)
            assert rejections(fleet) == before + 1, (response_id, reason)
            assert rejections(fleet, reason=reason) == of_reason + 1, (response_id, reason)
            assert await status_of(user, name) == "input_required"
        before = rejections(fleet)
        unfit: list[dict[str, Any]] = [{"result": {"action": "accept", "content": {"name": 7}}}, {"result": {}}]
        asked = [question]
        for said in unfit:  # it is the user's own, so the task asks again
            await user.respond(asked[-1], said)
            again = await request.until(
                lambda message: message.get("method") == "elicitation/create" and message["id"] not in asked
            )
            asked.append(again["id"])
        await user.respond(asked[-1], ADA)
        response = await request.response()
        assert rejections(fleet) == before
        for old in asked:
            await user.respond(old, BOB)
        assert rejections(fleet) == before + len(asked)
    assert response["result"]["content"][0]["text"] == "form: Ada"
    assert (await user.task_result(name)).result == response["result"]


async def test_segments_are_their_owners_alone(user: DraftClient, fleet: Deployment, gate: str) -> None:
    params = call_params("write", {"gate": gate}, {"responseModes": ["streaming"]})

    def compare(task_id: str) -> None:
        for turn, last in enumerate((1, 2, 3, 10**6)):
            foreign = ask(fleet, "eve", "tasks/result", {"taskId": task_id, "lastSeqNr": last}, turn)
            unknown = ask(fleet, "eve", "tasks/result", {"taskId": "never", "lastSeqNr": last}, turn)
            assert seen_by_client(foreign) == seen_by_client(unknown)
            assert foreign.message["error"]["message"] == NOT_FOUND

    async with under_way(user, "tools/call", params) as request:
        first = await request.until(lambda message: bool(message.get("result", {}).get("partial-content")))
        task_id = first["result"]["_meta"][RELATED_TASK]["taskId"]
        compare(task_id)
        fleet.open(gate)
        await request.end()
    compare(task_id)
    rest = (await user.task_result(task_id, last_seq_nr=1)).result["partial-content"]
    assert [(block["seqNr"], block["text"]) for block in rest] == [(2, "two"), (3, "three")]


async def test_a_token_that_lost_a_scope_reaches_no_task(client_of: ClientOf, fleet: Deployment, name: str) -> None:
    user = client_of(name, scopes=["weather"])
    poor = client_of(name, scopes=["other"])
    created = (await user.create_task("guarded", {}))["taskId"]
    async with call(user, "guarded", name) as request:
        question = await request.hear("elicitation/create")
        await poll(user, created, "input_required")
        for task_id, key in ((created, RELATED_TASK), (name, FIRST_FORM_RELATED_TASK)):
            for turn, (method, params) in enumerate(about(task_id, lastSeqNr=1).items()):
                refused = ask(fleet, name, method, params, turn)
                assert refused.status == 403
                assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
            related = {"inputResponses": {"name": ADA}, "_meta": {key: {"taskId": task_id}}}
            assert ask(fleet, name, "tasks/input_response", related).status == 403
        assert ask(fleet, name, "tools/call", wish("guarded", "another")).status == 403
        assert await poor.all_tasks() == []
        with pytest.raises(RpcError) as caught:
            await poor.respond(question["id"], ADA)
        assert caught.value.status == 403
        assert {task["taskId"]: task["status"] for task in await user.all_tasks()} == {
            created: "input_required",
            name: "input_required",
        }
        await user.respond(question["id"], ADA)
        assert (await request.response())["result"]["content"][0]["text"] == "Ada"
    await user.cancel_task(created)


async def test_a_state_a_session_a_cursor_and_a_request_id_do_not_stand_for_each_other(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str
) -> None:
    quiet = without_streams(client_of(name))
    for start in range(0, 102, 17):
        ids = [f"{name}-{number}" for number in range(start, start + 17)]
        await asyncio.gather(*[quiet.request("tools/call", wish("say", i, {"call": name})) for i in ids])
    asking = client_of(name)
    await asking.initialize()
    called = call_params("ask", {"call": name, "kinds": ["form"]})
    async with call(user, "ask", name, call=name, kinds=["form"]) as request:
        sealed = {
            "state": (await user.request("tools/call", called))["requestState"],
            "session": str(asking.session_id),
            "cursor": (await user.list_tasks())["nextCursor"],
            "request id": (await request.hear("elicitation/create"))["id"],
        }
        assert (await user.request("tools/call", {**called, "requestState": sealed["state"]}))["requestState"]
        assert (await user.list_tasks(sealed["cursor"]))["tasks"]
        for kind, own in sealed.items():
            wrong = [altered(own), *(token for other, token in sealed.items() if other != kind)]
            told = [await presented(kind, token, user, client_of(name), called) for token in wrong]
            assert all(one == told[0] for one in told), kind
        before = rejections(fleet)
        for other in ("state", "session", "cursor"):
            await user.respond(sealed[other], ADA)
        assert rejections(fleet, reason="not_authentic") >= 3
        assert rejections(fleet) == before + 3
        assert await status_of(user, name) == "input_required"
        await user.respond(sealed["request id"], ADA)
        await request.response()


async def presented(
    kind: str, token: str, user: DraftClient, other: DraftClient, called: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Present a token as something else than it is, and return how it is refused."""
    if kind == "state":
        error = await refusal(user.request("tools/call", {**called, "requestState": token}))
        return error.message, error.data
    if kind == "cursor":
        error = await refusal(user.list_tasks(token))
        return error.message, error.data
    if kind == "request id":
        await user.respond(token, ADA)
        return ("accepted",)
    other.transport.headers["Mcp-Session-Id"] = token
    async with other.transport.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}) as exchange:
        return exchange.status, [message async for message in exchange.messages]


async def test_without_identity_all_callers_are_one(redis: Server, tmp_path: Path, gate: str, name: str) -> None:
    environ = {
        "GATEWAY_TOOLS": "tests.wires.draft.tools",
        "GATEWAY_AUDIENCE": "nobody",
        "GATEWAY_REDIS_URL": redis.url,
        "TEST_DIRECTORY": str(tmp_path),
    }
    with Fleet(tmp_path, environ) as fleet:
        fleet.add_worker("w1")
        one, other = (DraftClient([replica.url], longest_poll_seconds=0.02) for replica in fleet.replicas)
        async with one, other:
            capabilities = (await other.initialize())["capabilities"]["tasks"]
            assert "list" not in capabilities
            assert "cancel" in capabilities
            await leave(one, "ask", name, call=name, kinds=["form"])
            await poll(other, name, "input_required")
            assert [task["taskId"] for task in await other.all_tasks()] == [name]
            await other.answer_task(name, {"form": ADA})
            await poll(one, name, "completed")
            await leave(other, "wait", "stopped", gate=gate)
            await one.cancel_task("stopped")
            await other.delete_task("stopped")
