"""Events of a running call reach its client at once, and the client's actions reach the call."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration import stream_tools
from tests.integration.fleet import Fleet
from tests.integration.raw import SECONDS, Answer, RawConnection, accept, head_of, request, tool_call
from tests.integration.streams import (
    META_SUBSCRIPTION_ID,
    Stream,
    asking,
    calling,
    complete_headers,
    events_of,
    notice,
    send,
)

TOOLS = "tests.integration.stream_tools"


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diary") / "diary"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, diary: Path) -> Iterator[Fleet]:
    environ = {"GATEWAY_TOOLS": TOOLS, stream_tools.DIARY_VARIABLE: str(diary)}
    with Fleet(tmp_path_factory.mktemp("streams"), environ) as fleet:
        yield fleet
        for replica in fleet.replicas:
            assert not replica.logged("request failed")


@pytest.fixture
def replica(fleet: Fleet) -> Replica:
    return fleet["r1"]


def text_of(message: dict[str, Any]) -> str:
    (block,) = message["result"]["content"]
    assert isinstance(block["text"], str)
    return block["text"]


@pytest.mark.parametrize("tool", ["work", "work_blocking"])
def test_progress_and_logs_arrive_while_the_tool_waits_and_the_result_comes_last_on_the_same_stream(
    replica: Replica, tmp_path: Path, tool: str
) -> None:
    release = tmp_path / "release"
    with Stream(replica, calling(tool, {"release": str(release)}, token="t", level="info", id_="x")) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-gateway-replica"] == "r1"
        assert stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "t", "progress": 1, "total": 2, "message": "half"},
        }
        assert stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": {"level": "info", "logger": "work", "data": {"half": 1}},
        }
        release.touch()  # only now can the tool continue
        *told, response = stream.rest()
    assert told[-1]["params"] == {"progressToken": "t", "progress": 2, "total": 2}
    assert type(told[-1]["params"]["progress"]) is int  # reported as it was given
    assert response["id"] == "x"
    assert text_of(response) == "worked"


def test_progress_only_rises(replica: Replica, tmp_path: Path) -> None:
    (tmp_path / "release").touch()
    told = events_of(send(replica, calling("work", {"release": str(tmp_path / "release")}, token=7)))
    assert [message["params"]["progress"] for message in told[:-1]] == [1, 1.5, 2]
    assert {message["params"]["progressToken"] for message in told[:-1]} == {7}


@pytest.mark.parametrize("level", stream_tools.LEVELS)
def test_logs_of_the_requested_level_and_above_are_sent(replica: Replica, level: str) -> None:
    *told, response = events_of(send(replica, calling("talk", level=level)))
    expected = stream_tools.LEVELS[stream_tools.LEVELS.index(level) :]
    assert [notice(message) for message in told] == [(name, f"this is {name}") for name in reversed(expected)]
    assert text_of(response) == "said"


def test_who_asks_for_progress_gets_no_logs_and_the_other_way_around(replica: Replica, tmp_path: Path) -> None:
    (tmp_path / "release").touch()
    arguments = {"release": str(tmp_path / "release")}
    *told, _ = events_of(send(replica, calling("work", arguments, token="t")))
    assert {message["method"] for message in told} == {"notifications/progress"}
    *told, _ = events_of(send(replica, calling("work", arguments, level="debug")))
    assert {message["method"] for message in told} == {"notifications/message"}


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ({}, {}),
        ({"token": "t", "level": "debug"}, {"accept": "application/json"}),
        ({"level": "emergency"}, {}),
    ],
)
def test_without_messages_the_answer_is_plain_json_on_one_line(
    replica: Replica, tmp_path: Path, asked: dict[str, str], headers: dict[str, str]
) -> None:
    (tmp_path / "release").touch()
    answer = send(replica, calling("work", {"release": str(tmp_path / "release")}, **asked), **headers)
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert b"\n" not in answer.body
    assert answer.text == "worked"


@pytest.mark.parametrize("accept", ["Text/Event-Stream", "application/json, text/*;q=0.5", "*/*", ""])
def test_whoever_takes_a_stream_in_any_words_gets_one(replica: Replica, accept: str) -> None:
    assert len(events_of(send(replica, calling("talk", level="alert"), accept=accept))) == 3


def test_a_level_that_does_not_exist_is_refused(replica: Replica) -> None:
    assert send(replica, calling("talk", level="loud")).error == (400, -32602)


def test_an_error_after_a_message_is_the_last_event(replica: Replica) -> None:
    message = calling("tell_and_ask", token="t")
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {}
    told, response = events_of(send(replica, message))
    assert notice(told) == ("progress", 1)
    assert response["error"]["code"] == -32021


def test_what_was_told_before_a_question_is_not_told_again_by_the_replica_that_goes_on(fleet: Fleet) -> None:
    told: list[list[tuple[str, Any]]] = []
    retry: dict[str, Any] = {}
    answers = iter([("first", "Ada"), ("second", "Bob")])
    for name in ("r1", "r2", "r1"):
        message = calling("tell_and_ask", token="t", level="debug", retry=retry)
        *notices, response = events_of(send(fleet[name], message))
        told.append([notice(message) for message in notices])
        if response["result"]["resultType"] == "input_required":
            key, who = next(answers)
            assert set(response["result"]["inputRequests"]) == {key}
            answer = {key: {"action": "accept", "content": {"name": who}}}
            retry = {"requestState": response["result"]["requestState"], "inputResponses": answer}
    assert told == [
        [("info", "before"), ("progress", 1)],
        [("info", "hello Ada"), ("progress", 2)],
        [("info", "hello Bob"), ("progress", 3)],
    ]
    assert text_of(response) == "Ada and Bob"


def read_count(replica: Replica, name: str) -> int:
    answer = send(replica, asking("resources/read", {"uri": f"count://{name}"}))
    return int(answer.result["contents"][0]["text"])


def cancelled(replica: Replica) -> float:
    return replica.metric("gateway_legs_total", tool="count", outcome="cancelled")


def check_stopped(replica: Replica, name: str, ended: Path, before: float) -> None:
    """Check that the run of `count` was cancelled at its await, has stopped counting, and is recorded as cancelled."""
    wait_until(lambda: ended.exists() and ended.read_text() != "", "the tool to stop")
    assert ended.read_text() == "CancelledError"
    last = read_count(replica, name)
    wait_until(lambda: cancelled(replica) > before, "the leg to count as cancelled")
    assert cancelled(replica) == before + 1
    assert read_count(replica, name) == last
    assert replica.metric("gateway_legs_in_flight") == 0


def test_closing_the_stream_cancels_the_tool_at_its_await(replica: Replica, tmp_path: Path) -> None:
    before, ended = cancelled(replica), tmp_path / "ended"
    with Stream(replica, calling("count", {"name": "streamed", "ended": str(ended)}, token="t")) as stream:
        assert notice(stream.next()) == ("progress", 1)
        wait_until(lambda: read_count(replica, "streamed") >= 3, "the tool to count")
    check_stopped(replica, "streamed", ended, before)


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_going_away_cancels_the_tool_also_where_nothing_was_answered_yet(
    replica: Replica, tmp_path: Path, how: str
) -> None:
    before, ended = cancelled(replica), tmp_path / "ended"
    message = tool_call("count", {"name": how, "ended": str(ended)})
    body = msgspec.json.encode(message)
    with RawConnection(replica) as connection:
        connection.head([*head_of(message), ("Content-Length", str(len(body)))])
        connection.socket.sendall(body)
        wait_until(lambda: read_count(replica, how) >= 3, "the tool to count")
        assert not ended.exists()
        if how == "reset":
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.socket.recv(1) == b""
    check_stopped(replica, how, ended, before)


def test_requests_of_others_continue_when_one_client_disconnects(replica: Replica, tmp_path: Path) -> None:
    release, ended = tmp_path / "release", tmp_path / "ended"
    with Stream(replica, calling("work", {"release": str(release)}, token="t")) as staying:
        assert notice(staying.next()) == ("progress", 1)
        with Stream(replica, calling("count", {"name": "leaving", "ended": str(ended)}, token="t")) as leaving:
            leaving.next()
        wait_until(ended.exists, "the tool to stop")
        release.touch()
        *_, response = staying.rest()
    assert text_of(response) == "worked"


def listening(id_: Any = 1, **asked: Any) -> dict[str, Any]:
    return asking("subscriptions/listen", {"notifications": asked}, id_=id_)


def subscription_id(message: dict[str, Any]) -> Any:
    carrier = message["params"] if "params" in message else message["result"]
    return carrier["_meta"][META_SUBSCRIPTION_ID]


def announce(replica: Replica, what: str) -> None:
    assert send(replica, calling("announce", {"what": what})).text == what


EVERYTHING = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def test_a_subscription_is_acknowledged_first_with_only_what_is_served(replica: Replica) -> None:
    uris = ["note://news", "note://plain", "note://room/red", "note://none", "tools", "", "note://news"]
    with Stream(replica, listening(77, toolsListChanged=True, resourceSubscriptions=uris, tasks=["t"])) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {META_SUBSCRIPTION_ID: 77},
                "notifications": {
                    "toolsListChanged": True,
                    "resourceSubscriptions": ["note://news", "note://room/red"],
                },
            },
        }


def test_only_subscribed_changes_are_sent_each_with_the_id_of_its_subscription(replica: Replica) -> None:
    with (
        Stream(replica, listening("lists", **EVERYTHING)) as lists,
        Stream(replica, listening(2, resourceSubscriptions=["note://news", "note://room/red"])) as resources,
        Stream(replica, listening(3, resourceSubscriptions=["note://plain"])) as nothing,
    ):
        opened = [lists.next(), resources.next(), nothing.next()]
        assert [subscription_id(message) for message in opened] == ["lists", 2, 3]
        assert opened[2]["params"]["notifications"] == {}
        for what in ("note://plain", "note://room/blue", "note://room/red", "tools", "note://news", "prompts"):
            announce(replica, what)
        heard = [resources.next(), resources.next(), lists.next(), lists.next()]
        announce(replica, "resources")
        heard.append(lists.next())
    assert [subscription_id(message) for message in heard] == [2, 2, "lists", "lists", "lists"]
    assert [message["params"].get("uri") for message in heard[:2]] == ["note://room/red", "note://news"]
    assert [message["method"] for message in heard] == [
        "notifications/resources/updated",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ]


def test_a_subscription_needs_a_client_that_takes_streams(replica: Replica) -> None:
    answer = send(replica, listening(toolsListChanged=True), accept="application/json")
    assert answer.status == 406
    assert answer.headers["content-type"] == "application/json"


def test_a_listener_that_goes_away_is_let_go_without_a_complaint(replica: Replica) -> None:
    for _ in range(3):
        with Stream(replica, listening(toolsListChanged=True)) as stream:
            stream.next()
    announce(replica, "tools")
    assert [line for line in replica.log_lines() if line.get("level") in {"warning", "error"}] == []


def test_a_replica_that_leaves_completes_its_subscriptions_finishes_its_calls_and_exits_cleanly(
    tmp_path: Path,
) -> None:
    diary, release = tmp_path / "diary", tmp_path / "release"
    environ = {"GATEWAY_TOOLS": TOOLS, stream_tools.DIARY_VARIABLE: str(diary)}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        replica = fleet["r1"]
        with (
            Stream(replica, listening(5, toolsListChanged=True)) as one,
            Stream(replica, listening("six", resourceSubscriptions=["note://news"])) as other,
            Stream(replica, calling("work", {"release": str(release)}, token="t")) as call,
        ):
            for stream in (one, other, call):
                stream.next()
            assert diary.read_text().split() == ["opened", str(replica.pid)]
            replica.signal(signal.SIGTERM)
            for stream, id_ in ((one, 5), (other, "six")):
                (closing,) = stream.rest()
                assert closing["id"] == id_
                assert closing["result"]["resultType"] == "complete"
                assert subscription_id(closing) == id_
                assert set(closing["result"]) == {"resultType", "_meta"}
            assert replica.alive
            release.touch()
            assert text_of(call.rest()[-1]) == "worked"
        assert replica.wait() == 0
        assert diary.read_text().splitlines() == [f"opened {replica.pid}", f"closed {replica.pid}"]


def test_a_lifespan_opens_once_in_each_process_and_all_its_calls_share_it(fleet: Fleet, diary: Path) -> None:
    for replica in fleet.replicas:
        for _ in range(3):
            assert send(replica, calling("which_process")).text == f"of {replica.pid}"
    assert sorted(diary.read_text().splitlines()) == sorted(f"opened {replica.pid}" for replica in fleet.replicas)


FAR = {"x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.1", "host": "mcp.example.com"}


@pytest.mark.parametrize(
    ("trusted", "client"), [("127.0.0.0/8", "192.0.2.1"), ("192.0.2.1", "127.0.0.1"), ("", "127.0.0.1")]
)
def test_forwarded_headers_are_believed_of_trusted_proxies_alone(tmp_path: Path, trusted: str, client: str) -> None:
    environ = {"GATEWAY_TOOLS": TOOLS, "GATEWAY_TRUSTED_PROXIES": trusted, "GATEWAY_ALLOWED_HOSTS": FAR["host"]}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        message = request("tools/list")
        assert send(fleet["r1"], message, **FAR).status == 200
        assert send(fleet["r1"], message, **{**FAR, "host": "evil.example"}).status == 403
        (refused,) = fleet["r1"].wait_for_log(audit="refused")
        assert refused["client"] == client
        assert send(fleet["r1"], message, host="evil.example", x_forwarded_host="localhost").status == 403


@pytest.mark.slow
async def test_many_calls_at_once_are_all_answered_and_each_with_its_own(fleet: Fleet) -> None:
    limits = httpx.Limits(max_connections=20)

    async def call(client: httpx.AsyncClient, number: int) -> None:
        message = calling("add_one", {"number": number}, id_=number)
        answer = await client.post(
            fleet.replicas[number % 2].url, content=msgspec.json.encode(message), headers=complete_headers(message)
        )
        told = Answer(answer.status_code, answer.headers, answer.content)
        assert told.message["id"] == number
        assert told.text == str(number + 1)

    async def talk(client: httpx.AsyncClient, number: int) -> None:
        message = calling("talk", level="debug", id_=f"talk{number}")
        answer = await client.post(
            fleet.replicas[number % 2].url, content=msgspec.json.encode(message), headers=complete_headers(message)
        )
        *told, response = events_of(Answer(answer.status_code, answer.headers, answer.content))
        assert len(told) == len(stream_tools.LEVELS)
        assert response["id"] == f"talk{number}"

    async with httpx.AsyncClient(limits=limits, timeout=SECONDS, trust_env=False, verify=False) as client:
        await asyncio.gather(*(call(client, number) for number in range(200)), *(talk(client, n) for n in range(40)))


@pytest.mark.slow
async def test_many_calls_at_once_continue_with_their_own_answers(fleet: Fleet) -> None:
    async def leg(client: httpx.AsyncClient, number: int, hop: int, **retry: Any) -> Answer:
        message = calling("greet", {"greeting": f"Hi {number}"}, id_=number, retry=retry)
        url = fleet.replicas[(number + hop) % 2].url
        answer = await client.post(url, content=msgspec.json.encode(message), headers=complete_headers(message))
        return Answer(answer.status_code, answer.headers, answer.content)

    async def call(client: httpx.AsyncClient, number: int) -> str:
        asked = await leg(client, number, 0)
        told = await leg(client, number, 1, requestState=asked.state, inputResponses=accept(name=f"n{number}"))
        return told.text

    async with httpx.AsyncClient(
        limits=httpx.Limits(max_connections=20), timeout=SECONDS, trust_env=False, verify=False
    ) as client:
        texts = await asyncio.gather(*(call(client, number) for number in range(60)))
    assert texts == [f"Hi {number} n{number}" for number in range(60)]
