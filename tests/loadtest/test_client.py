"""The users' client handles and reports every kind of answer."""

from __future__ import annotations

import itertools
import json
from typing import Any

import gevent
import pytest

from loadtest import client as client_module
from loadtest.client import McpClient, endpoint_of
from loadtest.errand import Errand
from loadtest.tokens import Tokens
from loadtest.wire import Answer
from tests.loadtest.scripted import Message, Reply, Seen, error, lost, result, script, stream, text
from tests.loadtest.stubs import Exchange, StubReplica

TASK = "0123"
REFUSED = {"code": -31001, "message": "full"}
STATE_REFUSED = {
    "code": -32602,
    "message": "Invalid or expired requestState",
    "data": {"reason": "invalid_request_state"},
}


def is_done(answer: Answer) -> str | None:
    return None if answer.texts == ["done"] else f"got {answer.texts}"


def errand(**fields: Any) -> Errand:
    return Errand("order", {"what": "tea"}, **{"check": is_done, "answers": {"who": {"name": "Ada"}}, **fields})


def asks(*keys: str, **fields: Any) -> Reply:
    questions = {key: {"method": "elicitation/create", "params": {}} for key in keys}
    return result(**{"resultType": "input_required", "inputRequests": questions, "requestState": "s1.x", **fields})


def shed(**fields: Any) -> Reply:
    return result(resultType="input_required", requestState="s1.shed", **fields)


def progress(done: int) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "ID", "progress": done}}


def response(told: str = "done") -> Message:
    content = [{"type": "text", "text": told}]
    return {"jsonrpc": "2.0", "id": "ID", "result": {"resultType": "complete", "content": content}}


def task(status: str, **fields: Any) -> dict[str, Any]:
    return {"taskId": TASK, "status": status, "pollIntervalMs": 700, **fields}


def notice(status: str, **fields: Any) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/tasks", "params": task(status, **fields)}


COMPLETED = task("completed", result={"resultType": "complete", "content": [{"type": "text", "text": "done"}]})
WAITS = {"inputRequests": {"who~2": {"method": "elicitation/create", "params": {}}}}


def test_a_call_is_answered_question_by_question_and_brings_what_it_got(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, asks("who", by="r1"), asks("why", requestState="s1.y", by="r2"), text(by="r2"))
    client.call(errand(answers={"who": {"name": "Ada"}, "why": {"reason": "tea"}}))
    assert [request["params"].get("requestState") for request in got] == [None, "s1.x", "s1.y"]
    assert [request["params"].get("inputResponses") for request in got] == [
        None,
        {"who": {"action": "accept", "content": {"name": "Ada"}}},
        {"why": {"action": "accept", "content": {"reason": "tea"}}},
    ]
    assert {json.dumps([request["params"]["name"], request["params"]["arguments"]]) for request in got} == {
        '["order", {"what": "tea"}]'
    }
    assert len({request["id"] for request in got}) == 3
    assert seen.outcomes == ["input_required", "input_required", "completed"]
    assert [leg.state_bytes for leg in seen.legs] == [4, 4, 0]
    assert (seen.call.outcome, seen.call.legs, seen.call.hops, seen.call.asked) == (
        "finished",
        3,
        1,
        {"who": 1, "why": 1},
    )


def test_every_leg_is_a_request_for_locust_named_for_its_place_in_the_call(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    script(replica, asks("who"), shed(), error(503, REFUSED), text("nonsense"))
    client.call(errand())
    assert [(told["request_type"], told["name"]) for told in seen.requests] == [
        ("leg", "order first"),
        ("leg", "order retry"),
        ("leg", "order shed"),
        ("leg", "order shed"),
    ]
    assert [str(told["exception"]) for told in seen.requests] == [
        "None",
        "None",
        "refused: -31001",
        "wrong: got ['nonsense']",
    ]


def test_a_call_that_was_handed_on_resumes_at_once_with_its_state_alone(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, asks("who"), shed(inputRequests={}), shed(), text())
    client.call(errand())
    assert [request["params"].get("requestState") for request in got] == [None, "s1.x", "s1.shed", "s1.shed"]
    assert "inputResponses" not in got[2]["params"]
    assert (seen.call.outcome, seen.call.sheds) == ("finished", 2)
    assert seen.slept == [0.0]  # to think, once


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_request_is_sent_again_when_it_says_so(
    client: McpClient, replica: StubReplica, seen: Seen, status: int
) -> None:
    script(replica, error(status, REFUSED, retry_after="7"), error(503, REFUSED, retry_after="soon"), text())
    client.call(errand())
    assert (seen.call.outcome, seen.call.refusals, seen.call.legs) == ("finished", 2, 3)
    assert 7.0 <= seen.slept[0] <= 10.5
    assert 1.0 <= seen.slept[1] <= 1.5
    assert seen.legs[0].reason == "-31001"


def test_a_user_who_is_refused_too_often_gives_up(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    script(replica, *[error(503, REFUSED, retry_after="0")] * 3)
    assert client.call(errand()) is None
    assert (seen.call.outcome, seen.call.reason, seen.call.refusals) == ("refused", "-31001", 3)


def test_a_balancers_own_refusal_counts_as_one(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    script(replica, lambda exchange, _: exchange.reply(503, b"<html>no server</html>"), text())
    client.call(errand())
    assert (seen.legs[0].outcome, seen.legs[0].reason, seen.call.outcome) == ("refused", "503", "finished")


LOST: dict[str, Reply] = {
    "before the answer": lost,
    "by the balancer": lambda exchange, _: exchange.reply(502, b"<html>"),
    "within a stream": stream(progress(1), ends=False),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_request_whose_connection_was_lost_is_sent_again(
    client: McpClient, replica: StubReplica, seen: Seen, lose: Reply
) -> None:
    got = script(replica, asks("who"), lose, text())
    client.call(errand())
    assert got[1]["params"] == {**got[2]["params"], "_meta": got[1]["params"]["_meta"]}
    assert (seen.call.outcome, seen.call.retries, seen.legs[1].outcome) == ("finished", 1, "failed")
    assert seen.call.asked == {"who": 1}


def test_a_call_whose_connection_is_always_lost_fails(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    script(replica, *[lost] * 4)
    client.call(errand())
    assert (seen.call.outcome, seen.call.reason, seen.call.retries) == ("failed", "connection", 4)
    assert {leg.status for leg in seen.legs} == {0}


FAILURES: dict[str, tuple[Reply, str]] = {
    "an error": (error(400, {"code": -32602, "message": "Unknown tool"}), "-32602 Unknown tool"),
    "an error of the tool's author": (error(200, {"code": 7, "message": "no tea"}), "7 no tea"),
    "no leave": (lambda exchange, _: exchange.reply(401, b""), "401"),
    "a tool that failed": (text("order failed (reference 0af3)", isError=True), "order failed"),
}


@pytest.mark.parametrize(("reply", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failure_that_no_retry_can_fix_fails_at_once(
    client: McpClient, replica: StubReplica, seen: Seen, reply: Reply, reason: str
) -> None:
    script(replica, reply)
    assert client.call(errand()) is None
    assert (seen.call.outcome, seen.call.reason, seen.outcomes) == ("failed", reason, ["failed"])


def other_id(exchange: Exchange, _request: Message) -> None:
    exchange.reply(200, json.dumps({**response(), "id": 77}).encode())


WRONG: dict[str, Reply] = {
    "another text": text("tea"),
    "no content": result(),
    "content that is none": result(content="done"),
    "two blocks": result(content=[{"type": "text", "text": "done"}] * 2),
    "the answer to another request": other_id,
    "no type": result(resultType=None, content=[]),
    "a type that nobody knows": text(resultType="finished"),
    "a task without an id": result(resultType="task"),
    "questions that are none": result(resultType="input_required", inputRequests=["who"], requestState="s1.x"),
    "neither questions nor a state": result(resultType="input_required"),
    "no JSON": lambda exchange, _: exchange.reply(200, b"done"),
    "a stream without a response": stream(progress(1)),
    "two responses on a stream": stream(response(), response()),
}


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_a_failure_called_wrong(
    client: McpClient, replica: StubReplica, seen: Seen, reply: Reply
) -> None:
    script(replica, asks("who"), reply)
    assert client.call(errand()) is None
    assert seen.outcomes == ["input_required", "wrong"]
    assert seen.call.outcome == "failed"
    assert seen.call.reason.startswith("wrong: ")


def test_a_question_that_nobody_expects_fails_the_call(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    script(replica, asks("password"))
    client.call(errand())
    assert (seen.call.outcome, seen.call.asked) == ("failed", {"password": 1})
    assert "password" in seen.call.reason


def test_a_call_that_goes_round_in_circles_is_ended(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    script(replica, *[shed()] * 50)
    client.call(errand())
    assert (seen.call.outcome, seen.call.legs) == ("failed", client_module.MAX_LEGS)


def test_progress_on_a_stream_comes_with_the_answer(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    got = script(
        replica, stream(progress(1), {**progress(9), "params": {"progressToken": 77}}, progress(2), response())
    )
    answer = client.call(errand(progress=True))
    assert answer is not None
    assert [params["progress"] for params in answer.progress] == [1, 2]
    assert got[0]["params"]["_meta"]["progressToken"] == got[0]["id"]


def test_a_task_is_asked_about_until_it_ends_and_answered_once(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    waits = result(**task("input_required", **WAITS))
    got = script(
        replica,
        result(resultType="task", **task("working")),
        result(**task("working")),
        waits,
        result(),
        waits,  # an answer on its way
        result(**COMPLETED),
    )
    client.call(errand(tasks=True))
    assert [request["method"] for request in got] == [
        "tools/call",
        "tasks/get",
        "tasks/get",
        "tasks/update",
        "tasks/get",
        "tasks/get",
    ]
    assert got[3]["params"]["inputResponses"] == {"who~2": {"action": "accept", "content": {"name": "Ada"}}}
    assert seen.slept == [0.7, 0.0, 0.7]
    assert (seen.call.outcome, seen.call.asked) == ("finished", {"who": 1})
    assert [told["name"] for told in seen.requests][:2] == ["order first", "order tasks/get"]


def test_a_task_is_listened_to_on_one_stream_after_the_other(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    closed = {"jsonrpc": "2.0", "id": "ID", "result": {"resultType": "complete"}}
    another = {**notice("completed"), "params": {**COMPLETED, "taskId": "4567"}}
    got = script(
        replica,
        result(resultType="task", **task("working")),
        stream(notice("working"), another, closed),
        stream(notice("input_required", **WAITS), ends=False),
        result(),
        stream({**notice("completed"), "params": COMPLETED}),
    )
    # The answer to the question is sent while the second stream is open.
    answer = client.call(errand(tasks=True, listens=True))
    assert answer is not None
    assert sorted(request["method"] for request in got[1:]) == ["subscriptions/listen"] * 3 + ["tasks/update"]
    assert got[1]["params"]["notifications"] == {"taskIds": [TASK]}
    assert (seen.call.outcome, seen.call.asked) == ("finished", {"who": 1})


TASK_ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong result": (
        task("completed", result={"resultType": "complete", "content": [{"type": "text", "text": "tea"}]}),
        "wrong: got ['tea']",
    ),
    "no result": (task("completed"), "wrong: got []"),
    "a failed tool": (
        task("completed", result={"isError": True, "content": [{"type": "text", "text": "no (reference 12)"}]}),
        "no",
    ),
    "a failure": (task("failed", error={"code": -32603, "message": "lost"}), "the task is failed: lost"),
    "a cancellation": (task("cancelled"), "the task is cancelled: "),
}


@pytest.mark.parametrize("listens", [False, True], ids=["asked about", "listened to"])
@pytest.mark.parametrize("ending", TASK_ENDS.values(), ids=TASK_ENDS)
def test_a_task_that_ends_otherwise_fails_the_call(
    client: McpClient, replica: StubReplica, seen: Seen, ending: tuple[dict[str, Any], str], listens: bool
) -> None:
    end, reason = ending
    told = stream({**notice("completed"), "params": end}) if listens else result(**end)
    script(replica, result(resultType="task", **task("working")), told)
    client.call(errand(tasks=True, listens=listens))
    assert (seen.call.outcome, seen.call.reason) == ("failed", reason)


def test_a_user_with_a_task_retries_until_its_time_is_over(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    """The clock of these tests advances by a second each time it is read."""
    away = itertools.cycle([error(504, {"code": -31004, "message": "no store"}, retry_after="0"), lost])
    script(replica, result(resultType="task", **task("working")), *itertools.islice(away, 500))
    client.call(errand(tasks=True))
    assert (seen.call.outcome, seen.call.refusals > 3, seen.call.retries > 4) == ("refused", True, True)


def test_a_bad_state_must_be_refused_in_the_known_words_and_harm_nothing(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    got = script(replica, asks("who"), error(400, STATE_REFUSED), text())
    client.spoil(errand(), lambda state: state[::-1])
    assert [request["params"].get("requestState") for request in got] == [None, "x.1s", "s1.x"]
    assert (seen.call.outcome, seen.outcomes) == ("finished", ["input_required", "completed", "completed"])
    assert (seen.legs[1].status, seen.legs[1].reason) == (400, "-32602")


OPENED: dict[str, Reply] = {
    "it was opened": text(),
    "it was taken for none": asks("who"),
    "other words": error(400, {**STATE_REFUSED, "message": "Expired requestState"}),
    "more words": error(400, {**STATE_REFUSED, "data": {"reason": "not_authentic"}}),
    "another status": error(200, STATE_REFUSED),
    "a crash": error(500, {"code": -32603, "message": "Internal error"}),
}


@pytest.mark.parametrize("reply", OPENED.values(), ids=OPENED)
def test_any_other_answer_to_a_bad_state_is_wrong(
    client: McpClient, replica: StubReplica, seen: Seen, reply: Reply
) -> None:
    script(replica, asks("who"), reply)
    client.spoil(errand(), lambda state: state + "x")
    assert (seen.outcomes, seen.call.outcome) == (["input_required", "wrong"], "failed")


def test_a_call_that_the_end_of_the_run_cuts_off_is_unfinished(
    client: McpClient, replica: StubReplica, seen: Seen
) -> None:
    def end() -> float:
        raise gevent.GreenletExit

    script(replica, asks("who"))
    with pytest.raises(gevent.GreenletExit):
        client.call(errand(think=end))
    assert (seen.call.outcome, seen.call.legs) == ("unfinished", 1)
    assert seen.call.reason == "the run ended before the call did"


def test_the_token_is_shown_with_each_request(client: McpClient, replica: StubReplica, seen: Seen) -> None:
    shown = iter(["first", "second"])
    client._tokens = Tokens(lambda: next(shown))
    client._tokens._renew_at = 0.0
    script(replica, text())
    client.call(errand())
    assert [exchange.headers["authorization"] for exchange in replica.received] == ["Bearer first"]


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("https://gateway.example", "https://gateway.example/mcp"),
        ("https://gateway.example/", "https://gateway.example/mcp"),
        ("http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080/mcp"),
        ("https://example.com/tools/mcp", "https://example.com/tools/mcp"),
    ],
)
def test_the_endpoint_is_the_path_of_the_host_or_the_usual_one(host: str, endpoint: str) -> None:
    assert endpoint_of(host) == endpoint
