"""The users' client reads a result in segments, over breaks, and reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from loadtest.client import McpClient
from loadtest.errand import Errand
from loadtest.segmented import RESUME_SECONDS
from loadtest.wire import Answer
from tests.loadtest.scripted import Message, Reply, Seen, error, lost, result, script, stream, text
from tests.loadtest.stubs import Exchange, StubReplica
from tests.loadtest.test_segments import block, segments

FULL = {"code": -31001, "message": "full"}


def is_whole(answer: Answer) -> str | None:
    return None if answer.texts == ["section 1", "section 2", "section 3"] else f"got {answer.texts}"


def call(client: McpClient, breaks: Iterable[bool] = ()) -> Answer | None:
    """Have a report of three sections written; `breaks` says for each batch of segments whether to break after it."""
    left = iter(breaks)
    return client.call(Errand("report", {"city": "Oslo"}, is_whole, breaks=lambda: next(left, False)))


def told(*numbers: int, **fields: Any) -> Message:
    return {"jsonrpc": "2.0", "id": "ID", "result": segments(*numbers, **fields)}


def notification() -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"status": "working"}}


def rest(*numbers: int, **fields: Any) -> Reply:
    """Answer with segments, as `tasks/result` does for a `lastSeqNr`."""
    return result(resultType=None, **segments(*numbers, **fields))


WHOLE = result(content=[block(1), block(2), block(3)])


def broken(*messages: Message) -> Reply:
    """Answer with a stream, and check that its reader breaks the connection."""

    def reply(exchange: Exchange, request: dict[str, Any]) -> None:
        stream(*messages)(Unended(exchange), request)  # type: ignore[arg-type]
        exchange.wait_for_hang_up()

    return reply


class Unended:
    """An exchange whose stream does not end."""

    def __init__(self, exchange: Exchange) -> None:
        self.begin_stream = exchange.begin_stream
        self.chunk: Callable[[bytes], None] = lambda content: exchange.chunk(content) if content else None


def asked_after(got: list[dict[str, Any]]) -> list[Any]:
    """Return the `lastSeqNr` of each `tasks/result`."""
    return [request["params"].get("lastSeqNr") for request in got if request["method"] == "tasks/result"]


def test_segments_are_read_as_they_come_and_compared_with_the_whole_result(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    streamed = stream(told(), notification(), told(1, 2), notification(), told(3, complete=True))
    got = script(replica, streamed, WHOLE)
    call(client)
    assert [request["method"] for request in got] == ["tools/call", "tasks/result"]
    assert got[0]["params"]["task"] == {"responseModes": ["streaming"]}
    assert asked_after(got) == [None]
    assert seen.outcomes == ["completed", "completed"]
    assert (seen.call.outcome, seen.call.segments, seen.call.breaks, seen.call.resumes) == ("finished", 3, 0, 0)
    assert seen.call.first_segment is not None
    assert [request["name"] for request in seen.requests] == ["report first", "report tasks/result"]


def test_a_broken_connection_is_resumed_after_the_last_segment(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, broken(told(), told(1), told(2)), rest(), rest(2), rest(3, complete=True), WHOLE)
    call(client, [True])
    assert asked_after(got) == [1, 1, 2, None]
    assert seen.slept == [RESUME_SECONDS] * 2
    assert (seen.call.outcome, seen.call.segments, seen.call.breaks, seen.call.resumes) == ("finished", 3, 1, 3)
    assert {leg.outcome for leg in seen.legs} == {"completed"}


def test_it_breaks_only_when_asked_to(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    got = script(replica, broken(told(1), told(2), told(3)), rest(3, complete=True), WHOLE)
    call(client, [False, True])
    assert asked_after(got) == [2, None]


def test_a_stream_that_a_draining_replica_ends_is_resumed_at_once(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, stream(told(1)), rest(2, 3, complete=True), WHOLE)
    call(client)
    assert (asked_after(got), seen.slept) == ([1, None], [])
    assert (seen.call.outcome, seen.call.breaks, seen.call.retries) == ("finished", 0, 0)


def test_a_lost_connection_is_resumed_and_the_tool_not_called_again(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, stream(told(1), ends=False), lost, rest(2, 3, complete=True), lost, WHOLE)
    call(client)
    assert [request["method"] for request in got] == ["tools/call", *["tasks/result"] * 4]
    assert asked_after(got) == [1, 1, None, None]
    assert (seen.call.outcome, seen.call.retries, seen.call.breaks) == ("finished", 3, 0)


def test_without_a_segment_there_is_no_number_to_resume_from(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, stream(told(), ends=False), WHOLE)
    call(client)
    assert asked_after(got) == [None]
    assert (seen.call.outcome, seen.call.segments, seen.call.first_segment) == ("finished", 0, None)


def test_a_call_that_was_lost_or_refused_before_its_task_was_known_is_made_again(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, lost, error(503, FULL, retry_after="0"), stream(told(1, 2, 3, complete=True)), WHOLE)
    call(client)
    assert [request["method"] for request in got] == [*["tools/call"] * 3, "tasks/result"]
    assert (seen.call.outcome, seen.call.retries, seen.call.refusals) == ("finished", 1, 1)


@pytest.mark.parametrize("code", [-31001, -31003, -31004])
@pytest.mark.parametrize("status", [200, 503])
def test_what_is_refused_for_now_is_sent_again_whatever_its_status(
    client: McpClient, replica: StubReplica, seen: Seen, code: int, status: int
) -> None:
    later = error(status, {"code": code, "message": "later"}, retry_after="7")
    got = script(replica, stream(told(1)), later, rest(2, 3, complete=True), later, WHOLE)
    call(client)
    assert asked_after(got) == [1, 1, None, None]
    assert (seen.call.outcome, seen.call.refusals) == ("finished", 2)
    assert all(7.0 <= seconds <= 10.5 for seconds in seen.slept)
    assert [leg.reason for leg in seen.legs if leg.outcome == "refused"] == [str(code)] * 2


def test_without_tasks_the_result_comes_at_once_and_the_call_may_be_handed_on(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, result(resultType=None, requestState="s1.x"), WHOLE)
    call(client)
    assert [request["params"].get("requestState") for request in got] == [None, "s1.x"]
    assert (seen.call.outcome, seen.call.sheds, seen.call.segments) == ("finished", 1, 0)


WRONG: dict[str, list[Reply]] = {
    "a gap on the stream": [stream(told(1), told(3, complete=True))],
    "a gap before more": [broken(told(1), told(3), told(4))],
    "one lost while away": [stream(told(1)), rest(3, complete=True)],
    "the last one lost while away": [stream(told(1, 2)), rest(complete=True), result(content=[block(1), block(2)])],
    "one doubled on the stream": [broken(told(1), told(1, 2), told(3))],
    "one doubled after a break": [stream(told(1, 2)), rest(2, 3, complete=True)],
    "disorder": [stream(told(2, 1, 3, complete=True))],
    "another whole result": [stream(told(1, 2, 3, complete=True)), result(content=[block(1), block(3), block(2)])],
    "one block less in the whole": [stream(told(1, 2, 3, complete=True)), result(content=[block(1), block(2)])],
    "other sections": [stream(told(1, 2, complete=True)), result(content=[block(1), block(2)])],
    "segments where the whole was asked for": [stream(told(1, 2, 3, complete=True)), rest(1, 2, 3, complete=True)],
    "the response to another request": [stream({**told(1), "id": 77}, told(2, 3, complete=True)), WHOLE],
    "the last response to another request": [stream({**told(1, 2, 3, complete=True), "id": 77})],
    "more after the last response": [stream(told(1, 2, 3, complete=True), told(complete=True))],
    "a stream without a response": [stream(notification())],
    "a wrong result at once": [text("done")],
    "neither": [result(resultType="complete")],
}


@pytest.mark.parametrize("replies", WRONG.values(), ids=WRONG)
def test_a_fault_in_the_segments_is_a_failure_called_wrong(
    client: McpClient, replica: StubReplica, seen: Seen, replies: list[Reply]
) -> None:
    script(replica, *replies)
    assert call(client, [False, True]) is None
    assert seen.outcomes[-1] == "wrong"
    assert seen.call.outcome == "failed"
    assert seen.call.reason.startswith("wrong: ")


FAILURES: dict[str, tuple[list[Reply], str]] = {
    "told by the last segment": (
        [stream(told(1), told(2, complete=True, isError=True))],
        "section 2",
    ),
    "told at once": ([text("no (reference 0af3)", isError=True)], "no"),
    "a task that is gone": (
        [stream(told(1)), error(200, {"code": -32602, "message": "Task not found"})],
        "-32602 Task not found",
    ),
}


@pytest.mark.parametrize(("replies", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_result_that_ends_in_an_error_fails_the_call(
    client: McpClient, replica: StubReplica, seen: Seen, replies: list[Reply], reason: str
) -> None:
    script(replica, *replies)
    assert call(client) is None
    assert (seen.call.outcome, seen.call.reason) == ("failed", reason)


def test_a_user_that_waits_for_segments_gives_up_a_task_that_never_ends(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    """The clock of these tests advances by a second each time it is read."""
    script(replica, stream(told(1)), *[rest()] * 200)
    call(client)
    assert (seen.call.outcome, seen.call.reason) == ("failed", "the task did not end within 120 seconds")
