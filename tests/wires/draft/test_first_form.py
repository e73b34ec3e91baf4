"""SEP-1686 "Tasks" in its first form, section by section, over two replicas and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from loadtest.cluster import wait_until
from tests.proposals.examples import assert_contains, example, fill
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.first_form import (
    ADA,
    BOB,
    INVALID_PARAMS,
    NOT_FOUND,
    ClientOf,
    call,
    in_session_of,
    leave,
    other_url,
    poll,
    poll_from_the_beginning,
    refusal,
    related,
    run,
    status_of,
    timeless,
    until_unknown,
    wish,
    without_streams,
)
from tests.wires.draft.messages import FIRST_FORM_RELATED_TASK, FIRST_FORM_TASK, RELATED_TASK, TERMINAL, call_params
from tests.wires.draft.transport import Message, RpcError
from tests.wires.draft.under_way import idle, joined_by, under_way, unreadable
from tests.wires.draft.written import say

pytestmark = pytest.mark.slow

EXAMPLE_ID: Final = "786512e2-9e0d-44bd-8f29-789f320fe840"
LIVE: Final = {EXAMPLE_ID: EXAMPLE_ID}
LIMITED: Final = -31003
DAY_MS: Final = 86_400_000
WRONG_IDS: Final[Sequence[Any]] = (7, True, None, {}, [], "", "x" * 129, "a b", " a", "a\n", "\x00", "é")
WRONG_KEEP_ALIVES: Final[Sequence[Any]] = (-1, "60000", True, [])
NEXT: Final[Mapping[str, frozenset[str]]] = {
    "submitted": TERMINAL | {"working", "input_required"},
    "working": TERMINAL | {"input_required"},
    "input_required": TERMINAL | {"working"},
}
"""Section 4.3: what may come after a status."""


async def as_written(user: DraftClient, message: Message | None) -> Message:
    """Send a request of an example, and return the whole response."""
    assert message is not None
    return (await say(user, message)).response


# 3. Protocol Messages


@pytest.mark.parametrize("in_a_session", [False, True])
async def test_creating_tasks(user: DraftClient, in_a_session: bool) -> None:
    if in_a_session:
        await user.initialize()
    written = example("tasks_create")["a request becomes a task"].request
    assert written is not None
    params = {**written["params"], "name": "weather", "arguments": {"city": "New York"}}
    async with under_way(user, "tools/call", params) as request:
        await request.created()
        task = await user.get_task(EXAMPLE_ID)
        assert (task["taskId"], task["keepAlive"]) == (EXAMPLE_ID, 60_000)
        response = await request.response()
    assert response["result"]["content"][0]["text"].startswith("Current weather in New York")
    assert await status_of(user, EXAMPLE_ID) == "completed"
    assert len(set(user.urls_of())) == 2


async def test_getting_tasks(fleet: Deployment, user: DraftClient) -> None:
    step = example("tasks_get")["the state of a task"]
    assert step.answer is not None
    with idle(fleet.worker("w1")):
        async with call(user, "say", EXAMPLE_ID, call="x") as request:
            await request.created()
            for _ in fleet.urls:
                answer = await as_written(user, step.request)
                assert_contains(answer, step.answer, live=LIVE)
                assert answer["result"]["status"] == "submitted"
                assert answer["result"]["keepAlive"] == 60_000
                assert 0 < answer["result"]["pollFrequency"] <= 10_000
                assert answer["result"]["_meta"] == related(EXAMPLE_ID)


async def test_retrieving_task_results(user: DraftClient) -> None:
    await run(user, "weather", EXAMPLE_ID, city="New York")
    step = example("tasks_result")["the result of a completed task"]
    assert step.answer is not None
    answers = [await as_written(user, step.request) for _ in range(3)]
    for answer in answers:
        assert_contains(answer, step.answer, live=LIVE)
        assert answer["result"]["content"] == step.answer["result"]["content"]
        assert answer == answers[0]


async def test_task_creation_notification(user: DraftClient, fleet: Deployment, name: str, gate: str) -> None:
    written = example("tasks_created_notification")["a task was created"].message
    async with call(user, "wait", name, gate=gate) as request:
        await request.created()
        assert (await user.get_task(name))["taskId"] == name
        assert user.urls_of()[-1] != request.url
        fleet.open(gate)
        messages = await request.end()
    assert messages[0] == fill(written, {EXAMPLE_ID: name})
    assert [message.get("method") for message in messages].count("notifications/tasks/created") == 1


async def test_listing_tasks(fleet: Deployment, user: DraftClient, client_of: ClientOf, name: str, gate: str) -> None:
    """The second of three pages has the last completed tasks and the first of those that have not ended."""
    quiet = without_streams(client_of(name))
    for ten in range(15):
        calls = [quiet.request("tools/call", wish("weather", f"{ten}-{n}", {"city": "Rome"})) for n in range(10)]
        await asyncio.gather(*calls)
    async with call(user, "wait", EXAMPLE_ID, gate=gate) as request:
        await request.created()
        await poll(user, EXAMPLE_ID, "working")
        with idle(fleet.worker("w1")):
            for number in range(60):
                await leave(user, "say", f"late-{number}", call=name)
            step = example("tasks_list")["a page of a list"]
            first = await user.list_tasks()
            live = {"optional-cursor-value": first["nextCursor"]}
            answer = await as_written(user, fill(step.request, live))
            assert_contains(answer, step.answer, live={EXAMPLE_ID: EXAMPLE_ID, "abc123-def456-ghi789": "14-0"})
            last = await user.list_tasks(answer["result"]["nextCursor"])
        fleet.open(gate)
        await request.end()
    pages = [first["tasks"], answer["result"]["tasks"], last["tasks"]]
    assert [len(page) for page in pages] == [100, 100, 11]
    assert "nextCursor" not in last
    assert len({task["taskId"] for page in pages for task in page}) == 211


async def test_deleting_tasks(fleet: Deployment, user: DraftClient, name: str, gate: str) -> None:
    step = example("tasks_delete")["a task is deleted"]
    async with call(user, "wait", EXAMPLE_ID, gate=gate) as request:
        await request.created()
        fleet.wait_for_lines(f"started-{gate}")
        answer = await as_written(user, step.request)
        assert_contains(answer, step.answer, live=LIVE)
        assert answer["result"] == {"_meta": related(EXAMPLE_ID)}
        told = (await request.response())["error"]["message"]
        assert told == "Failed to retrieve task: The task has expired or was deleted"
    fleet.wait_for_lines(f"cancelled-{gate}")
    await run(user, "weather", "ended", city="Rome")
    await leave(user, "ask", "waiting", call=name, kinds=["form"])
    await poll(user, "waiting", "input_required")
    for task_id in ("ended", "waiting"):
        await user.delete_task(task_id)
    assert await user.all_tasks() == []
    for task_id in (EXAMPLE_ID, "ended", "waiting"):
        for answered in (
            user.get_task(task_id),
            user.task_result(task_id),
            user.cancel_task(task_id),
            user.delete_task(task_id),
            user.answer_task(task_id, {"form": ADA}),
        ):
            assert (await refusal(answered)).message == NOT_FOUND
        again = await refusal(user.request("tools/call", wish("weather", task_id, {"city": "Rome"})))
        assert again.message == f"Task ID already exists: {task_id}"


# 4. Behavior Requirements


async def test_what_cannot_be_a_task_is_processed_normally(
    user: DraftClient, tmp_path: Path, name: str, fleet: Deployment
) -> None:
    meta = {"_meta": {FIRST_FORM_TASK: {"taskId": EXAMPLE_ID, "keepAlive": 60_000}}}
    for method, params, member in (
        ("tools/call", {"name": "plain", "arguments": {}}, "content"),
        ("prompts/get", {"name": "plain"}, "messages"),
        ("resources/read", {"uri": "plain://page"}, "contents"),
        ("tools/list", {}, "tools"),
    ):
        reply = await user.send(method, {**params, **meta})
        assert member in reply.result
        assert "_meta" not in reply.result
        assert reply.notices == []
        assert reply.headers["content-type"] == "application/json"
        assert (await refusal(user.get_task(EXAMPLE_ID))).message == NOT_FOUND
    with Deployment(tmp_path, None, own={"alone": {}}) as alone:
        async with alone.client(name) as lonely:
            reply = await lonely.send("tools/call", wish("say", EXAMPLE_ID, {"call": name}))
            assert reply.result["content"] == [{"type": "text", "text": "done"}]
            assert reply.notices == []


@pytest.mark.parametrize(
    ("member", "value"),
    [*[("taskId", wrong) for wrong in WRONG_IDS], *[("keepAlive", wrong) for wrong in WRONG_KEEP_ALIVES]],
)
async def test_a_task_id_is_a_string(user: DraftClient, member: str, value: Any, name: str, fleet: Deployment) -> None:
    wanted = {"taskId": name, "keepAlive": 60_000, member: value}
    error = await refusal(
        user.request("tools/call", call_params("say", {"call": name}, meta={FIRST_FORM_TASK: wanted}))
    )
    assert f'params._meta["modelcontextprotocol.io/task"].{member}' in error.message
    assert await user.all_tasks() == []
    longest = "~" * 128
    await run(user, "say", longest, call=name)
    assert await status_of(user, longest) == "completed"
    assert fleet.lines(name) == ["done"]


async def test_a_request_that_is_sent_again_is_answered_as_its_task_is(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    """The same message in the same session does not use the id again: a client repeats it after a lost answer."""
    await user.initialize()
    message = {"jsonrpc": "2.0", "id": "again", "method": "tools/call", "params": wish("say", "once", {"call": name})}
    first, again = await say(user, message), await say(user, message)
    assert first.url != again.url
    assert again.response["result"] == first.response["result"]
    for changed in ({"id": "other"}, {"params": wish("say", "once", {"call": name}, keep_alive=1)}):
        refused = await say(user, {**message, **changed})
        assert refused.response["error"]["message"] == "Task ID already exists: once"
    assert fleet.lines(name) == ["done"]


async def test_an_id_is_used_once_by_each_requestor(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str
) -> None:
    rivals = [client_of(name, urls=[fleet.urls[number % 2]]) for number in range(10)]
    calls = [rival.request("tools/call", wish("say", EXAMPLE_ID, {"call": name})) for rival in rivals]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [str(answer) for answer in answers if isinstance(answer, RpcError)]
    assert len(errors) == 9
    assert all(f"Task ID already exists: {EXAMPLE_ID}" in error for error in errors)
    assert len(await user.all_tasks()) == 1
    other = client_of(f"{name}-other")
    await run(other, "say", EXAMPLE_ID, call=name)
    await user.delete_task(EXAMPLE_ID)
    await refusal(user.request("tools/call", wish("say", EXAMPLE_ID, {"call": name})))
    assert await status_of(other, EXAMPLE_ID) == "completed"
    assert fleet.lines(name) == ["done", "done"]


async def test_a_task_begins_as_submitted_and_moves_only_forward(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str, gate: str
) -> None:
    watcher = client_of(name)
    with idle(fleet.worker("w1")):
        async with call(user, "ask_then_wait", EXAMPLE_ID, gate=gate) as request:
            await request.created()
            seen = [await status_of(watcher, EXAMPLE_ID)]
    while seen[-1] not in TERMINAL:
        seen.append(await status_of(watcher, EXAMPLE_ID))
        if seen[-1] == "input_required":
            await watcher.answer_pending(EXAMPLE_ID, {"name": ADA["result"]})
        elif seen.count("input_required"):
            fleet.open(gate)
    moves = [(before, after) for before, after in itertools.pairwise(seen) if before != after]
    assert all(after in NEXT[before] for before, after in moves), seen
    assert (seen[0], seen[-1]) == ("submitted", "completed")
    assert {"working", "input_required"} <= set(seen)


async def test_an_ended_task_never_changes(user: DraftClient, fleet: Deployment, name: str, gate: str) -> None:
    await user.initialize()
    requests = {}
    for task_id, tool, arguments in (
        ("completed", "say", {"call": name}),
        ("failed", "refuse", {}),
        ("cancelled", "wait", {"gate": gate}),
    ):
        async with call(user, tool, task_id, **arguments) as request:
            await request.created()
            if task_id == "cancelled":
                fleet.wait_for_lines(f"started-{gate}")
                await user.cancel_task(task_id)
            await request.end()
        requests[task_id] = request.request_id
    before = {task_id: await user.get_task(task_id) for task_id in requests}
    fleet.open(gate)
    for task_id, request_id in requests.items():
        assert before[task_id]["status"] == task_id
        assert task_id in (await refusal(user.cancel_task(task_id))).message
        await user.cancel_request(request_id)
        await user.answer_task(task_id, {"form": ADA})
    for task_id in requests:
        assert timeless(await user.get_task(task_id)) == timeless(before[task_id])


async def test_a_record_that_nobody_can_open_is_unknown(user: DraftClient, redis: Server, name: str) -> None:
    await run(user, "say", EXAMPLE_ID, call=name)
    with unreadable(redis, EXAMPLE_ID):
        assert await status_of(user, EXAMPLE_ID) == "unknown"
        assert [task["status"] for task in await user.all_tasks()] == ["unknown"]
        error = await refusal(user.task_result(EXAMPLE_ID))
        assert error.message == "Cannot retrieve result: Task status is 'unknown', not 'completed'"
    assert await status_of(user, EXAMPLE_ID) == "completed"


async def test_a_task_that_asks_is_input_required_until_all_is_answered(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    await leave(user, "ask", EXAMPLE_ID, call=name, kinds=["form", "other_form"])
    await poll(user, EXAMPLE_ID, "input_required")
    assert set(await user.pending_questions(EXAMPLE_ID)) == {"form", "other_form"}
    await user.answer_task(EXAMPLE_ID, {"form": ADA})
    assert await status_of(user, EXAMPLE_ID) == "input_required"
    assert set(await user.pending_questions(EXAMPLE_ID)) == {"other_form"}
    with idle(fleet.worker("w1")):
        await user.answer_task(EXAMPLE_ID, {"form": BOB, "other_form": BOB})
        assert await status_of(user, EXAMPLE_ID) == "working"
    await poll(user, EXAMPLE_ID, "completed")
    result = (await user.task_result(EXAMPLE_ID)).result
    assert result["content"][0]["text"] == "form: Ada, other_form: Bob"


async def test_questions_come_as_requests_on_the_original_stream(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str
) -> None:
    async with call(user, "ask", EXAMPLE_ID, call=name, kinds=["form", "sampling"]) as request:
        form = await request.hear("elicitation/create")
        sampling = await request.hear("sampling/createMessage")
        for question in (form, sampling):
            assert isinstance(question["id"], str)
            assert len(question["id"]) <= 1500
            assert question["params"]["_meta"] == related(EXAMPLE_ID)
        assert form["params"]["requestedSchema"]["required"] == ["name"]
        elsewhere = client_of(name, urls=[other_url(fleet, request.url)])
        await elsewhere.respond(form["id"], ADA)
        said = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
        await elsewhere.respond(sampling["id"], {"result": said})
        response = await request.response()
    assert response["result"]["content"][0]["text"] == "form: Ada, sampling: Paris"
    questions = [message["id"] for message in request.messages if "method" in message and "id" in message]
    assert sorted(questions) == sorted([form["id"], sampling["id"]])
    quiet = without_streams(client_of(name))
    async with call(quiet, "ask", "quiet", call=name, kinds=["form"]) as request:
        await poll_from_the_beginning(user, "quiet", "input_required")
        await user.answer_task("quiet", {"form": ADA})
        assert await request.end() == [await request.response()]


async def test_a_refused_result_tells_what_is_asked(user: DraftClient, name: str) -> None:
    await leave(user, "ask", EXAMPLE_ID, call=name, kinds=["form"])
    await poll(user, EXAMPLE_ID, "input_required")
    error = await refusal(user.task_result(EXAMPLE_ID))
    assert error.message == "Cannot retrieve result: Task status is 'input_required', not 'completed'"
    assert set(error.data) == {"inputRequests"}
    (question,) = error.data["inputRequests"].values()
    assert set(question) == {"method", "params"}
    assert question["method"] == "elicitation/create"
    acknowledged = await user.answer_task(EXAMPLE_ID, dict.fromkeys(error.data["inputRequests"], ADA))
    assert acknowledged == {"_meta": related(EXAMPLE_ID)}
    await poll(user, EXAMPLE_ID, "completed")


async def test_keep_alive_counts_from_the_end_of_the_task(
    user: DraftClient, fleet: Deployment, name: str, gate: str
) -> None:
    kept_ms = 1500
    async with call(user, "wait", "held", kept_ms, gate=gate) as held:
        await held.created()
        async with call(user, "wait", "stopped", kept_ms, gate="never") as stopped:
            await stopped.created()
            created = time.monotonic()
            while time.monotonic() < created + 1.2 * kept_ms / 1000:
                tasks = [await poll(user, task_id, "working") for task_id in ("held", "stopped")]
                await user.wait_between_polls(tasks[0])
            assert [task["keepAlive"] for task in tasks] == [kept_ms, kept_ms]
            assert (await user.cancel_task("stopped"))["status"] == "cancelled"
            await stopped.end()
        fleet.open(gate)
        assert (await held.response())["result"]["content"][0]["text"] == "done"
    for task_id in ("stopped", "held"):
        assert (await until_unknown(user, task_id)).message == NOT_FOUND


async def test_keep_alive_is_cut_to_the_longest_allowed(
    user: DraftClient, fleet: Deployment, name: str, gate: str
) -> None:
    async with call(user, "wait", "none", 0, gate=gate) as request:
        await request.created()
        assert (await user.get_task("none"))["keepAlive"] == 1000
        fleet.open(gate)
        assert (await request.response())["result"]["content"][0]["text"] == "done"
    await until_unknown(user, "none")
    wanted = {"more": 10**12, "null": None, "nothing": ..., "less": 60_000, "fraction": 60_000.0}
    for task_id, keep_alive in wanted.items():
        await run(user, "say", task_id, keep_alive, call=name)
    kept = {"more": DAY_MS, "null": DAY_MS, "nothing": DAY_MS, "less": 60_000, "fraction": 60_000}
    assert {task_id: (await user.get_task(task_id))["keepAlive"] for task_id in wanted} == kept
    assert {task["taskId"]: task["keepAlive"] for task in await user.all_tasks()} == kept


async def test_only_a_completed_task_has_a_result(user: DraftClient, fleet: Deployment, name: str, gate: str) -> None:
    with idle(fleet.worker("w1")):
        await leave(user, "wait", "w", gate=gate)
        seen = {"submitted": (await refusal(user.task_result("w"))).message}
    await poll(user, "w", "working")
    seen["working"] = (await refusal(user.task_result("w"))).message
    await leave(user, "ask", "a", call=name, kinds=["form"])
    await poll(user, "a", "input_required")
    seen["input_required"] = (await refusal(user.task_result("a"))).message
    await user.cancel_task("a")
    seen["cancelled"] = (await refusal(user.task_result("a"))).message
    assert (await run(user, "refuse", "f"))["error"]["code"] == -32000
    seen["failed"] = (await refusal(user.task_result("f"))).message
    assert seen == {status: f"Cannot retrieve result: Task status is '{status}', not 'completed'" for status in seen}
    assert (await refusal(user.task_result("never"))).message == NOT_FOUND
    fleet.open(gate)
    await poll(user, "w", "completed")
    assert (await user.task_result("w")).result["content"][0]["text"] == "done"


async def test_everything_about_a_task_names_it(user: DraftClient, name: str) -> None:
    async with call(user, "ask", EXAMPLE_ID, call=name, kinds=["form", "other_form"]) as request:
        question = await request.hear("elicitation/create")
        await user.respond(question["id"], ADA)
        await user.get_task(EXAMPLE_ID)
        await refusal(user.task_result(EXAMPLE_ID))
        await user.answer_task(EXAMPLE_ID, {"form": ADA, "other_form": BOB})
        await request.response()
    await user.task_result(EXAMPLE_ID)
    await leave(user, "wait", "stopped", gate="never")
    await user.cancel_task("stopped")
    await user.delete_task("stopped")
    await user.delete_task(EXAMPLE_ID)
    told = [message for message in user.received() if "error" not in message]
    metas = [(message.get("params") or message["result"])["_meta"] for message in told]
    assert {meta["modelcontextprotocol.io/related-task"]["taskId"] for meta in metas} == {EXAMPLE_ID, "stopped"}
    assert {message.get("method", "result") for message in told} == {
        "notifications/tasks/created",
        "notifications/tasks/status",
        "elicitation/create",
        "result",
    }


async def test_cancelling_by_notification(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str, gate: str
) -> None:
    await user.initialize()
    other_session = client_of(name)
    await other_session.initialize()
    async with call(user, "wait", EXAMPLE_ID, gate=gate) as request:
        await request.created()
        fleet.wait_for_lines(f"started-{gate}")
        for stranger in (client_of(name), other_session):
            await stranger.cancel_request(request.request_id)
        await user.notify("notifications/cancelled", {"requestId": str(request.request_id)})
        assert await status_of(user, EXAMPLE_ID) == "working"
        elsewhere = in_session_of(client_of(name, urls=[other_url(fleet, request.url)]), user)
        await elsewhere.cancel_request(request.request_id)
        assert await status_of(user, EXAMPLE_ID) == "cancelled"
        messages = await request.end()
    assert {message.get("method") for message in messages} <= {
        "notifications/tasks/created",
        "notifications/tasks/status",
    }
    fleet.wait_for_lines(f"cancelled-{gate}")


async def test_a_cancellation_that_comes_too_late_is_ignored(user: DraftClient, name: str) -> None:
    await user.initialize()
    async with call(user, "say", EXAMPLE_ID, call=name) as request:
        await request.response()
    result = (await user.task_result(EXAMPLE_ID)).result
    await user.cancel_request(request.request_id)
    assert await status_of(user, EXAMPLE_ID) == "completed"
    assert (await user.task_result(EXAMPLE_ID)).result == result


async def test_cancelling_a_waiting_task_drops_its_questions(user: DraftClient, fleet: Deployment, name: str) -> None:
    await user.initialize()
    async with call(user, "ask", EXAMPLE_ID, call=name, kinds=["form"]) as request:
        question = await request.hear("elicitation/create")
        await user.cancel_request(request.request_id)
        await request.end()
    await user.respond(question["id"], ADA)
    assert await user.answer_task(EXAMPLE_ID, {"form": ADA}) == {"_meta": related(EXAMPLE_ID)}
    assert await status_of(user, EXAMPLE_ID) == "cancelled"
    error = await refusal(user.task_result(EXAMPLE_ID))
    assert error.message == "Cannot retrieve result: Task status is 'cancelled', not 'completed'"
    assert error.data is None
    assert len(fleet.lines(name)) == 1


async def test_whatever_can_be_read_can_be_listed(user: DraftClient, client_of: ClientOf, name: str) -> None:
    """Tasks that are there all the time are on exactly one page, whatever comes and goes meanwhile."""
    quiet = without_streams(client_of(name))
    ids = [f"stays-{number}" for number in range(120)]
    going = [f"goes-{number}" for number in range(20)]
    for start in range(0, 140, 20):
        together = (ids + going)[start : start + 20]
        await asyncio.gather(*[quiet.request("tools/call", wish("say", i, {"call": name})) for i in together])
    pages = [await user.list_tasks()]
    for number, task_id in enumerate(going):
        await user.delete_task(task_id)
        await quiet.request("tools/call", wish("say", f"comes-{number}", {"call": name}))
    while "nextCursor" in pages[-1]:
        pages.append(await user.list_tasks(pages[-1]["nextCursor"]))
    listed = [task["taskId"] for page in pages for task in page["tasks"]]
    assert len(pages) == 2
    assert len(listed) == len(set(listed))
    assert set(ids) <= set(listed)
    assert {await status_of(user, task_id) for task_id in ids[::40]} == {"completed"}
    assert {task["taskId"] for task in await user.all_tasks()} == {*ids, *(f"comes-{n}" for n in range(20))}


# 7. Error Handling


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/delete", "tasks/cancel"])
@pytest.mark.parametrize("task_id", ["never", "", "t_*", "../..", "x" * 5000, 7, None, ...])
async def test_error_task_not_found(user: DraftClient, method: str, task_id: Any) -> None:
    error = await refusal(user.request(method, {} if task_id is ... else {"taskId": task_id}))
    if isinstance(task_id, str):
        written = example("tasks_errors")["task not found"].message
        assert written is not None
        assert {"code": error.code, "message": error.message} == written["error"]
    else:
        assert "params.taskId" in error.message


async def test_error_task_expired(user: DraftClient, name: str) -> None:
    await leave(user, "ask", EXAMPLE_ID, 1, call=name, kinds=["form"])
    await poll(user, EXAMPLE_ID, "input_required")
    await user.cancel_task(EXAMPLE_ID)
    answers = (
        until_unknown(user, EXAMPLE_ID),
        refusal(user.task_result(EXAMPLE_ID)),
        refusal(user.delete_task(EXAMPLE_ID)),
        refusal(user.cancel_task(EXAMPLE_ID)),
        refusal(user.answer_task(EXAMPLE_ID, {"form": ADA})),
    )
    errors = [await answer for answer in answers]
    assert {(error.code, error.message) for error in errors} == {(INVALID_PARAMS, NOT_FOUND)}
    assert await user.all_tasks() == []


async def test_error_result_requested_for_incomplete_task(
    user: DraftClient, fleet: Deployment, name: str, gate: str
) -> None:
    async with call(user, "wait", EXAMPLE_ID, gate=gate) as request:
        await request.created()
        await poll(user, EXAMPLE_ID, "working")
        error = await refusal(user.task_result(EXAMPLE_ID))
        fleet.open(gate)
        await request.end()
    written = example("tasks_errors")["result requested for incomplete task"].message
    assert written is not None
    assert {"code": error.code, "message": error.message} == written["error"]


async def test_error_duplicate_task_id(user: DraftClient, name: str) -> None:
    await run(user, "say", EXAMPLE_ID, call=name)
    error = await refusal(user.request("tools/call", wish("say", EXAMPLE_ID, {"call": name})))
    written = example("tasks_errors")["duplicate task ID"].message
    assert written is not None
    assert {"code": error.code, "message": error.message} == written["error"]


async def test_error_invalid_cursor(user: DraftClient, client_of: ClientOf, name: str) -> None:
    quiet = without_streams(client_of(name))
    for start in range(0, 120, 20):
        together = range(start, start + 20)
        await asyncio.gather(*[quiet.request("tools/call", wish("say", f"{i}", {"call": name})) for i in together])
    cursor = (await user.list_tasks())["nextCursor"]
    assert len((await user.list_tasks(cursor))["tasks"]) == 20
    await user.initialize()
    altered = cursor[:-5] + ("A" if cursor[-5] != "A" else "B") + cursor[-4:]
    texts = ("", "optional-cursor-value", altered, cursor[:-1], cursor + "A", user.session_id)
    others: Sequence[Any] = (7, True, [], {})
    for wrong in (*texts, *others):
        await refusal(user.request("tasks/list", {"cursor": wrong}))
    await refusal(client_of(f"{name}-other").list_tasks(cursor))
    for method in ("tools/list", "prompts/list", "resources/list"):
        await refusal(user.request(method, {"cursor": cursor}))


async def test_task_execution_errors(user: DraftClient, fleet: Deployment) -> None:
    response = await run(user, "refuse", EXAMPLE_ID, 30_000)
    assert response["error"] == {"code": -32000, "message": "Tool execution failed: API rate limit exceeded"}
    step = example("tasks_failed")["a task with an execution error"]
    assert step.message is not None
    get = example("tasks_get")["the state of a task"].request
    answer = await as_written(user, get)
    assert_contains(answer, step.message, live=LIVE)
    assert answer["result"]["error"] == step.message["result"]["error"]
    assert answer["result"]["keepAlive"] == 30_000
    assert "hunter2" not in str(user.received())


async def test_a_tools_own_error_is_a_completed_task(user: DraftClient) -> None:
    response = await run(user, "err", EXAMPLE_ID)
    assert response["result"]["isError"] is True
    assert await status_of(user, EXAMPLE_ID) == "completed"
    assert (await user.task_result(EXAMPLE_ID)).result == response["result"]


# 8. Security Considerations


async def test_a_requestor_has_so_many_tasks_and_no_more(
    fleet: Deployment, client_of: ClientOf, name: str, gate: str
) -> None:
    with joined_by(fleet, "r3", GATEWAY_TASKS_PER_PRINCIPAL="2") as replica:
        user, other = (client_of(principal, urls=[replica.url]) for principal in (name, f"{name}-other"))
        await run(user, "say", "1", call=name)
        await leave(user, "wait", "2", gate=gate)
        for _ in range(2):
            with pytest.raises(RpcError) as caught:
                await user.request("tools/call", wish("say", "3", {"call": name}))
            assert (caught.value.status, caught.value.code) == (200, LIMITED)
        await run(other, "say", "3", call=name)
        await user.delete_task("1")
        await run(user, "say", "3", call=name)
        assert {task["taskId"] for task in await user.all_tasks()} == {"2", "3"}
        fleet.open(gate)


async def test_requests_about_tasks_count_against_the_rate(
    fleet: Deployment, client_of: ClientOf, user: DraftClient, name: str
) -> None:
    with joined_by(fleet, "r3", GATEWAY_RATE_LIMIT="4/h") as replica:
        hasty = client_of(name, urls=[replica.url])
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: hasty.request("tools/call", wish("say", "1", {"call": name})),
            lambda: hasty.get_task("1"),
            lambda: hasty.task_result("1"),
            hasty.list_tasks,
        ]
        for ask in asked:
            await ask()
        for ask in asked:
            with pytest.raises(RpcError) as caught:
                await ask()
            assert (caught.value.status, caught.value.code) == (200, LIMITED)
        await client_of(f"{name}-other", urls=[replica.url]).list_tasks()
    assert await status_of(user, "1") == "completed"


async def test_creation_end_and_deletion_are_in_the_audit_log(user: DraftClient, fleet: Deployment, name: str) -> None:
    await run(user, "say", f"{name}-id", call=name)
    await user.get_task(f"{name}-id")
    await user.task_result(f"{name}-id")
    await user.delete_task(f"{name}-id")

    def noted() -> list[tuple[str, str, str]]:
        lines = [line for process in (*fleet.replicas, *fleet.workers) for line in process.log_lines()]
        return sorted(
            (line["audit"], line["method"], str(line.get("outcome") or line.get("phase")))
            for line in lines
            if line.get("subject") == name and line.get("task") == f"{name}-id"
        )

    wanted = [("leg", "tools/call", "completed"), ("leg", "tools/call", "task_created")]
    wait_until(lambda: len(noted()) >= 3, "three lines of the audit log")
    assert noted() == [*wanted, ("task", "tasks/delete", "done")]


# Rationale: Graceful Degradation


async def test_the_original_response_comes_too(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str, gate: str
) -> None:
    poller = client_of(name)
    poller.speak_first_form(EXAMPLE_ID)
    async with call(user, "wait", EXAMPLE_ID, gate=gate) as request:
        await request.created()
        fleet.open(gate)
        finished = await poller.finish_task(EXAMPLE_ID)
        response = await request.response()
    assert finished.status == "completed"
    assert response["result"] == finished.result
    assert response["result"]["_meta"] == related(EXAMPLE_ID)
    failed = await run(user, "refuse", "failed")
    assert failed["error"]["code"] == -32000


async def test_a_client_without_streams_gets_its_task_too(
    user: DraftClient, client_of: ClientOf, fleet: Deployment, name: str, gate: str
) -> None:
    quiet = without_streams(client_of(name))
    async with call(quiet, "wait", EXAMPLE_ID, gate=gate) as request:
        fleet.open(gate)
        response = await request.response()
    assert request.headers["content-type"] == "application/json"
    assert len(request.messages) == 1
    assert response["result"]["content"][0]["text"] == "done"
    assert (await user.task_result(EXAMPLE_ID)).result == response["result"]


def held_up(store: Redis) -> set[str]:
    """Return the commands that a server holds up."""
    return {client["cmd"] for client in store.client_list() if "b" in client["flags"]}


def is_stored(store: Redis, task_id: str) -> bool:
    return bool(store.keys(f"*:task:*:{task_id}"))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_task_that_is_being_created_as_its_request_is_cancelled_is_cancelled_too(
    fleet: Deployment, client_of: ClientOf, redis: Server, name: str, elsewhere: bool
) -> None:
    gate = f"gate-{name}"
    user = client_of(name, urls=fleet.urls[:1])
    await user.initialize()
    other = in_session_of(client_of(name, urls=fleet.urls[elsewhere:][:1]), user)
    await run(user, "say", "before", call=name)  # so that the replica knows what it asks the store beforehand
    await other.all_tasks()
    with Redis.from_url(redis.url) as store:
        store.execute_command("CLIENT", "PAUSE", 500, "WRITE")  # so that the task is there only after the cancellation
        async with call(user, "wait", EXAMPLE_ID, gate=gate):
            await asyncio.to_thread(wait_until, lambda: "evalsha" in held_up(store), "the creation to be held up")
            await other.cancel_request(user.sent("tools/call")[-1]["id"])
            await asyncio.to_thread(wait_until, lambda: is_stored(store, EXAMPLE_ID), "the task")
            await poll(user, EXAMPLE_ID, "cancelled")
    fleet.open(gate)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_request_whose_task_is_cancelled_is_answered_all_the_same(
    fleet: Deployment, client_of: ClientOf, name: str, streams: bool, begun: bool
) -> None:
    """Also in a session: only a request that its own client cancels has no answer."""
    user, other, gate = client_of(name), client_of(name), f"gate-{name}"
    await user.initialize()
    client = user if streams else without_streams(user)
    other.speak_first_form(EXAMPLE_ID)
    with contextlib.nullcontext() if begun else idle(fleet.worker("w1")):
        async with call(client, "wait", EXAMPLE_ID, gate=gate) as request:
            await poll_from_the_beginning(other, EXAMPLE_ID, "working" if begun else "submitted")
            assert (await other.cancel_task(EXAMPLE_ID))["status"] == "cancelled"
            result = (await request.response())["result"]
    assert result["content"] == [{"type": "text", "text": "The task was cancelled by request."}]
    assert (result["isError"], result["_meta"]) == (True, related(EXAMPLE_ID))


async def test_a_list_says_why_a_task_failed_as_a_look_at_it_does(user: DraftClient, name: str) -> None:
    calls = [call_params("err"), call_params("refuse"), call_params("recite", {"gate": name, "count": 1, "end": "bug"})]
    for params in calls:
        created = await user.request("tools/call", params | {"task": {}})
        await user.finish_task(created["task"]["taskId"])
    listed = await user.all_tasks()
    assert len(listed) == len(calls)
    for task in listed:
        assert timeless(task) == timeless(await user.get_task(task["taskId"]))
        assert task["status"] == "failed"


async def test_a_request_that_names_two_tasks_is_refused(user: DraftClient, name: str) -> None:
    await run(user, "say", EXAMPLE_ID, call=name)
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/delete"):
        for meta in (related("another"), {"io.modelcontextprotocol/related-task": {"taskId": "another"}}):
            error = await refusal(user.request(method, {"taskId": EXAMPLE_ID, "_meta": meta}))
            assert "names another task than params.taskId" in error.message
        error = await refusal(user.request(method, {"taskId": EXAMPLE_ID, "_meta": {RELATED_TASK: "text"}}))
        assert "must be an object that names the task" in error.message
    task = await user.request("tasks/get", {"taskId": EXAMPLE_ID, "_meta": related(EXAMPLE_ID)})
    assert task["status"] == "completed"


@pytest.mark.parametrize("joined", [{"taskId": "another"}, {}, "text", None])
async def test_for_a_task_of_the_other_form_its_id_alone_counts(user: DraftClient, name: str, joined: Any) -> None:
    created = await user.request("tools/call", call_params("say", {"call": name}) | {"task": {}})
    task_id = created["task"]["taskId"]
    await user.finish_task(task_id)
    for key in (RELATED_TASK, FIRST_FORM_RELATED_TASK):
        params = {"taskId": task_id, "_meta": {key: joined}}
        assert (await user.request("tasks/get", params))["status"] == "completed"
        assert (await user.request("tasks/result", params))["content"] == [{"type": "text", "text": "done"}]
        assert "already in terminal status" in (await refusal(user.request("tasks/cancel", params))).message
    await user.request("tasks/delete", {"taskId": task_id, "_meta": {RELATED_TASK: joined}})
