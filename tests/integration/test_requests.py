"""Requests for prompts, resources and parameters in headers: headers must match bodies, and states their request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pybase64
import pytest

from loadtest.cluster import Replica
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, RawConnection, accept, post_bytes
from tests.integration.streams import NAMED, asking, complete_headers, send

FROZEN = {"code": -32602, "message": "Invalid or expired requestState", "data": {"reason": "invalid_request_state"}}
MISMATCH = (400, -32020)
ROOM = "note://room/red"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {"GATEWAY_TOOLS": "tests.integration.stream_tools"}
    with Fleet(tmp_path_factory.mktemp("requests"), environ) as fleet:
        yield fleet


@pytest.fixture
def replica(fleet: Fleet) -> Replica:
    return fleet["r1"]


def ask(replica: Replica, method: str, target: str, /, **params: Any) -> Answer:
    """Call a tool, get a prompt, or read a resource."""
    return send(replica, asking(method, {NAMED[method]: target, **params}))


def encoded(value: str) -> str:
    return f"=?base64?{pybase64.b64encode(value.encode()).decode()}?="


TARGETS = [("tools/call", "add_one"), ("prompts/get", "greet"), ("resources/read", "note://plain")]


@pytest.mark.parametrize(("method", "target"), TARGETS)
def test_the_name_in_the_header_must_be_that_of_the_body(replica: Replica, method: str, target: str) -> None:
    params = {NAMED[method]: target, "arguments": {"number": 1}} if method == "tools/call" else {NAMED[method]: target}
    message = asking(method, params)
    for wrong in ("other", target.upper(), target + "x", "", encoded("other"), encoded(target)[:-2] + "!?="):
        assert send(replica, message, mcp_name=wrong).error == MISMATCH, wrong
    for right in (target, encoded(target)):
        assert send(replica, message, mcp_name=right).status == 200, right
    body = msgspec.json.encode(message)
    headers = {**complete_headers(message), "host": "localhost", "content-length": str(len(body))}
    for blanks in (f"  {target}\t ", f" {encoded(target)} "):
        with RawConnection(replica) as connection:
            connection.head({**headers, "mcp-name": blanks}.items())
            connection.socket.sendall(body)
            assert connection.answer().status == 200, blanks


@pytest.mark.parametrize(("method", "target"), TARGETS)
def test_a_request_without_the_header_of_its_name_is_refused(replica: Replica, method: str, target: str) -> None:
    message = asking(method, {NAMED[method]: target})
    headers = complete_headers(message)
    del headers["mcp-name"]
    answer = post_bytes(replica, msgspec.json.encode(message), headers)
    assert answer.error == MISMATCH
    assert answer.message["id"] == 1


@pytest.mark.parametrize(("method", "target"), TARGETS)
def test_the_method_in_the_header_must_be_that_of_the_body(replica: Replica, method: str, target: str) -> None:
    other = next(name for name, _ in TARGETS if name != method)
    assert send(replica, asking(method, {NAMED[method]: target}), mcp_method=other).error == MISMATCH


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "eu"}, {"mcp_param_region": "eu"}),
        ({"region": "eu"}, {"mcp_param_region": encoded("eu")}),
        ({"region": " eu "}, {"mcp_param_region": encoded(" eu ")}),
        ({"region": "öst"}, {"mcp_param_region": encoded("öst")}),
        ({"region": "=?base64?ZXU="}, {"mcp_param_region": "=?base64?ZXU="}),
        ({"count": 42}, {"mcp_param_count": "42"}),
        ({"count": 42.0}, {"mcp_param_count": "42"}),
        ({"count": 2**60 + 1}, {"mcp_param_count": str(2**60 + 1)}),
        ({"region": "eu", "count": 0}, {"mcp_param_region": "eu", "mcp_param_count": "0"}),
        ({}, {"mcp_param_unknown": "whatever"}),
    ],
)
def test_a_parameter_in_a_header_that_agrees_with_the_body_is_accepted(
    replica: Replica, arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    answer = send(replica, asking("tools/call", {"name": "deploy", "arguments": arguments}), **headers)
    assert answer.status == 200, answer


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"mcp_param_region": "us"}),
        ({"region": "eu"}, {"mcp_param_region": "EU"}),
        ({"region": "eu"}, {"mcp_param_region": ""}),
        ({"region": "eu"}, {"mcp_param_region": encoded("us")}),
        ({"region": "eu"}, {"mcp_param_region": "=?base64?ZXU?="}),
        ({"region": "eu"}, {"mcp_param_region": "=?base64?ZX!!U=?="}),
        ({}, {"mcp_param_region": "eu"}),
        ({}, {"mcp_param_region": ""}),
        ({"region": None}, {"mcp_param_region": "null"}),
        ({"count": 42}, {"mcp_param_count": "43"}),
        ({"count": 42}, {"mcp_param_count": "042"}),
        ({"count": 2**60 + 1}, {"mcp_param_count": str(2**60)}),
        ({"count": 1}, {"mcp_param_count": "true"}),
        ({"region": "eu", "count": 1}, {"mcp_param_region": "eu"}),
    ],
)
def test_a_parameter_in_a_header_that_differs_from_the_body_is_refused(
    replica: Replica, arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    message = asking("tools/call", {"name": "deploy", "arguments": arguments}, id_="p")
    answer = send(replica, message, **headers)
    assert answer.error == MISMATCH
    assert answer.message["id"] == "p"


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_an_unknown_name_is_invalid_params(replica: Replica, method: str) -> None:
    answer = ask(replica, method, "no such thing")
    assert answer.error == (400, -32602)
    assert "no such thing" in answer.message["error"]["message"]


@pytest.mark.parametrize("uri", ["note://none", "note://room/", "note://room/a/b", "", "no uri at all"])
def test_an_unknown_resource_is_invalid_params_with_its_uri(replica: Replica, uri: str) -> None:
    answer = ask(replica, "resources/read", uri)
    assert answer.error == (400, -32602)
    assert answer.message["error"]["data"] == {"uri": uri}


def test_a_resource_is_found_by_another_spelling_of_its_uri(replica: Replica) -> None:
    (contents,) = ask(replica, "resources/read", "NOTE://plain").result["contents"]
    (listed,) = ask(replica, "resources/read", "note://plain").result["contents"]
    assert contents["text"] == listed["text"]


def test_what_is_completed_must_exist(replica: Replica) -> None:
    def complete(ref: Mapping[str, str], argument: str = "greeting") -> Answer:
        params = {"ref": ref, "argument": {"name": argument, "value": "H"}}
        return send(replica, asking("completion/complete", params))

    greet = {"type": "ref/prompt", "name": "greet"}
    assert complete(greet).result["completion"] == {"values": ["Hello", "Hi"], "total": 2, "hasMore": False}
    assert complete(greet, "other").result["completion"]["values"] == []
    assert complete({"type": "ref/prompt", "name": "none"}).error == (400, -32602)
    assert complete({"type": "ref/resource", "uri": "note://none"}).error == (400, -32602)


ASKING = [
    ("tools/call", "greet", {"greeting": "Hi"}),
    ("prompts/get", "greet", {"greeting": "Hi"}),
    ("prompts/get", "greet_in_return_style", {"greeting": "Hi"}),
    ("resources/read", ROOM, None),
]


def told_by(method: str, answer: Answer) -> str:
    result = answer.result
    assert result["resultType"] == "complete"
    if method == "resources/read":
        (content,) = result["contents"]
    elif method == "prompts/get":
        (message,) = result["messages"]
        content = message["content"]
    else:
        (content,) = result["content"]
    return str(content["text"])


def given(arguments: Mapping[str, str] | None) -> dict[str, Any]:
    return {} if arguments is None else {"arguments": arguments}


@pytest.mark.parametrize(("method", "target", "arguments"), ASKING)
def test_an_answer_resumes_every_kind_of_request_on_another_replica(
    fleet: Fleet, method: str, target: str, arguments: dict[str, str] | None
) -> None:
    first = ask(fleet["r1"], method, target, **given(arguments))
    assert list(first.result["inputRequests"]) == ["who"]
    assert "ttlMs" not in first.result
    retry = {"requestState": first.state, "inputResponses": accept(name="Ada")}
    last = ask(fleet["r2"], method, target, **given(arguments), **retry)
    assert told_by(method, last) == ("red for Ada" if method == "resources/read" else "Hi Ada")


OTHERS = [
    *ASKING,
    ("tools/call", "greet", {"greeting": "Ho"}),
    ("prompts/get", "greet", {"greeting": "Ho"}),
    ("prompts/get", "greet", {}),
    ("resources/read", "note://room/blue", None),
    ("resources/read", "note://room/%72ed", None),
    ("resources/read", "note://plain", None),
]


@pytest.mark.parametrize(("method", "target", "arguments"), ASKING)
def test_a_state_opens_for_its_own_method_target_and_arguments_alone(
    fleet: Fleet, method: str, target: str, arguments: dict[str, str] | None
) -> None:
    state = ask(fleet["r1"], method, target, **given(arguments)).state
    for other in OTHERS:
        answer = ask(
            fleet["r2"], other[0], other[1], **given(other[2]), requestState=state, inputResponses=accept(name="Eve")
        )
        if other == (method, target, arguments):
            assert answer.status == 200
        else:
            assert (answer.status, answer.message["error"]) == (400, FROZEN), other


@pytest.mark.parametrize(("method", "target", "arguments"), ASKING)
@pytest.mark.parametrize("state", ["", "s1.AAAA", 7, {}, True])
def test_text_that_is_not_a_state_is_refused_with_any_answers(
    replica: Replica, method: str, target: str, arguments: dict[str, str] | None, state: Any
) -> None:
    answer = ask(replica, method, target, **given(arguments), requestState=state)
    assert (answer.status, answer.message["error"]) == (400, FROZEN)


def hints(answer: Answer) -> tuple[int, str]:
    return answer.result["ttlMs"], answer.result["cacheScope"]


def test_a_read_tells_how_long_it_may_be_kept_unless_it_was_a_retry(replica: Replica) -> None:
    assert hints(ask(replica, "resources/read", "note://plain")) == (5000, "public")
    assert hints(ask(replica, "resources/read", "note://news")) == (0, "private")
    answers = accept(name="Ada")
    asked = ask(replica, "resources/read", ROOM)
    retries: list[dict[str, Any]] = [
        {"requestState": asked.state, "inputResponses": answers},
        {"inputResponses": answers},
    ]
    for retry in retries:
        assert hints(ask(replica, "resources/read", ROOM, **retry)) == (0, "private")
    assert hints(ask(replica, "resources/read", "note://plain", inputResponses=answers)) == (0, "private")


def test_arguments_of_a_prompt_are_checked(replica: Replica) -> None:
    wrong: list[dict[str, Any]] = [{"greeting": 7}, {"no_such": "x"}]
    for arguments in wrong:
        assert ask(replica, "prompts/get", "greet", arguments=arguments).error == (400, -32602)
