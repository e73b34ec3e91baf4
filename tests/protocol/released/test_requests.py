"""The ladder of checks on the released wire, rung by rung."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types.methods import validate_client_request
from pydantic import ValidationError

from gateway.engine.capabilities import supports
from gateway.errors import HeaderMismatch, InvalidParams, RpcError, UnsupportedVersion
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Request
from gateway.protocol.method_table import NAMED_METHODS
from gateway.protocol.released.requests import (
    MAX_LISTEN_URI_CHARS,
    MAX_LISTEN_URIS,
    MAX_URI_CHARS,
    ListenFilter,
    read_listen,
    read_request,
)
from gateway.protocol.requests import (
    McpRequest,
    read_completion,
    read_prompt_get,
    read_resource_read,
    read_tool_call,
)
from tests.protocol.header_values import encode_header_value

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class Draft:
    """A correct request, to be spoilt by a test before it is read."""

    def __init__(self, method: str = "tools/call", **params: Any) -> None:
        self.method = method
        self.meta: Any = {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}}
        self.params: dict[str, Any] = params or {"name": "echo"}
        self.headers: dict[str, str] = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        if method in NAMED_METHODS:
            self.headers["mcp-name"] = encode_header_value(str(self.params[NAMED_METHODS[method]]))

    def read(self) -> McpRequest:
        params = self.params if self.meta is None else {**self.params, "_meta": self.meta}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        return read_request(Request(1, self.method, params), Headers(raw))

    def send(self, header: str, value: str | None) -> None:
        """Send another value of a header, or none."""
        self.headers.pop(header, None)
        if value is not None:
            self.headers[header] = value

    def refusal(self) -> RpcError:
        with pytest.raises(RpcError) as caught:
            self.read()
        return caught.value


def test_a_complete_request_is_read() -> None:
    draft = Draft(name="echo", arguments={"a": 1})
    draft.meta |= {
        CLIENT_INFO: {"name": "client", "version": "1", "title": "Client"},
        LOG_LEVEL: "warning",
        "progressToken": 5,
        "com.example/own": [1],
    }
    request = draft.read()
    assert (request.id, request.method) == (1, "tools/call")
    assert request.params == {"name": "echo", "arguments": {"a": 1}, "_meta": draft.meta}
    assert request.meta == draft.meta
    assert request.capabilities == {"elicitation": {}}
    assert (request.log_level, request.progress_token) == ("warning", 5)


def test_optional_fields_may_be_absent() -> None:
    request = Draft("server/discover").read()
    assert (request.log_level, request.progress_token) == (None, None)


def test_metadata_written_by_the_official_types_is_read() -> None:
    draft = Draft()
    capabilities = mcp_types.ClientCapabilities(
        elicitation=mcp_types.ElicitationCapability(form=mcp_types.FormElicitationCapability()),
        sampling=mcp_types.SamplingCapability(),
        roots=mcp_types.RootsCapability(list_changed=True),
    )
    info = mcp_types.Implementation(name="client", version="1")
    draft.meta[CAPABILITIES] = capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
    draft.meta[CLIENT_INFO] = info.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert draft.read().capabilities["roots"] == {"listChanged": True}


# --- each rung ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [None, [], "x", 1, True, {}, {VERSION: "2026-07-28"}, {CAPABILITIES: {}}])
def test_incomplete_metadata_is_invalid_params(meta: Any) -> None:
    draft = Draft()
    draft.meta = meta
    assert type(draft.refusal()) is InvalidParams
    assert "_meta" in draft.refusal().message


WRONG_TYPES: list[tuple[str, list[Any]]] = [
    (VERSION, [None, 1, True, [], {}]),
    (CAPABILITIES, [None, 1, True, [], "x", {"elicitation": 1}, {"sampling": {"tools": 1}}, {"extensions": []}]),
    (CLIENT_INFO, [False, 1, "x", [], {}, {"name": "n"}, {"version": "1"}, {"name": 1, "version": "1"},
                   {"name": "n", "version": 1}]),
    (LOG_LEVEL, [1, True, "", "INFO", "warn", [], {}]),
    ("progressToken", [True, 1.5, 1.0, [], {}]),
]  # fmt: skip


def test_an_optional_metadata_field_that_is_null_is_absent() -> None:
    draft = Draft()
    draft.meta |= {CLIENT_INFO: None, LOG_LEVEL: None, "progressToken": None}
    draft.meta[CAPABILITIES] = {"roots": None, "sampling": {}}
    read = draft.read()
    assert (read.log_level, read.progress_token) == (None, None)
    assert [supports(read.capabilities, (name,)) for name in ("roots", "sampling")] == [False, True]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG_TYPES for value in values])
def test_a_metadata_field_of_the_wrong_type_is_named(field: str, value: Any) -> None:
    draft = Draft()
    draft.meta[field] = value
    error = draft.refusal()
    assert type(error) is InvalidParams
    assert field in error.message


@pytest.mark.parametrize("level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"])
@pytest.mark.parametrize("token", ["", "t", 0, -1])
def test_every_level_and_token_of_the_schema_is_accepted(level: str, token: str | int) -> None:
    draft = Draft()
    draft.meta |= {LOG_LEVEL: level, "progressToken": token}
    request = draft.read()
    assert (request.log_level, request.progress_token) == (level, token)


@pytest.mark.parametrize("sent", [None, "", "v999", "2026-07-28 x", "2025-11-25"])
def test_a_version_header_that_differs_is_a_mismatch(sent: str | None) -> None:
    draft = Draft()
    draft.send("mcp-protocol-version", sent)
    assert type(draft.refusal()) is HeaderMismatch


@pytest.mark.parametrize("version", ["v999.0.0", "DRAFT-2026-v1", ""])
def test_an_agreed_version_that_is_not_served_is_unsupported(version: str) -> None:
    draft = Draft()
    draft.meta[VERSION] = draft.headers["mcp-protocol-version"] = version
    error = draft.refusal()
    assert type(error) is UnsupportedVersion
    assert error.data == {"supported": ["2026-07-28", "2025-11-25", "2025-06-18"], "requested": version}


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_the_error_for_a_version_that_needs_a_session_says_how_to_get_one(version: str) -> None:
    draft = Draft()
    draft.meta[VERSION] = draft.headers["mcp-protocol-version"] = version
    error = draft.refusal()
    assert type(error) is UnsupportedVersion
    assert error.message.startswith(f"{version} needs a session: send initialize")
    assert error.data is not None
    assert (error.data["requested"], error.data["needsInitialize"]) == (version, True)


@pytest.mark.parametrize("method", ["tools/call", "prompts/list", "server/discover", "nonsense"])
@pytest.mark.parametrize("sent", [None, " ", "tools/list", "TOOLS/CALL", "=?base64?dG9vbHMvY2FsbA==?="])
def test_a_method_header_that_differs_is_a_mismatch(method: str, sent: str | None) -> None:
    draft = Draft(method)
    draft.send("mcp-method", sent)
    error = draft.refusal()
    assert type(error) is HeaderMismatch
    assert "Mcp-Method" in error.message


@pytest.mark.parametrize(("method", "parameter"), NAMED_METHODS.items())
@pytest.mark.parametrize("sent", [None, "", "other", "ECHO", "=?base64?ZWNobw?=", "=?base64?b3RoZXI=?="])
def test_a_name_header_that_differs_is_a_mismatch(method: str, parameter: str, sent: str | None) -> None:
    draft = Draft(method, **{parameter: "echo"})
    draft.send("mcp-name", sent)
    error = draft.refusal()
    assert type(error) is HeaderMismatch
    assert "Mcp-Name" in error.message


def test_a_name_beyond_ascii_needs_the_sentinel() -> None:
    draft = Draft(name="café")
    assert draft.headers["mcp-name"].startswith("=?base64?")
    draft.read()
    draft.headers["mcp-name"] = "café"
    assert type(draft.refusal()) is HeaderMismatch


@given(st.text())
def test_every_name_can_be_mirrored(name: str) -> None:
    assert Draft(name=name).read().params["name"] == name


@pytest.mark.parametrize("value", ["  echo  ", "\techo \t", "=?base64?ZWNobw==?="])
def test_a_name_header_may_have_blanks_around_it_or_be_encoded(value: str) -> None:
    draft = Draft()
    draft.headers["mcp-name"] = value
    draft.read()


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "tasks/result", "unknown/method"])
@pytest.mark.parametrize("sent", [None, "anything"])
def test_other_methods_need_no_name_header(method: str, sent: str | None) -> None:
    draft = Draft(method, name="echo")
    draft.send("mcp-name", sent)
    assert draft.read().method == method


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 1}, {"name": ["echo"]}])
@pytest.mark.parametrize("sent", [None, "echo"])
def test_a_name_that_is_not_a_string_is_left_to_the_parameters_of_the_method(
    params: dict[str, Any], sent: str | None
) -> None:
    draft = Draft()
    draft.params = params
    draft.send("mcp-name", sent)
    with pytest.raises(InvalidParams, match=r"params\.name"):
        read_tool_call(draft.read().params)


def test_a_long_value_is_not_repeated_whole() -> None:
    draft = Draft()
    draft.headers["mcp-name"] = "x" * 100_000
    assert len(draft.refusal().message) < 500


# --- which mistake is reported first -----------------------------------------------------------------


LADDER: list[tuple[dict[str, str], dict[str, Any], type[RpcError], str]] = [
    ({}, {CAPABILITIES: None}, InvalidParams, CAPABILITIES),
    ({"mcp-protocol-version": "2026-07-28"}, {VERSION: "v999.0.0"}, HeaderMismatch, "MCP-Protocol-Version"),
    ({"mcp-protocol-version": "v999.0.0"}, {VERSION: "v999.0.0"}, UnsupportedVersion, "Unsupported protocol version"),
    ({"mcp-method": "tools/list"}, {}, HeaderMismatch, "Mcp-Method"),
    ({"mcp-name": "other"}, {}, HeaderMismatch, "Mcp-Name"),
    ({}, {CLIENT_INFO: 5}, InvalidParams, CLIENT_INFO),
]
"""Rung → headers and members of `_meta` that break it (None: left out), the error, and words of it."""


def spoil(draft: Draft, rung: int) -> None:
    headers, meta, _, _ = LADDER[rung]
    draft.headers |= headers
    draft.meta = {name: value for name, value in (draft.meta | meta).items() if value is not None}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for first in range(len(LADDER))
        for second in range(first, len(LADDER))
        if (first, second) != (1, 2)
    ],
)
def test_of_two_mistakes_the_one_on_the_earlier_rung_is_reported(first: int, second: int) -> None:
    draft = Draft()
    spoil(draft, second)
    spoil(draft, first)
    _, _, error_type, words = LADDER[first]
    error = draft.refusal()
    assert type(error) is error_type
    assert words in error.message


def test_no_metadata_at_all_is_invalid_params_and_not_a_mismatch() -> None:
    draft = Draft("server/discover")
    spoil(draft, 3)
    draft.meta = None
    error = draft.refusal()
    assert type(error) is InvalidParams
    assert "2026-07-28" in error.message


def test_a_contradiction_is_reported_before_an_unknown_version() -> None:
    draft = Draft("server/discover")
    spoil(draft, 1)
    assert type(draft.refusal()) is HeaderMismatch


# --- parameters of the methods -----------------------------------------------------------------------


NO_OBJECT: list[Any] = [[], "x", 0, False, 1.5]
NO_STRING: list[Any] = [None, 1, 1.5, True, [], {}, ["x"]]
PROMPT_COMPLETION: dict[str, Any] = {
    "ref": {"type": "ref/prompt", "name": "code_review", "uri": 5},
    "argument": {"name": "framework", "value": "fla"},
    "context": {"arguments": {"language": "python"}},
}


def test_a_filter_is_read() -> None:
    asked = {
        "toolsListChanged": True,
        "promptsListChanged": False,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["test://b", "test://a", "test://b"],
        "taskIds": ["t_b", "t_a", "t_b"],
        "somethingNew": 5,
    }
    honoured = ListenFilter(True, False, True, ("test://b", "test://a"), ("t_b", "t_a"))
    assert read_listen({"notifications": asked}) == honoured


@pytest.mark.parametrize("name", ["toolsListChanged", "promptsListChanged", "resourcesListChanged"])
def test_each_list_is_asked_for_by_its_own_field(name: str) -> None:
    heard = read_listen({"notifications": {name: True}})
    assert (heard.tools, heard.prompts, heard.resources) == (name[0] == "t", name[0] == "p", name[0] == "r")


def test_what_is_not_asked_for_is_not_heard() -> None:
    assert read_listen({"notifications": {}}) == ListenFilter(False, False, False, ())
    assert read_listen({"notifications": {"other": True}}) == ListenFilter()


@pytest.mark.parametrize("params", [{}, *({"notifications": value} for value in [None, *NO_OBJECT])])
def test_listening_needs_a_filter(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=r"params\.notifications must be an object"):
        read_listen(params)


@pytest.mark.parametrize("name", ["toolsListChanged", "promptsListChanged", "resourcesListChanged"])
@pytest.mark.parametrize("value", [0, 1, "true", [], {}])
def test_a_flag_of_the_filter_that_is_not_a_boolean_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=rf"params\.notifications\.{name} must be a boolean"):
        read_listen({"notifications": {name: value}})


def test_a_filter_that_is_null_is_absent() -> None:
    names = ("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds")
    assert read_listen({"notifications": dict.fromkeys(names)}) == ListenFilter(False, False, False, (), ())


@pytest.mark.parametrize("value", ["test://a", 1, True, {}])
def test_uris_that_are_not_an_array_are_named(value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"resourceSubscriptions must be an array of strings"):
        read_listen({"notifications": {"resourceSubscriptions": value}})


@pytest.mark.parametrize("value", NO_STRING)
def test_a_uri_that_is_not_a_string_is_named(value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"resourceSubscriptions\[1\] must be a string"):
        read_listen({"notifications": {"resourceSubscriptions": ["test://a", value]}})


def test_the_filter_names_only_so_many_uris_of_so_many_characters() -> None:
    many = [f"test://{index}" for index in range(MAX_LISTEN_URIS)]
    longest = "x" * MAX_URI_CHARS
    assert read_listen({"notifications": {"resourceSubscriptions": many}}).uris == tuple(many)
    assert read_listen({"notifications": {"resourceSubscriptions": [longest]}}).uris == (longest,)
    with pytest.raises(InvalidParams, match=r"must not have more than 100 entries"):
        read_listen({"notifications": {"resourceSubscriptions": [*many, "test://0"]}})
    with pytest.raises(InvalidParams, match=r"resourceSubscriptions\[0\] must not be longer than 2048 characters"):
        read_listen({"notifications": {"resourceSubscriptions": [longest + "x"]}})


def test_the_uris_of_a_filter_have_only_so_many_characters_together() -> None:
    each = MAX_LISTEN_URI_CHARS // 64
    most = [f"{index:02}".ljust(each, "x") for index in range(64)]
    assert read_listen({"notifications": {"resourceSubscriptions": most}}).uris == tuple(most)
    with pytest.raises(InvalidParams, match=r"resourceSubscriptions must not have more than 65536 characters in all"):
        read_listen({"notifications": {"resourceSubscriptions": [*most, "x"]}})


# --- hostile input -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
spots = st.sampled_from(
    [
        ("_meta",), ("name",), ("arguments",), ("inputResponses",), ("requestState",), ("cursor",),
        ("_meta", VERSION), ("_meta", CAPABILITIES), ("_meta", CLIENT_INFO), ("_meta", LOG_LEVEL),
        ("_meta", "progressToken"), ("_meta", CAPABILITIES, "elicitation"), ("_meta", CAPABILITIES, "sampling"),
        ("_meta", CAPABILITIES, "extensions"), ("_meta", CLIENT_INFO, "name"), ("_meta", "traceparent"),
    ]
)  # fmt: skip
GOOD_PARAMS: dict[str, Any] = {
    "name": "echo",
    "_meta": {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}, CLIENT_INFO: {"name": "n", "version": "1"}},
}


@given(st.lists(st.tuples(spots, json_values), max_size=3), st.dictionaries(
    st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name"]), st.binary(max_size=12), max_size=2
))  # fmt: skip
def test_a_spoilt_request_is_read_or_refused_as_the_specification_says(
    changes: list[tuple[tuple[str, ...], Any]], headers: dict[str, bytes]
) -> None:
    params = copy.deepcopy(GOOD_PARAMS)
    for path, value in changes:
        node: Any = params
        for name in path[:-1]:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[path[-1]] = value
    good = {"mcp-protocol-version": b"2026-07-28", "mcp-method": b"tools/call", "mcp-name": b"echo"}
    raw = [(name.encode(), value) for name, value in (good | headers).items()]
    try:
        request = read_request(Request(1, "tools/call", params), Headers(raw))
        read_tool_call(request.params)
    except RpcError as error:
        assert error.code in {-32602, -32020, -32022}  # noqa: PT017


READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "tools/call": read_tool_call,
    "prompts/get": read_prompt_get,
    "resources/read": read_resource_read,
    "completion/complete": read_completion,
    "subscriptions/listen": read_listen,
}
params_of_all_methods: dict[str, Any] = {
    "name": "n",
    "uri": "u",
    "arguments": {"a": "b"},
    **PROMPT_COMPLETION,
    "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["test://a"]},
}
param_spots = st.sampled_from(
    [
        ("name",), ("uri",), ("arguments",), ("arguments", "a"), ("inputResponses",), ("requestState",),
        ("ref",), ("ref", "type"), ("ref", "name"), ("ref", "uri"), ("argument",), ("argument", "name"),
        ("argument", "value"), ("context",), ("context", "arguments"), ("context", "arguments", "a"),
        ("notifications",), ("notifications", "toolsListChanged"), ("notifications", "promptsListChanged"),
        ("notifications", "resourcesListChanged"), ("notifications", "resourceSubscriptions"),
    ]
)  # fmt: skip


@given(st.sampled_from(sorted(READERS)), st.lists(st.tuples(param_spots, json_values | st.just(...)), max_size=3))
@example("prompts/get", [(("arguments",), {"": None})])
def test_whatever_stands_where_in_the_parameters_they_are_read_or_invalid(
    method: str, changes: list[tuple[tuple[str, ...], Any]]
) -> None:
    params = copy.deepcopy(params_of_all_methods)
    for path, value in changes:
        node: Any = params
        for name in path[:-1]:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict) and value is ...:
            node.pop(path[-1], None)
        elif isinstance(node, dict):
            node[path[-1]] = value
    try:
        READERS[method](params)
    except InvalidParams:
        return
    # What we read is what the published types read, but that we take a null for an absent object or argument, and
    # leave what is in answers and state to those who ask and open.
    without_nulls = {name: value for name, value in params.items() if value is not None}
    for name in ("inputResponses", "requestState"):
        without_nulls.pop(name, None)
    if isinstance(context := without_nulls.get("context"), dict) and context.get("arguments") is None:
        context.pop("arguments", None)
    for holder in (without_nulls, without_nulls.get("context")):
        if isinstance(holder, dict) and isinstance(given := holder.get("arguments"), dict):
            holder["arguments"] = {name: value for name, value in given.items() if value is not None}
    without_nulls["_meta"] = {VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: {"name": "c", "version": "1"}}
    try:
        validate_client_request(method, "2026-07-28", without_nulls)
    except ValidationError as error:
        pytest.fail(f"the published types refuse what we read: {error}")
