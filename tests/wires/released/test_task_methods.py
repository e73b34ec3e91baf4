"""The extension's three methods: what they return, what they refuse, and that a task belongs only to its owner."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.calls.authority import Authority
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.errors import InsufficientScope, InvalidParams
from gateway.observability.audit import AuditLog
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Request
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.requests import McpRequest
from gateway.sealing.binding import Purpose, associated_data
from gateway.wires.methods import Incoming
from gateway.wires.released.tasks import ReleasedTasks
from gateway.wires.replies import Answered
from loadtest.cluster import wait_until
from tests.authorities import caller
from tests.integration.raw import Answer
from tests.storage.servers import Server
from tests.wires.released.conftest import NO_CLIENT, TASKS, World
from tests.wires.released.test_task_calls import texts

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
UNKNOWN = "t_" + "A" * 43


def name(value: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": value}}


async def test_a_waiting_task_lists_its_questions_and_continues_with_the_answers(world: World) -> None:
    task_id = await world.started("two_questions")
    waiting = await world.get(task_id)
    assert waiting["status"] == "input_required"
    assert list(waiting["inputRequests"]) == ["a", "b"]
    assert waiting["inputRequests"]["a"]["method"] == "elicitation/create"
    assert waiting["inputRequests"]["a"]["params"]["message"] == "A?"
    acknowledged = (await world.update(task_id, {"a": name("Ada"), "never asked": 7})).result
    assert {key for key in acknowledged if key != "_meta"} == {"resultType"}
    assert acknowledged["resultType"] == "complete"
    assert await world.work() == []
    assert list((await world.get(task_id))["inputRequests"]) == ["b"]
    await world.update(task_id, {"a": name("too late"), "b": name("Bob")})
    assert (await world.get(task_id))["status"] == "working"
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["Ada and Bob"]


async def test_an_answer_that_is_too_large_to_be_kept_is_refused_and_nothing_is_recorded(server: Server) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, task_max_result_bytes=1024)
    task_id = await world.started("two_questions")
    answer = await world.update(task_id, {"a": name("Ada"), "b": name("B" * 1024)})
    assert answer.error == (400, -32602)
    message = answer.message["error"]["message"]
    assert re.fullmatch(r"The answer to 'b' is too large: \d+ bytes; the limit is 1024", message)
    assert list((await world.get(task_id))["inputRequests"]) == ["a", "b"]
    await world.close()


async def test_who_answers_and_who_cancels_is_noted_and_who_polls_is_not(server: Server, tmp_path: Path) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, audit_log=str(tmp_path / "audit"), log_format="json")
    task_id = await world.started("two_questions")
    await world.update(task_id, {"a": name("hunter2")})
    await world.get(task_id)
    await world.update(task_id, {"b": name("hunter2")})
    await world.request("tasks/cancel", {"taskId": task_id})
    await world.request("tasks/cancel", {"taskId": task_id}, sub="eve")
    await world.close()
    audit = tmp_path / "audit"
    await asyncio.to_thread(wait_until, lambda: audit.read_text().count('"ada"') >= 3, "all lines of the owner")
    await asyncio.to_thread(wait_until, lambda: '"eve"' in audit.read_text(), "the line of the other")
    text = audit.read_text()
    # Two replicas wrote them, each when it came to it.
    lines = sorted(map(json.loads, text.splitlines()), key=itemgetter("time"))
    noted = [line for line in lines if line["audit"] == "task"]
    assert [(line["method"], line["phase"], line["subject"]) for line in noted] == [
        ("tasks/update", "waiting", "ada"),
        ("tasks/update", "queued", "ada"),
        ("tasks/cancel", "cancelled", "ada"),
    ]
    assert {(line["target"], line["task"]) for line in noted} == {("two_questions", task_id)}
    assert [line["subject"] for line in lines if line["audit"] == "refused"] == ["eve"]
    assert "tasks/get" not in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "wrong", [None, 7, [], {}, {"action": "accept"}, {"action": "accept", "content": {"name": 7}}, {"action": "?"}]
)
async def test_an_answer_that_does_not_fit_is_refused_and_nothing_is_recorded(world: World, wrong: Any) -> None:
    task_id = await world.started("two_questions")
    answer = await world.update(task_id, {"a": name("Ada"), "b": wrong})
    assert answer.error == (400, -32602)
    assert "'b'" in answer.message["error"]["message"]
    assert list((await world.get(task_id))["inputRequests"]) == ["a", "b"]


async def test_a_question_that_must_be_asked_again_has_another_name_on_the_wire(world: World) -> None:
    """Its form allows the answer, the author's model does not: that shows only when the tool reads it."""
    task_id = await world.started("picky")
    for key in ("who", "who~2"):
        assert list((await world.get(task_id))["inputRequests"]) == [key]
        await world.update(task_id, {key: name("Bob")})
        await world.work()
    assert list((await world.get(task_id))["inputRequests"]) == ["who~3"]
    await world.update(task_id, {"who": name("Eve")})
    assert list((await world.get(task_id))["inputRequests"]) == ["who~3"]
    await world.update(task_id, {"who~3": name("Ada")})
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["Ada"]


async def test_to_say_no_is_an_answer(world: World) -> None:
    task_id = await world.started("picky")
    await world.update(task_id, {"who": {"action": "decline"}})
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["nobody"]


async def test_sampled_text_is_an_answer(world: World) -> None:
    can = {"sampling": {}, **TASKS}
    task_id = await world.started("sampler", can=can)
    assert (await world.update(task_id, {"s": {"model": "m"}})).error == (400, -32602)
    said = {"role": "assistant", "content": {"type": "text", "text": "tea"}, "model": "m"}
    await world.update(task_id, {"s": said})
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["tea"]


async def test_progress_is_told_in_words_and_in_numbers(world: World) -> None:
    task_id = await world.start("progressing")
    (claim,) = await world.queue.claim(0, 1, wait_ms=1)
    # The leg as the worker runs it, seen before its end is stored.
    finish, world.queue.finish = world.queue.finish, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        await world.leg(claim)
    told = await world.get(task_id)
    assert (told["status"], told["statusMessage"]) == ("working", "Writing (2 of 5)")
    assert told["_meta"]["dev.sealedgateway/progress"] == {"progress": 2, "total": 5}
    await finish(claim, result={"content": [], "isError": False})
    assert "statusMessage" not in await world.get(task_id)


async def test_a_cancelled_task_is_cancelled_for_good(world: World) -> None:
    task_id = await world.start("work")
    for _ in range(2):
        result = (await world.request("tasks/cancel", {"taskId": task_id})).result
        assert {key: result[key] for key in result if key != "_meta"} == {"resultType": "complete"}
    assert (await world.get(task_id))["status"] == "cancelled"
    assert await world.work() == []
    assert (await world.update(task_id, {"who": name("Ada")})).result["resultType"] == "complete"
    assert (await world.get(task_id))["status"] == "cancelled"


async def test_cancelling_a_task_that_is_done_changes_nothing(world: World) -> None:
    task_id = await world.started("work")
    before = await world.get(task_id)
    assert (await world.request("tasks/cancel", {"taskId": task_id})).status == 200
    after = await world.get(task_id)
    assert {**after, "pollIntervalMs": 0} == {**before, "pollIntervalMs": 0}


@pytest.mark.parametrize("method", METHODS)
async def test_a_client_that_did_not_declare_the_extension_is_refused_for_any_id(world: World, method: str) -> None:
    own = await world.start("work")
    for task_id in (own, UNKNOWN, 7):
        answer = await world.request(method, {"taskId": task_id}, can={})
        assert answer.error == (400, -32021)
        assert answer.message["error"]["data"]["requiredCapabilities"] == TASKS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task_id", [UNKNOWN, "", "x" * 5000, "../..", "t_*", 7, None])
async def test_an_id_without_a_task_is_refused(world: World, method: str, task_id: Any) -> None:
    headers = {"mcp-name": "=?base64?Li4vLi4=?="} if task_id == "../.." else {}
    assert (await world.request(method, {"taskId": task_id}, headers=headers)).error == (400, -32602)


@pytest.mark.parametrize("method", METHODS)
async def test_the_name_header_repeats_the_id(world: World, method: str) -> None:
    task_id = await world.start("work")
    assert (await world.request(method, {"taskId": task_id}, headers={"mcp-name": UNKNOWN})).error == (400, -32020)


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/delete"])
async def test_methods_of_older_forms_do_not_exist(world: World, method: str) -> None:
    assert (await world.request(method, {"taskId": UNKNOWN})).error == (404, -32601)


# A second principal


def told_of(answer: Answer) -> tuple[Any, ...]:
    """All that a client can see of a refusal, the time it took aside."""
    headers = {name: value for name, value in answer.headers.items() if name != "x-gateway-replica"}
    return answer.status, answer.message, headers


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("state", ["queued", "waiting", "done", "cancelled"])
async def test_an_id_that_somebody_else_learned_is_an_unknown_one_to_them(
    world: World, method: str, state: str
) -> None:
    task_id = await world.start("two_questions")
    if state in ("waiting", "done"):
        await world.work()
    if state == "done":
        await world.update(task_id, {"a": name("A"), "b": name("B")})
        await world.work()
    if state == "cancelled":
        await world.request("tasks/cancel", {"taskId": task_id})
    before = await world.get(task_id)
    responses = {"inputResponses": {"a": name("Eve"), "b": {"action": "nonsense"}}}
    foreign = await world.request(method, {"taskId": task_id, **responses}, sub="eve")
    unknown = await world.request(method, {"taskId": UNKNOWN, **responses}, sub="eve")
    assert told_of(foreign) == told_of(unknown)
    assert foreign.error == (400, -32602)
    assert foreign.message["error"]["message"] == "Task not found"
    after = await world.get(task_id)
    assert {**after, "pollIntervalMs": 0} == {**before, "pollIntervalMs": 0}


async def test_whoever_reads_the_store_cannot_confirm_a_guess_of_whose_task_it_is(world: World, server: Server) -> None:
    await world.start("guarded", scopes=("secret",))
    (claim,) = await world.queue.claim(0, 1, wait_ms=1)
    guess = hashlib.sha256(associated_data(Purpose.OWNER, "tests", claim.principal)).hexdigest()
    with redis.Redis.from_url(server.url) as client:
        names = list(client.scan_iter(count=1000))
    assert any(claim.owner.encode() in name for name in names)
    assert [name for name in names if guess.encode() in name] == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_token_that_lost_a_scope_reaches_no_task_of_a_tool_that_asks_for_it(world: World, method: str) -> None:
    task_id = await world.start("guarded", scopes=("secret",))
    access = TaskAccess(world.store, AuditLog(len, "r1", float, as_json=True))
    methods = world.next_app()._services.wires.dispatcher._released.methods
    follower: TaskFollower = object()  # type: ignore[assignment]  # these methods do not wait
    answer = ReleasedTasks(methods, access, ResultWriter({}), follower).handlers[method]
    request = McpRequest(
        Request(1, method, {"taskId": task_id, "inputResponses": {}}),
        meta={},
        capabilities=TASKS,
        log_level=None,
        progress_token=None,
    )

    def by(authority: Authority) -> Incoming:
        return Incoming(request, Headers(()), authority, NO_CLIENT)

    with pytest.raises(InsufficientScope):
        await answer(by(caller("ada")))
    with pytest.raises(InvalidParams, match="Task not found"):
        await answer(by(caller("eve")))
    assert await access.own([task_id], caller("ada"), world.registry) == ()
    refused = await world.request(method, {"taskId": task_id, "inputResponses": {}}, scopes=("other",))
    assert refused.status == 403
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    reply = await answer(by(caller("ada", "secret")))
    assert isinstance(reply, Answered)
    assert json.loads(reply.body)["result"]["resultType"] == "complete"
