"""Pure: a request in the form that all wires share, and the parameters that are the same on every wire.

Each wire has its own place for the client's capabilities and wishes, and its own package reads them. The parameters of
`tools/call` and similar methods are the same everywhere, and so is the header that repeats a name. A member that is
missing or has the wrong type raises `InvalidParams`, which names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import msgspec

from gateway.errors import HeaderMismatch, InvalidParams
from gateway.protocol.fields import quote, read_object, read_string, read_strings, require_object
from gateway.protocol.headers import METHOD, NAME, Headers, decode_header_value
from gateway.protocol.jsonrpc import Message, Request, Response
from gateway.protocol.method_table import TARGETS
from gateway.protocol.versions import META_PROGRESS

MAX_TASK_ID_CHARS: Final = 128
"""The longest task id that is looked up."""


@final
class McpRequest:
    """A request after its wire has checked everything except the parameters of the method.

    Attributes:
        id: to be echoed exactly.
        method: not yet looked up.
        params: as sent, including `_meta`, not yet checked.
        log_level: one of `LOG_LEVELS`, or None if the client wants no log messages.
        progress_token: identifies the request in progress notifications; None if the client wants none.
    """

    def __init__(
        self,
        request: Request,
        *,
        meta: dict[str, Any],
        capabilities: dict[str, Any],
        log_level: str | None,
        progress_token: str | int | None,
    ) -> None:
        self.id: Final = request.id
        self.method: Final = request.method
        self.params: Final = request.params
        self.meta: Final = meta
        self.capabilities: Final = capabilities
        self.log_level: Final = log_level
        self.progress_token: Final = progress_token


class Continuation(msgspec.Struct, frozen=True):
    """The part of a retry that continues an earlier leg ("Multi Round-Trip Requests").

    The answers are by key, not yet checked. The state is as sent, of any type. A value that is not a sealed token is
    refused when it is opened, with the same message as a forged token.
    """

    input_responses: dict[str, Any]
    request_state: Any


class ToolCall(msgspec.Struct, frozen=True):
    """The parameters of `tools/call`. `arguments` is `{}` if absent or null."""

    name: str
    arguments: dict[str, Any]
    continuation: Continuation


class PromptGet(msgspec.Struct, frozen=True):
    """The parameters of `prompts/get`. `arguments` is `{}` if absent or null."""

    name: str
    arguments: dict[str, str]
    continuation: Continuation


class ResourceRead(msgspec.Struct, frozen=True):
    """The parameters of `resources/read`. The lookup checks whether `uri` is a URI."""

    uri: str
    continuation: Continuation


class CompletionRequest(msgspec.Struct, frozen=True):
    """The parameters of `completion/complete`.

    `target` is the name of the prompt, or the URI or URI template of the resource. `value` is what the user has typed
    so far, `context` has the arguments that are already filled in.
    """

    kind: Literal["prompt", "resource"]
    target: str
    argument: str
    value: str
    context: dict[str, str]


def read_tool_call(params: Mapping[str, Any]) -> ToolCall:
    """Read the parameters of `tools/call`."""
    return ToolCall(read_string(params, "name"), read_object(params, "arguments"), read_continuation(params))


def read_prompt_get(params: Mapping[str, Any]) -> PromptGet:
    """Read the parameters of `prompts/get`, whose arguments are strings."""
    return PromptGet(read_string(params, "name"), read_strings(params, "arguments"), read_continuation(params))


def read_resource_read(params: Mapping[str, Any]) -> ResourceRead:
    """Read the parameters of `resources/read`."""
    return ResourceRead(read_string(params, "uri"), read_continuation(params))


def read_completion(params: Mapping[str, Any]) -> CompletionRequest:
    """Read the parameters of `completion/complete`. An unknown type of `ref` is `InvalidParams` too."""
    ref = require_object(params, "ref")
    kind: Literal["prompt", "resource"]
    match ref.get("type"):
        case "ref/prompt":
            kind, target = "prompt", read_string(ref, "name", "params.ref")
        case "ref/resource":
            kind, target = "resource", read_string(ref, "uri", "params.ref")
        case _:
            raise InvalidParams('params.ref.type must be "ref/prompt" or "ref/resource"')
    argument = require_object(params, "argument")
    return CompletionRequest(
        kind,
        target,
        read_string(argument, "name", "params.argument"),
        read_string(argument, "value", "params.argument"),
        read_strings(read_object(params, "context"), "arguments", "params.context"),
    )


def read_continuation(params: Mapping[str, Any]) -> Continuation:
    """Read `inputResponses` and `requestState`, which every method that can ask has; null counts as absent."""
    return Continuation(read_object(params, "inputResponses"), params.get("requestState"))


def read_cursor(params: Mapping[str, Any]) -> str | None:
    """Read the `cursor` of a list request; None requests the first page."""
    cursor = params.get("cursor")
    if cursor is not None and type(cursor) is not str:
        raise InvalidParams("params.cursor must be a string")
    return cursor


def read_progress_token(meta: Mapping[str, Any]) -> str | int | None:
    """Read the progress token, or None if the client wants no progress (MCP "Progress").

    Anything else than a string or an integer is `InvalidParams`.
    """
    token = meta.get(META_PROGRESS)
    if type(token) is str or type(token) is int:
        return token
    if token is not None:
        raise InvalidParams(f'params._meta["{META_PROGRESS}"] must be a string or an integer')
    return None


def check_routing(message: Message, headers: Headers) -> None:
    """Compare `Mcp-Method` and `Mcp-Name` with the body, if they are there. Proxies that read them must not be misled.

    A response has no method. If one of the headers differs, this raises `HeaderMismatch`.
    """
    sent, name = headers.get(METHOD), headers.get(NAME)
    if isinstance(message, Response):
        if sent is not None:
            raise mismatch("Mcp-Method", sent, None)
        return
    if sent is not None and sent != message.method:
        raise mismatch("Mcp-Method", sent, message.method)
    parameter = TARGETS.get(message.method)
    if name is not None and parameter is not None:
        check_name(name, message.params.get(parameter))


def check_name(sent: str | None, value: Any) -> None:
    """Compare `Mcp-Name` with the parameter that it repeats. The method itself refuses a parameter of another type.

    If the header is missing, malformed or different, this raises `HeaderMismatch`.
    """
    if type(value) is not str:
        return
    if sent is None:
        raise mismatch("Mcp-Name", None, value)
    decoded = decode_header_value(sent)
    if decoded is None:
        raise HeaderMismatch(f"Header mismatch: Mcp-Name value {quote(sent)} is malformed")
    if decoded != value:
        raise mismatch("Mcp-Name", decoded, value)


def mismatch(name: str, sent: str | None, expected: str | None) -> HeaderMismatch:
    """Return the error for a header that differs from the body, which expects none if it is a response."""
    if expected is None:
        return HeaderMismatch(f"Header mismatch: {name} is {quote(sent or '')}, but the body is a response")
    if sent is None:
        return HeaderMismatch(f"Header mismatch: {name} is missing, but the body says {quote(expected)}")
    return HeaderMismatch(f"Header mismatch: {name} is {quote(sent)}, but the body says {quote(expected)}")
