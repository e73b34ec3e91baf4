"""The reference client does what the seeds ask of clients, seen by a server that plays the seeds' examples."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import CAPABILITIES, Refusal, accept
from tests.wires.draft.scripted_server import (
    BREAK,
    TASK_ID,
    Arrived,
    Part,
    Plain,
    ScriptedServer,
    content,
    error,
    event,
    result,
    segments,
    stream,
    task,
)
from tests.wires.draft.transport import BrokenError, EventDecoder, HttpError, ProtocolError, RpcError

RELATED = {"io.modelcontextprotocol/related-task": {"taskId": TASK_ID}}
FIRST_FORM_RELATED = {"modelcontextprotocol.io/related-task": {"taskId": TASK_ID}}
LOGIN: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Please provide your GitHub username",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
DONE = {"content": content(1), "isError": False}
CREATED = {"method": "notifications/tasks/created", "params": {"_meta": FIRST_FORM_RELATED}}


def first_form(status: str, **fields: Any) -> Plain:
    task = {"taskId": TASK_ID, "status": status, "keepAlive": 30000, "pollFrequency": 5000}
    return result(**task, **fields, meta=FIRST_FORM_RELATED)


# Messages.


async def test_a_session_is_named_in_each_message_after_initialize(server: ScriptedServer, client: DraftClient) -> None:
    server.on(
        "initialize",
        Plain({"result": {"protocolVersion": "DRAFT-2026-v1", "capabilities": {}}}, headers={"mcp-session-id": "s1"}),
    )
    server.on("tools/list", result(tools=[]))
    await client.initialize()
    await client.request("tools/list")
    assert [arrived.headers.get("mcp-session-id") for arrived in server.arrived] == [None, "s1", "s1"]
    assert server.messages("notifications/initialized") == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert client.session_id == "s1"
    assert server.params("initialize")[0]["capabilities"] == CAPABILITIES


async def test_without_initialize_there_is_no_session_and_each_message_names_the_version_and_the_token(
    server: ScriptedServer,
) -> None:
    server.on("ping", result())
    async with DraftClient(server.urls, token="secret") as client:
        await client.request("ping")
    headers = server.arrived[0].headers
    assert headers["mcp-protocol-version"] == "DRAFT-2026-v1"
    assert headers["authorization"] == "Bearer secret"
    assert "mcp-session-id" not in headers


async def test_an_initialize_that_is_answered_with_another_version_is_an_error(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("initialize", Plain({"result": {"protocolVersion": "2025-11-25"}}, headers={"mcp-session-id": "s1"}))
    with pytest.raises(ProtocolError, match="no session of DRAFT-2026-v1"):
        await client.initialize()


async def test_consecutive_messages_go_to_different_replicas_and_a_policy_can_say_otherwise(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("ping", result())
    for _ in range(3):
        await client.request("ping")
    assert [arrived.url for arrived in server.arrived] == [server.urls[0], server.urls[1], server.urls[0]]

    def to_the_last(message: Mapping[str, Any], urls: Sequence[str], after: str | None) -> str:
        return urls[-1]

    async with DraftClient(server.urls, to_the_last) as pinned:
        for _ in range(2):
            await pinned.request("ping")
        assert pinned.urls_of("ping") == [server.urls[1], server.urls[1]]


async def test_all_that_goes_over_the_wire_is_remembered_in_order(server: ScriptedServer, client: DraftClient) -> None:
    progress = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    server.on("tools/call", stream(progress, {"result": DONE}))
    reply = await client.send("tools/call", {"name": "t"})
    assert [seen.kind for seen in client.log] == ["sent", "head", "received", "received", "ended"]
    assert client.log[1].headers["content-type"] == "text/event-stream"
    assert client.received(reply.request_id) == [
        {"jsonrpc": "2.0", **progress},
        {"jsonrpc": "2.0", "id": reply.request_id, "result": DONE},
    ]
    assert list(reply.notices) == [{"jsonrpc": "2.0", **progress}]
    assert client.sent("tools/call") == server.messages("tools/call")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_however_their_bytes_are_split(size: int) -> None:
    first = ': comment\r\ndata: {"a":\r\ndata: "\u2028\x85"}\r\n\r\n'
    raw = (first + "id: 7\ndata:second\n\nevent: x\n\ndata: unfinished").encode()
    decoder = EventDecoder()
    data = [data for begin in range(0, len(raw), size) for data in decoder.feed(raw[begin : begin + size])]
    assert data == ['{"a":\n"\u2028\x85"}'.encode(), b"second"]


async def test_an_error_is_raised_with_status_code_and_data(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tools/call", error(-32602, "no", {"reason": "r"}, status=400))
    with pytest.raises(RpcError, match="-32602 no") as caught:
        await client.call_tool("t")
    assert (caught.value.status, caught.value.code, caught.value.data) == (400, -32602, {"reason": "r"})


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        (Plain(status=503), HttpError),
        (stream(BREAK), BrokenError),
        (stream(), BrokenError),
        (stream({"result": DONE}, {"result": DONE}), ProtocolError),
        (stream({"result": {"requestState": "s"}}, CREATED), ProtocolError),
        (stream(b'data: {"jsonrpc":"2.0","id":99,"result":{}}\n\n'), ProtocolError),
    ],
)
async def test_an_answer_that_is_none_is_an_error(
    server: ScriptedServer, client: DraftClient, reply: Any, refused: type[Exception]
) -> None:
    server.on("tools/call", reply)
    with pytest.raises(refused):
        await client.call_tool("t")


async def test_a_silent_server_is_not_waited_for_without_end(server: ScriptedServer) -> None:
    server.on("tools/call", stream(server.until(lambda: False)))
    async with DraftClient(server.urls, seconds=0.05) as client:
        with pytest.raises((TimeoutError, httpx.TimeoutException)):
            await client.call_tool("t")


# Incomplete results.


async def test_an_incomplete_result_is_answered_with_a_new_request_that_echoes_the_state(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on(
        "tools/call",
        result(inputRequests={"github_login": LOGIN}, requestState="foo"),
        result(**DONE),
    )
    done = await client.call_tool(
        "get_weather", {"location": "New York"}, answers={"github_login": accept(name="octocat")}
    )
    first, second = server.messages("tools/call")
    assert done == DONE
    assert first["params"] == {"name": "get_weather", "arguments": {"location": "New York"}}
    assert second["params"] == {
        **first["params"],
        "inputResponses": {"github_login": {"result": {"action": "accept", "content": {"name": "octocat"}}}},
        "requestState": "foo",
    }
    assert first["id"] != second["id"]
    assert [arrived.url for arrived in server.arrived] == server.urls


async def test_only_the_last_state_and_the_last_answers_are_sent_and_no_state_if_there_was_none(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on(
        "tools/call",
        result(inputRequests={"a": LOGIN}),
        stream({"method": "notifications/progress", "params": {}}, {"result": {"requestState": "shed"}}),
        result(inputRequests={"b": LOGIN}, requestState=""),
        result(**DONE),
    )
    await client.call_tool("t", answers={"a": accept(name="1"), "b": accept(name="2")})
    _, second, third, fourth = server.params("tools/call")
    assert "requestState" not in second
    assert second["inputResponses"] == {"a": {"result": accept(name="1")}}
    assert third["requestState"] == "shed"
    assert "inputResponses" not in third
    assert fourth["requestState"] == ""
    assert set(fourth["inputResponses"]) == {"b"}
    assert len({message["id"] for message in server.messages("tools/call")}) == 4


async def test_answers_can_be_functions_and_are_found_by_key_or_property_or_method(
    server: ScriptedServer, client: DraftClient
) -> None:
    async def later(request: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return accept(name=request["params"]["message"])

    server.on("tools/call", result(inputRequests={"k": LOGIN, "r": {"method": "roots/list"}}), result(**DONE))
    await client.call_tool("t", answers={"name": later, "roots/list": lambda _request: {"roots": []}})
    assert server.params("tools/call")[1]["inputResponses"] == {
        "k": {"result": accept(name="Please provide your GitHub username")},
        "r": {"result": {"roots": []}},
    }


async def test_the_next_leg_and_an_answer_go_elsewhere_whatever_else_is_sent_meanwhile(
    server: ScriptedServer, client: DraftClient
) -> None:
    async def after_another_request(_request: Mapping[str, Any]) -> dict[str, Any]:
        await client.request("ping")
        return accept(name="n")

    server.on("ping", result())
    server.on(
        "tools/call",
        result(inputRequests={"k": LOGIN}, requestState="s"),
        stream({"id": "address", **LOGIN}, server.until(server.responses), {"result": DONE}),
    )
    await client.call_tool("t", answers={"name": after_another_request})
    assert client.urls_of("tools/call") == server.urls
    assert [response.url for response in server.responses()] == [server.urls[0]]


async def test_what_a_client_refuses_to_answer_is_an_error_in_either_form(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on(
        "tools/call",
        result(inputRequests={"k": LOGIN}),
        stream({"id": "address", **LOGIN}, server.until(server.responses), {"result": DONE}),
    )
    await client.call_tool("t", answers={"elicitation/create": Refusal(-1, "User rejected")})
    refused = {"error": {"code": -1, "message": "User rejected"}}
    assert server.params("tools/call")[1]["inputResponses"] == {"k": refused}
    assert server.responses()[0].message == {"jsonrpc": "2.0", "id": "address", **refused}


async def test_a_question_without_an_answer_and_a_call_without_end_are_errors(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", result(inputRequests={"k": LOGIN}))
    with pytest.raises(ProtocolError, match="no answer"):
        await client.call_tool("t")
    server.on("tools/call", result(requestState="s"))
    with pytest.raises(ProtocolError, match="no end"):
        await client.call_tool("t")


async def test_a_request_on_the_stream_is_answered_at_the_next_replica(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream({"id": "address", **LOGIN}, server.until(server.responses), {"result": DONE}))
    assert await client.call_tool("t", answers={"name": accept(name="octocat")}) == DONE
    (response,) = server.responses()
    assert response.message == {"jsonrpc": "2.0", "id": "address", "result": accept(name="octocat")}
    assert [server.arrived[0].url, response.url] == server.urls


# Tasks of `params.task`.


async def test_a_task_is_polled_asked_answered_and_its_result_fetched(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", result(task=task()))
    server.on("tasks/get", result(**task()), result(**task("input_required")), result(**task("completed")))
    server.on("tasks/result", result(inputRequests={"echo_input": LOGIN}, meta=RELATED), result(**DONE, meta=RELATED))
    server.on("tasks/input_response", result(meta=RELATED))
    created = await client.create_task("echo", ttl=60000)
    finished = await client.finish_task(created["taskId"], {"echo_input": accept(input="Hello World!")})
    assert server.params("tools/call") == [{"name": "echo", "arguments": {}, "task": {"ttl": 60000}}]
    assert server.params("tasks/get") == [{"taskId": TASK_ID}] * 3
    assert server.params("tasks/input_response") == [
        {
            "inputResponses": {"echo_input": {"result": {"action": "accept", "content": {"input": "Hello World!"}}}},
            "_meta": RELATED,
        }
    ]
    assert (finished.status, finished.result) == ("completed", {**DONE, "_meta": RELATED})


async def test_a_task_asked_for_may_first_be_an_incomplete_result(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tools/call", result(inputRequests={"k": LOGIN}, requestState="s"), result(task=task()))
    created = await client.create_task("t", answers={"k": accept(name="n")})
    assert created["taskId"] == TASK_ID
    assert [params["task"] for params in server.params("tools/call")] == [{}, {}]


async def test_the_poll_interval_is_respected_unless_a_test_shortens_it(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("tests.wires.draft.client.asyncio.sleep", sleep)
    async with DraftClient(server.urls) as patient, DraftClient(server.urls, longest_poll_seconds=0.5) as quick:
        for client in (patient, quick):
            await client.wait_between_polls(task(pollInterval=5000))
            await client.wait_between_polls({"pollFrequency": 250})
    assert waited == [5.0, 0.25, 0.5, 0.25]


async def test_a_task_that_failed_with_an_error_repeats_it(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tasks/get", result(**task("failed")))
    server.on("tasks/result", error(-32000, "boom"))
    finished = await client.finish_task(TASK_ID)
    assert finished.result is None
    assert finished.error is not None
    assert finished.error.message == "boom"


async def test_tasks_are_listed_page_by_page_cancelled_and_deleted(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tasks/list", result(tasks=[task()], nextCursor="c1"), result(tasks=[task("completed")]))
    server.on("tasks/cancel", result(**task("cancelled")))
    server.on("tasks/delete", result(meta=RELATED))
    assert [task["status"] for task in await client.all_tasks()] == ["working", "completed"]
    assert server.params("tasks/list") == [{}, {"cursor": "c1"}]
    assert (await client.cancel_task(TASK_ID))["status"] == "cancelled"
    assert await client.delete_task(TASK_ID) == {"_meta": RELATED}
    await client.cancel_request(7)
    assert server.params("notifications/cancelled") == [{"requestId": 7}]


async def test_a_status_that_does_not_exist_is_an_error(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tasks/get", result(**task("Working")))
    with pytest.raises(ProtocolError, match="not a task"):
        await client.get_task(TASK_ID)


# Tasks of the first form.


async def test_the_first_form_is_wished_for_in_meta_and_the_response_may_win(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(CREATED, server.until(lambda: server.messages("tasks/get")), {"result": DONE}))
    server.on("tasks/get", first_form("working"))
    call = await client.call_first_form("t", task_id=TASK_ID, keep_alive=60000)
    assert server.params("tools/call")[0]["_meta"] == {
        "modelcontextprotocol.io/task": {"taskId": TASK_ID, "keepAlive": 60000}
    }
    assert server.params("tasks/get")[0] == {"taskId": TASK_ID, "_meta": FIRST_FORM_RELATED}
    assert (call.won_by, call.result, call.created.is_set()) == ("response", DONE, True)


async def test_polling_may_win_the_race_and_begins_with_the_notification_that_the_task_is_there(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(CREATED, server.until(lambda: False)))
    server.on("tasks/get", first_form("submitted"), first_form("completed"))
    server.on("tasks/result", result(**DONE, meta=FIRST_FORM_RELATED))
    call = await client.call_first_form("t", task_id=TASK_ID)
    assert (call.won_by, call.task["status"]) == ("polling", "completed")
    assert call.result == {**DONE, "_meta": FIRST_FORM_RELATED}
    kinds = [(seen.kind, seen.message.get("method")) for seen in client.log]
    assert kinds.index(("received", "notifications/tasks/created")) < kinds.index(("sent", "tasks/get"))
    assert client.log[-1].kind == "left"


async def test_without_that_notification_nobody_polls_and_the_response_counts(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", result(**DONE))
    call = await client.call_first_form("t")
    assert (call.won_by, call.result, call.created.is_set()) == ("response", DONE, False)
    assert not server.messages("tasks/get")


async def test_questions_of_a_first_form_task_are_answered_on_the_stream(
    server: ScriptedServer, client: DraftClient
) -> None:
    question = {"id": "address", **LOGIN, "params": {**LOGIN["params"], "_meta": FIRST_FORM_RELATED}}
    server.on("tools/call", stream(CREATED, question, server.until(server.responses), {"result": DONE}))
    server.on("tasks/get", first_form("input_required"))
    call = await client.call_first_form("t", task_id=TASK_ID, answers={"name": accept(name="octocat")})
    (response,) = server.responses()
    assert response.message["result"] == accept(name="octocat")
    assert response.url != server.arrived[0].url
    assert call.won_by == "response"
    assert not server.messages("tasks/input_response")


@pytest.mark.parametrize("how", ["by wish", "after a break", "after leaving"])
async def test_questions_of_a_first_form_task_are_answered_by_polling(
    server: ScriptedServer, client: DraftClient, how: str
) -> None:
    rest: dict[str, Part] = {
        "by wish": server.until(lambda: False),
        "after a break": BREAK,
        "after leaving": server.until(lambda: False),
    }
    server.on("tools/call", stream(CREATED, rest[how]))
    server.on(
        "tasks/get",
        lambda _: first_form("completed" if server.messages("tasks/input_response") else "input_required"),
    )
    refusal = error(
        -32602,
        "Cannot retrieve result: Task status is 'input_required', not 'completed'",
        {"inputRequests": {"echo_input": LOGIN}},
    )
    server.on("tasks/result", refusal, result(**DONE))
    server.on("tasks/input_response", result(meta=FIRST_FORM_RELATED))
    call = await client.call_first_form(
        "t",
        task_id=TASK_ID,
        answers={"name": accept(name="octocat")},
        answer_by_polling=how == "by wish",
        leave_when_created=how == "after leaving",
    )
    assert (call.won_by, call.result) == ("polling", DONE)
    assert server.params("tasks/input_response") == [
        {
            "inputResponses": {"echo_input": {"result": accept(name="octocat")}},
            "_meta": {**RELATED, **FIRST_FORM_RELATED},
        }
    ]


async def test_a_first_form_task_that_ends_without_a_result_reports_why(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(CREATED, BREAK))
    server.on("tasks/get", first_form("failed", error="API rate limit exceeded"))
    server.on("tasks/result", error(-32602, "Cannot retrieve result: Task status is 'failed', not 'completed'"))
    call = await client.call_first_form("t", task_id=TASK_ID)
    assert (call.result, call.task["error"]) == (None, "API rate limit exceeded")
    assert call.error is not None


async def test_a_stream_that_breaks_before_the_task_is_there_is_an_error(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(BREAK))
    with pytest.raises(BrokenError):
        await client.call_first_form("t")


# Streaming: what the checklist does not name. What it names is in test_client_checklist.py.


async def test_events_in_odd_pieces_with_notifications_between_make_the_same_result(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tasks/get", result(**task()), result(**task("completed")))

    def in_pieces(arrived: Arrived) -> Any:
        raw = b"".join(
            (
                event(segments(1), arrived.message["id"]),
                b": keep-alive\n\n",
                event({"method": "notifications/tasks/status", "params": task(progress=1, progressTotal=2)}),
                event(segments(2, 3, complete=True), arrived.message["id"]),
            )
        )
        return stream(*(raw[begin : begin + 11] for begin in range(0, len(raw), 11)))

    server.on("tools/call", in_pieces)
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2, 3), "isError": False}
    assert [message.get("method") for message in client.received(call.request_id)] == [
        None,
        "notifications/tasks/status",
        None,
    ]


async def test_a_streaming_task_that_asks_is_answered_while_its_stream_is_open(
    server: ScriptedServer, client: DraftClient
) -> None:
    def answered() -> list[dict[str, Any]]:
        return server.messages("tasks/input_response")

    server.on("tools/call", stream(segments(1), server.until(answered), segments(2, complete=True)))
    server.on("tasks/get", lambda _: result(**task("completed" if answered() else "input_required")))
    server.on("tasks/result", result(inputRequests={"k": LOGIN}, meta=RELATED))
    server.on("tasks/input_response", result(meta=RELATED))
    call = await client.stream_tool("t", answers={"k": accept(name="n")})
    assert call.result == {"content": content(1, 2), "isError": False}
    assert answered()[0]["params"]["inputResponses"] == {"k": {"result": accept(name="n")}}


async def test_a_call_that_asks_before_it_streams_takes_two_legs(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tasks/get", result(**task("completed")))
    server.on(
        "tools/call",
        result(inputRequests={"k": LOGIN}, requestState="s"),
        stream(segments(1, complete=True)),
    )
    call = await client.stream_tool("t", answers={"k": accept(name="n")})
    assert call.result == {"content": content(1), "isError": False}
    assert server.params("tools/call")[1]["requestState"] == "s"
    assert client.urls_of("tools/call") == server.urls


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_the_connection_can_be_broken_on_purpose_after_so_many_segments(
    server: ScriptedServer, client: DraftClient, count: int
) -> None:
    server.on("tools/call", stream({"result": {"task": task()}}, segments(1), segments(2, 3, complete=True)))
    server.on("tasks/get", result(**task("completed")))

    def rest(arrived: Arrived) -> Plain:
        last = arrived.message["params"].get("lastSeqNr")
        if last is None:
            return result(content=content(1, 2, 3), isError=False)
        return Plain({"result": segments(*range(last + 1, 4), complete=True)["result"]})

    server.on("tasks/result", rest)
    call = await client.stream_tool("t", break_after=count)
    assert call.result is not None
    assert call.result["content"] == content(1, 2, 3)
    assert call.resumed_after == ([count] if 0 < count < 3 else [])
    assert [seen.kind for seen in client.log if seen.exchange == 1][-1] in ("left", "ended")


@pytest.mark.parametrize("status", ["completed", "working"])
async def test_a_gap_that_the_server_does_not_fill_is_an_error(
    server: ScriptedServer, client: DraftClient, status: str
) -> None:
    server.on("tools/call", stream(segments(1, 3, complete=True)))
    server.on("tasks/get", result(**task(status)))
    server.on("tasks/result", Plain({"result": segments(3, complete=True)["result"]}))
    with pytest.raises(ProtocolError, match=r"\[2\] are missing for good"):
        await client.stream_tool("t")


@pytest.mark.parametrize(
    "parts",
    [
        (segments(1, complete=True), segments(2)),
        (segments(1), {"result": DONE}),
        (segments(1), {"result": {"task": task(taskId="another")}}),
        ({"result": {"isError": False}},),
        ({"result": {"partial-content": [], "isComplete": True}},),
    ],
)
async def test_streaming_answers_that_the_seed_forbids_are_errors(
    server: ScriptedServer, client: DraftClient, parts: Sequence[Mapping[str, Any]]
) -> None:
    server.on("tools/call", stream(*parts))
    server.on("tasks/get", result(**task()))
    with pytest.raises(ProtocolError):
        await client.stream_tool("t")


async def test_a_server_that_cannot_resume_is_asked_for_the_whole_result(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(1), BREAK))
    server.on("tasks/get", result(**task("completed")))
    server.on(
        "tasks/result", error(-32603, "resumption is not supported"), result(content=content(1, 2), isError=False)
    )
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2), "isError": False}
    assert [params.get("lastSeqNr") for params in server.params("tasks/result")] == [1, None]


async def test_a_server_that_resumes_from_the_beginning_is_understood(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(1, 2), BREAK))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", Plain({"result": segments(1, 2, 3, complete=True)["result"]}))
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2, 3), "isError": False}
    assert call.tracker is not None
    assert call.tracker.duplicates == [1, 2]


async def test_the_first_segment_missing_there_is_no_number_to_resume_from(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(2, complete=True)))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", result(content=content(1, 2), isError=False))
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2), "isError": False}
    assert call.resumed_after == []


async def test_a_stream_that_stays_open_after_the_end_of_its_task_is_left(
    server: ScriptedServer, client: DraftClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.wires.draft.streaming.GRACE_SECONDS", 0.0)
    server.on("tools/call", stream(segments(1), server.until(lambda: False)))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", Plain({"result": segments(2, complete=True)["result"]}))
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2), "isError": False}


async def test_a_refused_call_is_an_error(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tools/call", error(-32601, "the tool does not run as a task"))
    with pytest.raises(RpcError, match="does not run as a task"):
        await client.stream_tool("t")


async def test_a_replica_that_cannot_be_reached_while_resuming_is_tried_again_elsewhere(
    server: ScriptedServer,
) -> None:
    server.on("tools/call", stream(segments(1), BREAK))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", stream(BREAK), Plain({"result": segments(2, complete=True)["result"]}))
    async with DraftClient(server.urls, longest_poll_seconds=0.01) as client:
        call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2), "isError": False}
    assert call.resumed_after == [1, 1]
