"""The parameters that all wires share are read, or refused with an error that names what is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.errors import HeaderMismatch, InvalidParams
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Notification, Request, Response
from gateway.protocol.method_table import METHODS
from gateway.protocol.requests import (
    CompletionRequest,
    Continuation,
    PromptGet,
    ResourceRead,
    ToolCall,
    check_routing,
    read_completion,
    read_continuation,
    read_cursor,
    read_prompt_get,
    read_resource_read,
    read_tool_call,
)


def test_a_tool_call_is_read() -> None:
    params = {"name": "echo", "arguments": {"a": None}, "inputResponses": {"k": 5}, "requestState": "s1.x"}
    assert read_tool_call(params) == ToolCall("echo", {"a": None}, Continuation({"k": 5}, "s1.x"))


@pytest.mark.parametrize("params", [{}, {"arguments": None, "inputResponses": None, "requestState": None}])
def test_null_is_as_absent(params: dict[str, Any]) -> None:
    assert read_tool_call({"name": "echo", **params}) == ToolCall("echo", {}, Continuation({}, None))


@pytest.mark.parametrize("field", ["arguments", "inputResponses"])
@pytest.mark.parametrize("value", [[], "x", 0, False, 1.5])
def test_anything_else_in_place_of_an_object_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=rf"params\.{field} must be an object"):
        read_tool_call({"name": "echo", field: value})


@pytest.mark.parametrize("state", ["", 0, False, [], {}, "x" * 10])
def test_a_state_of_any_type_is_kept_for_the_one_who_opens_it(state: Any) -> None:
    assert read_continuation({"requestState": state}).request_state == state
    assert type(read_continuation({"requestState": state}).request_state) is type(state)


def test_a_cursor_is_a_string_or_absent() -> None:
    assert read_cursor({}) is None
    assert read_cursor({"cursor": None}) is None
    assert read_cursor({"cursor": ""}) == ""


@pytest.mark.parametrize("cursor", [False, 1, [], {}])
def test_a_cursor_of_another_type_is_named(cursor: Any) -> None:
    with pytest.raises(InvalidParams, match=r"params\.cursor"):
        read_cursor({"cursor": cursor})


NO_STRING: list[Any] = [None, 1, 1.5, True, [], {}, ["x"]]
NO_OBJECT: list[Any] = [[], "x", 0, False, 1.5]


def test_a_prompt_get_is_read() -> None:
    params = {"name": "p", "arguments": {"a": "1", "b": ""}, "inputResponses": {"k": 5}, "requestState": "s1.x"}
    assert read_prompt_get(params) == PromptGet("p", {"a": "1", "b": ""}, Continuation({"k": 5}, "s1.x"))


@pytest.mark.parametrize("params", [{}, {"arguments": None}, {"arguments": {}}, {"arguments": {"language": None}}])
def test_a_prompt_needs_no_arguments(params: dict[str, Any]) -> None:
    assert read_prompt_get({"name": "p", **params}) == PromptGet("p", {}, Continuation({}, None))


@pytest.mark.parametrize("value", NO_STRING[1:])
def test_an_argument_of_a_prompt_that_is_not_a_string_is_named(value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"params\.arguments\['language'\] must be a string"):
        read_prompt_get({"name": "p", "arguments": {"code": "x", "language": value}})


def test_a_long_name_of_an_argument_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidParams) as caught:
        read_prompt_get({"name": "p", "arguments": {"x" * 100_000: 1}})
    assert len(caught.value.message) < 500


def test_a_resource_read_is_read() -> None:
    params = {"uri": "test://a", "inputResponses": {"k": 5}, "requestState": "s1.x"}
    assert read_resource_read(params) == ResourceRead("test://a", Continuation({"k": 5}, "s1.x"))
    assert read_resource_read({"uri": ""}) == ResourceRead("", Continuation({}, None))


@pytest.mark.parametrize("value", NO_STRING)
def test_a_name_or_uri_that_is_not_a_string_is_named(value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"params\.name must be a string"):
        read_prompt_get({"name": value})
    with pytest.raises(InvalidParams, match=r"params\.uri must be a string"):
        read_resource_read({"uri": value})


@pytest.mark.parametrize("value", NO_OBJECT)
def test_every_method_that_may_ask_checks_its_answers_alike(value: Any) -> None:
    for read in (read_tool_call, read_prompt_get, read_resource_read):
        with pytest.raises(InvalidParams, match=r"params\.inputResponses must be an object"):
            read({"name": "n", "uri": "u", "inputResponses": value})


PROMPT_COMPLETION: dict[str, Any] = {
    "ref": {"type": "ref/prompt", "name": "code_review", "uri": 5},
    "argument": {"name": "framework", "value": "fla"},
    "context": {"arguments": {"language": "python"}},
}


def test_a_completion_for_a_prompt_is_read() -> None:
    assert read_completion(PROMPT_COMPLETION) == CompletionRequest(
        "prompt", "code_review", "framework", "fla", {"language": "python"}
    )


def test_a_completion_for_a_resource_is_read() -> None:
    params = {"ref": {"type": "ref/resource", "uri": "file:///{path}"}, "argument": {"name": "path", "value": ""}}
    assert read_completion(params) == CompletionRequest("resource", "file:///{path}", "path", "", {})


@pytest.mark.parametrize("context", [None, {}, {"arguments": None}, {"arguments": {}}, {"other": 1}])
def test_a_completion_needs_no_context(context: Any) -> None:
    assert read_completion({**PROMPT_COMPLETION, "context": context}).context == {}


@pytest.mark.parametrize(
    ("path", "values", "problem"),
    [
        (("ref",), [None, *NO_OBJECT], r"params\.ref must be an object"),
        (
            ("ref", "type"),
            [*NO_STRING, "ref/tool", "prompt", ""],
            r'params\.ref\.type must be "ref/prompt" or "ref/resource"',
        ),
        (("ref", "name"), NO_STRING, r"params\.ref\.name must be a string"),
        (("argument",), [None, *NO_OBJECT], r"params\.argument must be an object"),
        (("argument", "name"), NO_STRING, r"params\.argument\.name must be a string"),
        (("argument", "value"), NO_STRING, r"params\.argument\.value must be a string"),
        (("context",), NO_OBJECT, r"params\.context must be an object"),
        (("context", "arguments"), NO_OBJECT, r"params\.context\.arguments must be an object"),
        (("context", "arguments", "a"), NO_STRING[1:], r"params\.context\.arguments\['a'\] must be a string"),
    ],
)
def test_a_field_of_a_completion_that_is_wrong_is_named(path: tuple[str, ...], values: list[Any], problem: str) -> None:
    for value in values:
        params = copy.deepcopy(PROMPT_COMPLETION)
        node = params
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = value
        with pytest.raises(InvalidParams, match=problem):
            read_completion(params)
        if len(path) < 3 and path[0] != "context":
            del node[path[-1]]
            with pytest.raises(InvalidParams, match=problem):
                read_completion(params)


def test_a_completion_for_a_resource_needs_its_uri() -> None:
    for ref in ({"name": "p"}, {"uri": None}, {"uri": 5}):
        with pytest.raises(InvalidParams, match=r"params\.ref\.uri must be a string"):
            read_completion({**PROMPT_COMPLETION, "ref": {"type": "ref/resource", **ref}})


def routed(**headers: str) -> Headers:
    return Headers([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])


@pytest.mark.parametrize("method", [method for method in METHODS.values() if method.target], ids=lambda each: each.name)
def test_a_name_header_repeats_what_any_method_is_about(method: Any) -> None:
    request = Request(1, method.name, {method.target: "mine"})
    for headers in (routed(), routed(mcp_name="mine"), routed(mcp_method=method.name, mcp_name="=?base64?bWluZQ==?=")):
        check_routing(request, headers)
    for name in ("other", "", "=?base64?b3RoZXI=?=", "=?base64?bWluZQ?="):
        with pytest.raises(HeaderMismatch, match="Mcp-Name"):
            check_routing(request, routed(mcp_name=name))


@pytest.mark.parametrize(
    "message",
    [Request(1, "tools/call", {"name": "x"}), Notification("notifications/cancelled", {}), Response(1, {}, None)],
    ids=lambda message: type(message).__name__,
)
def test_a_method_header_repeats_the_method_of_any_message(message: Request | Notification | Response) -> None:
    method = None if isinstance(message, Response) else message.method
    check_routing(message, routed() if method is None else routed(mcp_method=method))
    with pytest.raises(HeaderMismatch, match="Mcp-Method is 'tools/list', but the body"):
        check_routing(message, routed(mcp_method="tools/list"))
