"""Results in segments (SEP-1905), over two replicas and a worker.

Scenarios and lines of the checklist are named as the proposal names them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from gateway.protocol.draft.streaming import STATUS
from gateway.storage.lua.task_scripts import READ
from loadtest.cluster import Replica, wait_until
from tests.chaos.door import Door, runs
from tests.proposals.examples import assert_contains, example, fill
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.first_form import ADA, NOT_FOUND, refusal, without_streams
from tests.wires.draft.messages import is_response, related_task_id
from tests.wires.draft.scripted_server import ScriptedServer, content, result, segments, stream, task
from tests.wires.draft.segments import SegmentTracker
from tests.wires.draft.streamed import EXAMPLE_ID, numbers, only_task, results, segment, wishing, with_links
from tests.wires.draft.streaming_tools import SECRET, WHY
from tests.wires.draft.transport import RpcError
from tests.wires.draft.under_way import UnderWay, joined_by, under_way
from tests.wires.draft.written import say

STREAMING: Final = ["streaming"]
TTL_MS: Final = 2500
LEASE_SECONDS: Final = "1"
GONE: Final = "The task has expired or was deleted"


class Held(NamedTuple):
    """A replica that waits for the test before it first reads the next task. A door controls its store."""

    door: Door
    replica: Replica
    go_on: threading.Event


@pytest.fixture
def held(fleet: Deployment, redis: Server) -> Iterator[Held]:
    go_on = threading.Event()
    with ExitStack() as stack:
        door = stack.enter_context(Door(redis))
        stack.callback((redis.directory / "door").unlink)
        replica = stack.enter_context(joined_by(fleet, "held", GATEWAY_REDIS_URL=door.url))
        stack.callback(go_on.set)
        door.trap(runs(READ), go_on.wait)
        yield Held(door, replica, go_on)


def streamed(user: DraftClient, tool: str, /, **arguments: Any) -> Any:
    """Have a call under way whose result is streamed."""
    return under_way(user, "tools/call", wishing(STREAMING, tool, **arguments))


async def task_of(request: UnderWay) -> str:
    """Wait for the first response, and return the task that it names."""
    message = await request.until(is_response)
    task_id = related_task_id(message["result"])
    assert task_id is not None
    return task_id


def merged(*told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content that complete results make, as the reference client merges it; nothing comes twice."""
    tracker = SegmentTracker("")
    for one in told:
        tracker.add(one)
    assert tracker.whole
    assert tracker.duplicates == []
    return tracker.merged()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# The scenarios


async def test_streaming_mode_initial_response_only(
    user: DraftClient, held: Held, client_of: ClientOf, name: str
) -> None:
    async with streamed(client_of(name, urls=[held.replica.url]), "recite", gate=name, count=3) as request:
        task_id = await only_task(user)
        assert (await user.finish_task(task_id)).status == "completed"
        held.go_on.set()
        messages = await request.end()
    (only,) = results(messages)
    assert only["isComplete"] is True
    assert related_task_id(only) == task_id
    assert merged(only) == content(1, 2, 3)


async def test_streaming_mode_multiple_responses(
    fleet: Deployment, user: DraftClient, held: Held, client_of: ClientOf, name: str
) -> None:
    shown = example("streaming_events")
    first, last = shown["the first response, with segments"].answer, shown["the next response, which is the last one"]
    there = client_of(name, urls=[held.replica.url])
    async with streamed(there, "tour", city="New York", gate=name) as request:
        live = {EXAMPLE_ID: await only_task(user)}
        while not numbers((await user.task_result(live[EXAMPLE_ID], last_seq_nr=1)).result):
            await user.wait_between_polls({})
        held.go_on.set()
        await task_of(request)
        fleet.open(name)
        messages = await request.end()
    responses = [message for message in messages if is_response(message)]
    assert_contains(responses[0], with_links(first), live=live)
    assert_contains(responses[-1], with_links(last.message), live=live)
    assert len(responses) == 2
    assert first is not None
    assert last.message is not None
    expected = [first["result"]["partial-content"], last.message["result"]["partial-content"]]
    assert [one["partial-content"] for one in results(responses)] == with_links(expected)


async def test_streaming_mode_sse_stream(fleet: Deployment, user: DraftClient, name: str) -> None:
    event = example("streaming_events")["the data of one event"].message
    async with streamed(user, "recite", gate=name, count=3, stops=[1, 2, 3, 4]) as request:
        task_id = await task_of(request)
        for number in (1, 2, 3):
            fleet.open(f"{name}-{number}")
            third = await segment(request, number)
        assert_contains(third, event, live={EXAMPLE_ID: task_id})
        fleet.open(f"{name}-4")
        messages = await request.end()
    assert request.headers["content-type"] == "text/event-stream"
    for message in messages:
        assert message.get("id") == (None if "method" in message else request.request_id)
    assert merged(*results(messages)) == content(1, 2, 3)
    assert len(results(messages)) >= 4


async def test_streaming_mode_resume_with_last_seq_nr(fleet: Deployment, user: DraftClient, name: str) -> None:
    async with streamed(user, "recite", gate=name, count=6, stops=[4]) as request:
        task_id = await task_of(request)
        await segment(request, 3)
    fleet.open(f"{name}-4")
    await user.poll(task_id, lambda task: False)
    resumed = await user.task_result(task_id, last_seq_nr=3, after=request.url)
    assert resumed.url != request.url
    assert resumed.request_id != request.request_id
    assert numbers(resumed.result) == [4, 5, 6]
    assert merged(*results(request.messages), resumed.result) == content(1, 2, 3, 4, 5, 6)

    step = example("streaming_resume")["what comes after segment 2"]
    async with streamed(user, "tour", city="New York") as request:
        live = {EXAMPLE_ID: await task_of(request)}
        await request.end()
    for _ in fleet.urls:
        said = await say(user, fill(step.request, live))
        assert_contains(said.response, with_links(step.answer), live=live)
        assert said.response["id"] == 4


async def test_streaming_mode_gap_detection(fleet: Deployment, user: DraftClient, name: str) -> None:
    async with streamed(user, "recite", gate=name, count=5, stops=[6]) as request:
        await segment(request, 5)
        tracker = SegmentTracker(await task_of(request))
        for told in results(request.messages):
            arrived = [block for block in told["partial-content"] if block["seqNr"] % 2]
            tracker.add({**told, "partial-content": arrived})
        assert (tracker.missing, tracker.last_seq_nr) == ([2, 4], 1)
        again = await user.task_result(tracker.task_id, last_seq_nr=tracker.last_seq_nr, after=request.url)
        assert numbers(again.result) == [2, 3, 4, 5]
        assert tracker.add(again.result) == [2, 4]
        assert (tracker.missing, tracker.merged()) == ([], content(1, 2, 3, 4, 5))
        assert tracker.conflicts == []
        fleet.open(f"{name}-6")
        await request.end()


async def test_ttl_expiration_during_streaming(user: DraftClient, name: str) -> None:
    async with streamed(user, "recite", gate=name, count=3, stops=[2], ttl=TTL_MS) as request:
        task_id = await task_of(request)
        await segment(request, 1)
        messages = await request.end()
    *before, last = results(messages)
    assert is_response(messages[-1])
    assert last["content"] == [{"type": "text", "text": GONE}]  # without a number, which the tool may have used
    assert (last["isError"], last["isComplete"]) == (True, True)
    assert numbers(*before) == [1]
    assert not any(told["isComplete"] for told in before)
    for _ in range(2):
        assert (await refusal(user.get_task(task_id))).message == NOT_FOUND


async def test_task_cancellation_during_streaming(fleet: Deployment, user: DraftClient, name: str) -> None:
    async with streamed(user, "recite", gate=name, count=3, stops=[3]) as request:
        task_id = await task_of(request)
        await segment(request, 2)
        assert (await user.cancel_task(task_id))["status"] == "cancelled"
        fleet.open(f"{name}-3")
        messages = await request.end()
    told = results(messages)
    assert (told[-1]["isComplete"], told[-1]["isError"]) == (True, False)
    assert told[-1]["_meta"][STATUS] == "cancelled"
    changes = [message["params"]["status"] for message in messages if message.get("method", "").endswith("/status")]
    assert changes[-1] == "cancelled"
    resumed = (await user.task_result(task_id, last_seq_nr=1)).result
    assert (numbers(resumed), resumed["_meta"][STATUS]) == ([2], "cancelled")
    assert numbers(*told) == [1, 2]
    assert is_response(messages[-1])
    assert (await user.get_task(task_id))["status"] == "cancelled"


async def test_task_failure_during_streaming(
    fleet: Deployment, user: DraftClient, held: Held, client_of: ClientOf, name: str
) -> None:
    async with streamed(user, "recite", gate=name, count=2, stops=[3], end="protocol error") as request:
        await segment(request, 2)
        fleet.open(f"{name}-3")
        messages = await request.end()
    last = results(messages)[-1]
    assert last["partial-content"] == [{**text(WHY), "seqNr": 3}]
    assert (last["isError"], last["isComplete"]) == (True, True)
    assert merged(*results(messages)) == [*content(1, 2), text(WHY)]
    assert (await user.get_task(await task_of(request)))["status"] == "failed"

    other = client_of(f"{name}-other", urls=[held.replica.url])
    watching = client_of(f"{name}-other", urls=user.transport.urls)
    async with streamed(other, "recite", gate=name, count=2, end="protocol error") as request:
        await watching.finish_task(await only_task(watching))
        held.go_on.set()
        (only,) = results(await request.end())
    assert merged(only) == [*content(1, 2), text(WHY)]
    assert only["isError"] is True


async def test_duplicate_segment_detection(server: ScriptedServer, client: DraftClient) -> None:
    server.on("tools/call", stream(segments(1, 2), segments(2, 3), segments(4, complete=True)))
    server.on("tasks/get", result(**task("completed")))
    streamed = await client.stream_tool("t")
    assert streamed.tracker is not None
    assert streamed.tracker.duplicates == [2]
    assert streamed.result == {"content": content(1, 2, 3, 4), "isError": False}


async def test_mixed_mechanisms(fleet: Deployment, user: DraftClient, name: str) -> None:
    """The first response, events after it, and `tasks/result` meanwhile."""
    async with streamed(user, "recite", gate=name, count=5, stops=[2, 4]) as request:
        tracker = SegmentTracker(await task_of(request))
        await segment(request, 1)
        fleet.open(f"{name}-2")
        await segment(request, 3)
        asked = await user.task_result(tracker.task_id, last_seq_nr=1, after=request.url)
        fleet.open(f"{name}-4")
        told = results(await request.end())
    for one in (*told[:1], asked.result, *told[1:]):
        tracker.add(one)
    assert numbers(*told) == [1, 2, 3, 4, 5]
    assert numbers(asked.result) == [2, 3]
    assert sorted(tracker.duplicates) == [2, 3]
    assert tracker.conflicts == []
    assert (tracker.whole, tracker.merged()) == (True, content(1, 2, 3, 4, 5))


# The server's checklist


async def test_checklist_streaming_mode(fleet: Deployment, user: DraftClient, name: str) -> None:
    async with streamed(user, "recite", gate=name, count=2, stops=[1, 2, 3]) as request:
        task_id = await task_of(request)
        assert [task["taskId"] for task in await user.all_tasks()] == [task_id]
        for number in (1, 2):
            fleet.open(f"{name}-{number}")
            await segment(request, number)
            assert (await user.get_task(task_id))["status"] == "working"
        assert not any(told["isComplete"] for told in results(request.messages))
        fleet.open(f"{name}-3")
        messages = await request.end()
    assert {related_task_id(told) for told in results(messages)} == {task_id}
    assert not any("task" in told for told in results(messages))
    quick = await user.stream_tool("say", {"call": name}, modes=STREAMING)
    assert quick.mode == "streaming"
    assert {task["taskId"] for task in await user.all_tasks()} == {task_id, quick.task_id}


async def test_checklist_segment_numbering(fleet: Deployment, user: DraftClient, name: str) -> None:
    """Over a question, a lost worker, and a checkpoint from which another worker continues."""
    with fleet.worked_by("w2", GATEWAY_TASK_LEASE_SECONDS=LEASE_SECONDS):
        async with streamed(user, "travel", gate=name) as request:
            task_id = await task_of(request)
            await user.poll(task_id, lambda task: task["status"] == "input_required")
            await user.answer_task(task_id, {"name": ADA})
            await segment(request, 1)
            fleet.open(f"{name}-1")
            await segment(request, 3)
            fleet.worker("w2").kill()
            fleet.worker("w2").restart()
            await asyncio.to_thread(fleet.wait_for_lines, name, 3)
            fleet.open(f"{name}-2")
            fleet.open(f"{name}-3")
            messages = await request.end()
    assert fleet.lines(name) == ["w2 day 1", "w2 day 1", "w2 day 2", "Ada is home"]
    assert numbers(*results(messages)) == [1, 2, 3, 4, 5, 6]
    assert merged(*results(messages)) == content(1, 2, 3, 4, 5, 6)


async def test_checklist_sse_format(user: DraftClient, client_of: ClientOf, name: str) -> None:
    body = await asyncio.to_thread(read_raw, user, wishing(STREAMING, "recite", gate=name, count=3))
    head, _, rest = body.partition(b"\r\n\r\n")
    assert b"content-type: text/event-stream" in head.lower()
    events = [event.split(b"\n") for event in unchunked(rest).split(b"\n\n") if event]
    told = []
    for lines in events:
        (data,) = [line for line in lines if line.startswith(b"data: ")]
        assert set(lines) <= {data, b"event: message"}
        told.append(msgspec.json.decode(data.removeprefix(b"data: ")))
    assert {message["id"] for message in told if is_response(message)} == {"raw"}
    assert merged(*results(told)) == content(1, 2, 3)

    quiet = without_streams(client_of(name))
    reply = await quiet.send("tools/call", wishing(STREAMING, "recite", gate=name, count=3))
    assert reply.headers["content-type"] == "application/json"
    finished = await quiet.finish_task(reply.result["task"]["taskId"])
    assert finished.result is not None
    assert finished.result["content"] == content(1, 2, 3)


async def test_checklist_no_duplicates(fleet: Deployment, user: DraftClient, name: str) -> None:
    """As fast as they come, and while others ask for them."""
    count = 200
    async with streamed(user, "recite", gate=name, count=count, stops=[100]) as request:
        task_id = await task_of(request)
        await segment(request, 99)
        for last in (1, 50, 98):
            assert numbers((await user.task_result(task_id, last_seq_nr=last)).result) == list(range(last + 1, 100))
        fleet.open(f"{name}-100")
        messages = await request.end()
    assert numbers(*results(messages)) == list(range(1, count + 1))


async def test_checklist_completion(fleet: Deployment, user: DraftClient, name: str) -> None:
    for case in range(5):
        async with streamed(user, "recite", gate=f"{name}-{case}", count=case) as request:
            task_id = await task_of(request)
            await request.until(lambda message: is_response(message) and message["result"]["isComplete"])
            for _ in fleet.urls:
                assert (await user.get_task(task_id))["status"] == "completed"
            messages = await request.end()
        assert [told["isComplete"] for told in results(messages)].index(True) == len(results(messages)) - 1
        assert is_response(messages[-1])
        assert numbers(*results(messages)) == list(range(1, case + 1))


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("end", ["protocol error", "error result", "bug"])
async def test_checklist_error_handling(user: DraftClient, name: str, end: str, count: int) -> None:
    async with streamed(user, "recite", gate=name, count=count, end=end) as request:
        messages = await request.end()
    last = results(messages)[-1]
    check_failure(last, count)
    shown = last["partial-content" if count else "content"][-1]["text"]
    assert shown != WHY if end == "bug" else shown == WHY
    assert SECRET not in shown
    assert (await user.get_task(await task_of(request)))["status"] == "failed"


def check_failure(last: dict[str, Any], count: int) -> None:
    """Check the last response of a task that failed after so many segments."""
    assert (last["isError"], last["isComplete"]) == (True, True)
    if count:
        assert last["partial-content"][-1]["seqNr"] == count + 1
    else:
        assert "partial-content" not in last
        assert len(last["content"]) == 1


@pytest.mark.parametrize("count", [0, 2])
async def test_checklist_error_handling_of_lost_workers(
    fleet: Deployment, user: DraftClient, name: str, count: int
) -> None:
    with fleet.worked_by("w2", GATEWAY_TASK_LEASE_SECONDS=LEASE_SECONDS):
        async with streamed(user, "recite_once", gate=name, count=count) as request:
            await asyncio.to_thread(fleet.wait_for_lines, name)
            if count:
                await segment(request, count)
            fleet.worker("w2").kill()
            fleet.worker("w2").restart()
            messages = await request.end()
    check_failure(results(messages)[-1], count)
    assert fleet.lines(name) == ["w2"]
    assert (await user.get_task(await task_of(request)))["status"] == "failed"


@pytest.mark.parametrize("count", [0, 1])
async def test_checklist_ttl_handling(user: DraftClient, name: str, count: int) -> None:
    """Before the first segment, between two, and while a client resumes."""
    async with streamed(user, "recite", gate=name, count=3, stops=[count + 1], ttl=TTL_MS) as request:
        task_id = await task_of(request)
        last = max(1, count)
        with suppress(RpcError):
            while True:
                more = (await user.task_result(task_id, last_seq_nr=last)).result
                assert (more["partial-content"], more["isComplete"]) == ([], False)
                await user.wait_between_polls({})
        assert (await refusal(user.task_result(task_id, last_seq_nr=last))).message == NOT_FOUND
        messages = await request.end()
    told = results(messages)
    assert numbers(*told) == list(range(1, count + 1))
    assert told[-1]["content"] == [{"type": "text", "text": GONE}]
    assert [one["isComplete"] for one in told] == [False] * (len(told) - 1) + [True]
    assert (await refusal(user.task_result(task_id))).message == NOT_FOUND


@pytest.mark.parametrize("modes", [["streaming"], ["task"]])
async def test_checklist_resume_support(fleet: Deployment, client_of: ClientOf, name: str, modes: list[str]) -> None:
    """From every replica, while the task runs and after its end; also of a task that is not streamed."""
    readers = [client_of(name, urls=[url]) for url in fleet.urls]
    async with under_way(readers[0], "tools/call", wishing(modes, "recite", gate=name, count=6, stops=[4])) as request:
        task_id = await only_task(readers[0])
        while not numbers((await readers[0].task_result(task_id, last_seq_nr=2)).result):
            await readers[0].wait_between_polls({})
        for reader in readers:
            for last in (1, 2):
                told = (await reader.task_result(task_id, last_seq_nr=last)).result
                assert (numbers(told), told["isComplete"]) == (list(range(last + 1, 4)), False)
        fleet.open(f"{name}-4")
        await request.end()
    await readers[0].poll(task_id, lambda task: False)
    for reader in readers:
        for last in range(1, 6):
            told = (await reader.task_result(task_id, last_seq_nr=last)).result
            assert (numbers(told), told["isComplete"]) == (list(range(last + 1, 7)), True)
            assert related_task_id(told) == task_id


# What else there is to segments


@pytest.mark.parametrize("number", [0, -1, 1.5, "1", True, [1]])
async def test_a_last_seq_nr_that_is_no_positive_integer_is_refused(user: DraftClient, name: str, number: Any) -> None:
    done = await user.stream_tool("recite", {"gate": name, "count": 2}, modes=STREAMING)
    error = await refusal(user.request("tasks/result", {"taskId": done.task_id, "lastSeqNr": number}))
    assert "params.lastSeqNr" in error.message


async def test_a_last_seq_nr_that_equals_the_highest_gets_nothing_yet(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    await check_nothing_after(2, fleet, user, name)


async def test_a_last_seq_nr_beyond_the_highest_gets_nothing(fleet: Deployment, user: DraftClient, name: str) -> None:
    for number in (3, 7, 2**53, 10**30):
        await check_nothing_after(number, fleet, user, f"{name}-{number}")


async def check_nothing_after(number: int, fleet: Deployment, user: DraftClient, gate: str) -> None:
    """Check that nothing comes after a segment of a task with two of them, and that only the end completes it."""
    async with streamed(user, "recite", gate=gate, count=2, stops=[3]) as request:
        task_id = await task_of(request)
        await segment(request, 2)
        for complete in (False, True):
            for _ in fleet.urls:
                told = (await user.task_result(task_id, last_seq_nr=number)).result
                assert (told["partial-content"], told["isComplete"], told["isError"]) == ([], complete, False)
            fleet.open(f"{gate}-3")
            await request.end()


async def test_without_last_seq_nr_the_merged_result_comes_at_the_end(
    fleet: Deployment, user: DraftClient, client_of: ClientOf, name: str
) -> None:
    async with streamed(user, "recite", gate=name, count=3, stops=[3]) as request:
        task_id = await task_of(request)
        async with under_way(client_of(name), "tasks/result", {"taskId": task_id}) as waiting:
            await waiting.hear("notifications/tasks/status")
            await segment(request, 2)
            assert not any(is_response(message) for message in waiting.messages)
            fleet.open(f"{name}-3")
            response = await waiting.response()
        told = results(await request.end())
    assert response["result"]["content"] == merged(*told) == content(1, 2, 3)
    assert response["result"]["isError"] is False

    failed = await user.stream_tool("recite", {"gate": name, "count": 2, "end": "error result"}, modes=STREAMING)
    final = (await user.task_result(failed.task_id)).result
    assert (final["content"], final["isError"]) == ([*content(1, 2), text(WHY)], True)

    broken = await user.stream_tool("recite", {"gate": name, "count": 2, "end": "protocol error"}, modes=STREAMING)
    with pytest.raises(RpcError) as repeated:
        await user.task_result(broken.task_id)
    assert (repeated.value.code, repeated.value.message) == (-32000, WHY)

    async with streamed(user, "recite", gate=f"{name}-cancelled", count=3, stops=[2]) as request:
        task_id = await task_of(request)
        await user.cancel_task(task_id)
    final = (await user.task_result(task_id)).result
    assert final["isError"] is True
    assert related_task_id(final) == task_id


async def test_the_merged_result_has_structured_content_and_the_other_fields(user: DraftClient) -> None:
    async with streamed(user, "everything") as request:
        task_id = await task_of(request)
        told = results(await request.end())
    more = {"method": "tasks/result", "fields": ["structuredContent"]}
    assert [one["_meta"].get("dev.sealedgateway/more") for one in told] == [None] * (len(told) - 1) + [more]
    rest = (await user.task_result(task_id, last_seq_nr=1)).result
    assert rest["_meta"]["dev.sealedgateway/more"] == more
    final = (await user.task_result(task_id)).result
    assert final["content"] == merged(*told)
    assert [block["type"] for block in final["content"]] == ["image", "resource_link", "resource"]
    assert final["structuredContent"] == {"rooms": 3}
    assert final["isError"] is False
    assert related_task_id(final) == task_id


async def test_a_streaming_task_may_wait_for_input(fleet: Deployment, user: DraftClient) -> None:
    async with streamed(user, "ask_between") as request:
        task_id = await task_of(request)
        await segment(request, 1)
        await request.until(lambda message: message.get("params", {}).get("status") == "input_required")
        for _ in fleet.urls:
            assert (await user.get_task(task_id))["status"] == "input_required"
        assert set(await user.pending_questions(task_id)) == {"name"}
        await user.answer_task(task_id, {"name": ADA})
        messages = await request.end()
    assert merged(*results(messages)) == [text("segment 1"), text("Hello Ada"), text("segment 3")]
    assert not any("method" in message and "id" in message for message in messages)


async def test_a_client_that_never_reads_is_cut_off_and_can_resume(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    count, size = 30, 100_000
    with joined_by(fleet, "strict", GATEWAY_UNREAD_SECONDS="1") as strict:
        there = client_of(name, urls=[strict.url])
        params = wishing(STREAMING, "pour", count=count, size=size)

        def cut_off() -> None:
            refused = strict.metric("gateway_requests_refused_total", reason="slow_reader")
            wait_until(
                lambda: strict.metric("gateway_requests_refused_total", reason="slow_reader") > refused, "the cut"
            )

        body = await asyncio.to_thread(read_raw, there, params, cut_off)
        assert b'"isComplete":true' not in body
        assert len(body) < count * size
    user = client_of(name, urls=[fleet["r1"].url, fleet["r2"].url])
    task_id = await only_task(user)
    await user.poll(task_id, lambda task: False)
    told = (await user.task_result(task_id, last_seq_nr=1)).result
    assert (numbers(told), told["isComplete"]) == (list(range(2, count + 1)), True)
    final = (await user.task_result(task_id)).result
    assert final["content"] == [text("x" * size)] * count


async def test_a_stream_outlasts_a_store_that_does_not_answer(held: Held, client_of: ClientOf, name: str) -> None:
    held.go_on.set()
    cuts = [
        held.door.trap(lambda command: command.parts[0] == b"XRANGE", lambda: None, cut=True)
        for _ in range(3)  # a command is sent again once
    ]
    async with streamed(client_of(name, urls=[held.replica.url]), "recite", gate=name, count=3) as request:
        messages = await request.end()
    assert merged(*results(messages)) == content(1, 2, 3)
    assert all(cut.done.is_set() for cut in cuts)


async def test_open_streams_take_no_place(fleet: Deployment, client_of: ClientOf, name: str) -> None:
    with joined_by(fleet, "small", GATEWAY_MAX_INFLIGHT="1") as small:
        user = client_of(name, urls=[small.url])
        async with streamed(user, "recite", gate=name, count=1, stops=[1]) as first:
            await task_of(first)
            async with streamed(user, "recite", gate=name, count=1, stops=[1]) as second:
                await task_of(second)
                async with streamed(user, "recite", gate=name, count=1, stops=[1]) as third:
                    await task_of(third)
                    assert (await user.call_tool("say", {"call": name}))["content"] == [text("done")]
                    fleet.open(f"{name}-1")
                    for request in (first, second, third):
                        assert numbers(*results(await request.end())) == [1]


def read_raw(client: DraftClient, params: dict[str, Any], first: Callable[[], None] | None = None) -> bytes:
    """Send a call over a connection that takes little at a time, do something, and read all that came of it."""
    url = client.transport.urls[0]
    target = urlsplit(url)
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": "raw", "method": "tools/call", "params": params})
    fields = {
        "Host": target.netloc,
        **client.transport.headers,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    received = b""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(client.seconds)
        connection.connect((target.hostname, target.port))
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        if first is not None:
            first()
        with suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    return received


def unchunked(body: bytes) -> bytes:
    """Return what a body says that came in chunks."""
    said = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        said, body = said + body[:length], body[length + 2 :]
    return said


@pytest.mark.parametrize("canceller", [0, 1], ids=["here", "at another replica"])
async def test_a_request_that_is_cancelled_ends_its_stream_and_the_task_goes_on(
    fleet: Deployment, client_of: ClientOf, name: str, canceller: int
) -> None:
    """While it waits for the next segment, and while it waits for the first one of a tool that streams."""
    user = client_of(name, urls=fleet.urls[:1])
    await user.initialize()
    calls = {
        f"{name}-waits": wishing(STREAMING, "recite", gate=f"{name}-waits", count=2, stops=[2]),
        f"{name}-begins": wishing(["immediate", "streaming"], "broadcast", gate=f"{name}-begins", count=2),
    }
    for gate, params in calls.items():
        user.transport.urls = fleet.urls[:1]
        async with under_way(user, "tools/call", params) as request:
            await asyncio.to_thread(fleet.wait_for_lines, gate)
            if gate.endswith("waits"):
                await segment(request, 1)
            await request.hear("notifications/tasks/status")
            user.transport.urls = [fleet.urls[canceller]]
            await user.cancel_request(request.request_id)
            messages = await request.end()
        assert not any(told["isComplete"] for told in results(messages))
        (task_id,) = [one["taskId"] for one in await user.all_tasks() if one["status"] == "working"]
        for number in (1, 2):
            fleet.open(f"{gate}-{number}")
        finished = await user.finish_task(task_id)
        assert finished.result is not None
        assert finished.result["content"] == content(1, 2)


async def test_a_blocked_result_says_that_its_task_has_expired(user: DraftClient, name: str) -> None:
    created = await user.request("tools/call", wishing(["task"], "recite", gate=name, count=1, stops=[1], ttl=TTL_MS))
    error = await refusal(user.task_result(created["task"]["taskId"]))
    assert error.message == f"Failed to retrieve task: {GONE}"
