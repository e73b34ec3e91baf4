"""The checklist for clients in the seed of result streaming, line by line, against a server that plays its examples."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import MODES
from tests.wires.draft.scripted_server import (
    BREAK,
    RELATED_TASK,
    TASK_ID,
    Plain,
    ScriptedServer,
    content,
    error,
    result,
    segments,
    stream,
    task,
)
from tests.wires.draft.streaming import StreamedCall

WEATHER = [
    {"type": "text", "text": "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"},
    {"type": "text", "text": "Suggested activities:\n- Visit Central Park\n- Explore the Metropolitan Museum of Art"},
    {
        "type": "video",
        "text": "Here is a short video overview of New York City attractions.",
        "url": "https://example.com/nyc_overview.mp4",
    },
]
RELATED = {RELATED_TASK: {"taskId": TASK_ID}}
NOT_FOUND = error(-32602, "Failed to retrieve task: Task not found")
EXPIRED = error(-32602, "Failed to retrieve task: Task has expired")


def never() -> bool:
    return False


def weather(*numbers: int, complete: bool = False) -> dict[str, Any]:
    blocks = [{"seqNr": number, **WEATHER[number - 1]} for number in numbers]
    return {"result": {"partial-content": blocks, "isError": False, "isComplete": complete, "_meta": RELATED}}


def resumed(*numbers: int, complete: bool = False, is_error: bool = False) -> Plain:
    return Plain({"result": segments(*numbers, complete=complete, is_error=is_error)["result"]})


async def test_capability_negotiation_the_client_declares_the_modes_it_supports(
    server: ScriptedServer, client: DraftClient
) -> None:
    declared = {"tasks": {"responses": {"modes": ["task", "immediate", "streaming"]}}}
    server.on(
        "initialize",
        Plain(
            {"result": {"protocolVersion": "DRAFT-2026-v1", "capabilities": declared}}, headers={"mcp-session-id": "s"}
        ),
    )
    await client.initialize()
    assert server.params("initialize")[0]["capabilities"]["tasks"] == declared["tasks"]
    assert client.server["capabilities"] == declared


@pytest.mark.parametrize("modes", [MODES, ["streaming"], [], None])
async def test_mode_specification_the_client_names_its_modes_in_task_augmented_requests(
    server: ScriptedServer, client: DraftClient, modes: Any
) -> None:
    server.on("tools/call", result(content=WEATHER, isError=False))
    await client.stream_tool("get_weather", {"city": "New York"}, modes=modes, ttl=60000)
    (params,) = server.params("tools/call")
    assert params["arguments"] == {"city": "New York"}
    assert params["task"] == {"ttl": 60000, **({} if modes is None else {"responseModes": list(modes)})}


@pytest.mark.parametrize("with_task", [True, False])
async def test_immediate_mode_the_client_processes_a_result_with_content_at_once(
    server: ScriptedServer, client: DraftClient, with_task: bool
) -> None:
    meta = {"meta": RELATED} if with_task else {}
    server.on("tools/call", result(content=WEATHER, isError=False, **meta))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", result(content=WEATHER, isError=False, meta=RELATED))
    call = await client.stream_tool("get_weather")
    assert call.result is not None
    assert (call.mode, call.result["content"], call.ending) == ("immediate", WEATHER, "completed")
    assert call.task_id == (TASK_ID if with_task else "")
    if with_task:
        assert (await client.task_result(call.task_id)).result == call.result


@pytest.mark.parametrize("fallback", [True, False])
async def test_task_mode_the_client_polls_the_status_and_retrieves_the_final_result(
    server: ScriptedServer, client: DraftClient, fallback: bool
) -> None:
    meta = {"meta": {"io.modelcontextprotocol/fallback-mode": "task"}} if fallback else {}
    server.on("tools/call", result(task=task(), **meta))
    server.on("tasks/get", result(**task()), result(**task()), result(**task("completed")))
    server.on("tasks/result", result(content=WEATHER, isError=False, meta=RELATED))
    call = await client.stream_tool("get_weather", modes=["task"])
    assert call.result is not None
    assert (call.mode, call.fallback, call.ending) == ("task", fallback, "completed")
    assert call.result["content"] == WEATHER
    assert len(server.messages("tasks/get")) >= 3
    assert server.params("tasks/result") == [{"taskId": TASK_ID}]


@pytest.mark.parametrize("first", ["partial-content", "task", "both"])
async def test_streaming_mode_the_client_handles_partial_content_and_tracks_segments(
    server: ScriptedServer, client: DraftClient, first: str
) -> None:
    both = {"task": task(), **weather(1)["result"]}
    both.pop("_meta")
    parts = {
        "partial-content": (weather(1, 2), weather(3, complete=True)),
        "task": ({"result": {"task": task()}}, weather(1, 2), weather(3, complete=True)),
        "both": ({"result": both}, weather(2), weather(3, complete=True)),
    }
    server.on("tools/call", stream(*parts[first]))
    server.on("tasks/get", result(**task()), result(**task("completed")))
    call = await client.stream_tool("get_weather")
    assert call.tracker is not None
    assert (call.mode, call.task_id, call.tracker.task_id) == ("streaming", TASK_ID, TASK_ID)
    assert call.result == {"content": WEATHER, "isError": False}
    assert call.ending == "completed"


async def test_segment_tracking_the_client_keeps_the_numbers_received(
    server: ScriptedServer, client: DraftClient
) -> None:
    told: list[tuple[list[int], int, bool]] = []

    async def look(call: StreamedCall) -> None:
        assert call.tracker is not None
        told.append((sorted(call.tracker.received_seq_nrs), call.tracker.highest_seq_nr, call.tracker.is_complete))

    server.on("tools/call", stream(segments(2), segments(2, 1), segments(), segments(3, complete=True)))
    server.on("tasks/get", result(**task("completed")))
    await client.stream_tool("t", on_response=look)
    assert told == [([2], 2, False), ([1, 2], 2, False), ([1, 2], 2, False), ([1, 2, 3], 3, True)]


async def test_sse_handling_the_client_parses_messages_from_events(server: ScriptedServer, client: DraftClient) -> None:
    example = (
        b'event: message\nid: event-123\ndata: {"jsonrpc":"2.0","id":1,"result":{"partial-content":[{"seqNr":1,'
        b'"type":"text","text":"Additional segment"}],"isComplete":false,"_meta":{'
        b'"io.modelcontextprotocol/related-task":{"taskId":"786512e2-9e0d-44bd-8f29-789f320fe840"}}}}\n\n'
    )
    status = {"method": "notifications/tasks/status", "params": task(statusMessage="half")}
    server.on("tools/call", stream(b": hello\n\n", example, status, segments(2, complete=True)))
    server.on("tasks/get", result(**task("completed")))
    call = await client.stream_tool("t")
    assert call.result is not None
    assert call.result["content"] == [{"type": "text", "text": "Additional segment"}, *content(2)]
    assert {"jsonrpc": "2.0", **status} in client.received(call.request_id)


async def test_deduplication_the_client_ignores_duplicates_by_their_numbers(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(1), segments(1, 2), BREAK))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", resumed(2, 3, complete=True))
    call = await client.stream_tool("t")
    assert call.tracker is not None
    assert call.tracker.duplicates == [1, 2]
    assert call.result == {"content": content(1, 2, 3), "isError": False}


@pytest.mark.parametrize("complete", [True, False])
async def test_gap_detection_the_client_requests_missing_segments(
    server: ScriptedServer, client: DraftClient, complete: bool
) -> None:
    server.on("tools/call", stream(segments(1), segments(3), segments(5, complete=complete)))
    server.on("tasks/get", result(**task("completed")))
    server.on("tasks/result", resumed(2, 3, 4, 5, complete=True))
    call = await client.stream_tool("t")
    assert server.params("tasks/result") == [{"taskId": TASK_ID, "lastSeqNr": 1}]
    assert call.result == {"content": content(1, 2, 3, 4, 5), "isError": False}


async def test_segment_merging_the_client_merges_in_order_and_without_numbers(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(weather(3), weather(2), weather(1, complete=True)))
    server.on("tasks/get", result(**task("completed")))
    call = await client.stream_tool("get_weather")
    assert call.result == {"content": WEATHER, "isError": False}
    assert not server.messages("tasks/result")


@pytest.mark.parametrize("by_stream", [True, False])
async def test_completion_detection_the_client_goes_by_is_complete(
    server: ScriptedServer, client: DraftClient, by_stream: bool
) -> None:
    server.on("tools/call", stream(segments(1, 2), *([segments(complete=True)] if by_stream else [])))
    server.on("tasks/get", result(**task()), result(**task("completed")))
    server.on("tasks/result", resumed(), resumed(3), resumed(complete=True))
    call = await client.stream_tool("t")
    assert call.tracker is not None
    assert call.tracker.is_complete
    assert call.result == {"content": content(1, 2) if by_stream else content(1, 2, 3), "isError": False}
    assert call.resumed_after == ([] if by_stream else [2, 2, 3])


async def test_error_handling_a_task_that_fails_with_segments_ends_in_an_error_result(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(1), segments(2, complete=True, is_error=True)))
    server.on("tasks/get", result(**task()), result(**task("failed")))
    call = await client.stream_tool("t")
    assert (call.ending, call.result) == ("failed", {"content": content(1, 2), "isError": True})


async def test_error_handling_a_task_that_fails_without_segments_ends_in_ordinary_content(
    server: ScriptedServer, client: DraftClient
) -> None:
    failure = {"content": content(1), "isError": True, "isComplete": True, "_meta": RELATED}
    server.on("tools/call", stream({"result": {"task": task()}}, {"result": failure}))
    server.on("tasks/get", result(**task("failed")))
    call = await client.stream_tool("t")
    assert (call.ending, call.result) == ("failed", failure)


@pytest.mark.parametrize("with_final_response", [True, False])
async def test_error_handling_a_cancelled_task_ends_with_what_has_arrived(
    server: ScriptedServer, client: DraftClient, with_final_response: bool
) -> None:
    def cancelled() -> bool:
        return bool(server.messages("tasks/cancel"))

    async def cancel(call: StreamedCall) -> None:
        if not cancelled():
            assert (await client.cancel_task(call.task_id))["status"] == "cancelled"

    last = [segments(complete=True)] if with_final_response else []
    server.on("tools/call", stream(segments(1), server.until(cancelled), *last))
    server.on("tasks/get", lambda _: result(**task("cancelled" if cancelled() else "working")))
    server.on("tasks/cancel", result(**task("cancelled")))
    server.on("tasks/result", resumed(complete=True))
    call = await client.stream_tool("t", on_response=cancel)
    assert (call.ending, call.result) == ("cancelled", {"content": content(1), "isError": False})


@pytest.mark.parametrize("broken", [True, False])
async def test_error_handling_an_expired_task_is_incomplete_and_keeps_what_has_arrived(
    server: ScriptedServer, client: DraftClient, broken: bool
) -> None:
    server.on("tools/call", stream(segments(1), BREAK if broken else server.until(never)))
    server.on("tasks/get", *([] if broken else [result(**task())]), EXPIRED)
    server.on("tasks/result", NOT_FOUND)
    call = await client.stream_tool("t")
    assert call.tracker is not None
    assert (call.ending, call.result, call.tracker.is_complete) == ("expired", None, False)
    assert call.tracker.merged() == content(1)
    assert call.resumed_after == [1]


async def test_error_handling_of_an_expired_task_the_segments_still_there_are_fetched(
    server: ScriptedServer, client: DraftClient
) -> None:
    server.on("tools/call", stream(segments(1), server.until(never)))
    server.on("tasks/get", result(**task()), EXPIRED)
    server.on("tasks/result", resumed(2, complete=True))
    call = await client.stream_tool("t")
    assert call.result == {"content": content(1, 2), "isError": False}


@pytest.mark.parametrize("who", ["server", "client"])
async def test_resume_support_the_client_goes_on_after_a_break_at_another_replica(
    server: ScriptedServer, client: DraftClient, who: str
) -> None:
    server.on("tools/call", stream(segments(1, 2, 3), BREAK if who == "server" else server.until(never)))
    server.on("tasks/get", result(**task()), result(**task("completed")))
    server.on("tasks/result", resumed(4, 5), resumed(6, complete=True))
    call = await client.stream_tool("t", break_after=3 if who == "client" else None)
    assert call.result == {"content": content(1, 2, 3, 4, 5, 6), "isError": False}
    assert [params["lastSeqNr"] for params in server.params("tasks/result")] == call.resumed_after == [3, 5]
    assert client.urls_of("tools/call") + client.urls_of("tasks/result") == [*server.urls, server.urls[0]]
    request_ids = [message["id"] for message in client.sent() if "id" in message]
    assert len(set(request_ids)) == len(request_ids)
    ended = next(seen.kind for seen in client.log if seen.kind in {"broken", "left"})
    assert ended == ("broken" if who == "server" else "left")
