"""Pure: a request as the core sees it, whatever wire it came on, and the parameters that all wires share.

Who a request is from, what its client can do and what it wants to be told is said in other places on each wire; that
is read by the wire's own package. What `tools/call` and the like take is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from gateway.errors import InvalidParams
from gateway.protocol.fields import read_object, read_string, read_strings, require_object
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.versions import META_PROGRESS_TOKEN

MAX_TASK_ID_CHARS: Final = 128
"""Longest id of a task that is looked up."""


class McpRequest(msgspec.Struct, frozen=True):
    """A request whose wire found nothing wrong with all that comes beside its parameters.

    Attributes:
        id: to be echoed exactly.
        method: not yet looked up.
        params: as sent, `_meta` included; the parameters of the method are not yet checked.
        meta: `params._meta`.
        capabilities: what the client declared for this request.
        log_level: one of `LOG_LEVELS`, or None if the client wants no log messages.
        progress_token: what progress must be marked with, or None if the client wants none.
    """

    id: RequestId
    method: str
    params: dict[str, Any]
    meta: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None
    progress_token: str | int | None


class Continuation(msgspec.Struct, frozen=True):
    """The part of a retry that goes on with an earlier leg ("Multi Round-Trip Requests").

    Attributes:
        input_responses: the client's answers by key, each still unchecked.
        request_state: as sent, of any type; None if there is none. What is no sealed token is refused by
            whoever opens it, in the same words as a forged one.
    """

    input_responses: dict[str, Any]
    request_state: Any


class ToolCall(msgspec.Struct, frozen=True):
    """The parameters of `tools/call`; `arguments` is `{}` when absent or null."""

    name: str
    arguments: dict[str, Any]
    continuation: Continuation


class PromptGet(msgspec.Struct, frozen=True):
    """The parameters of `prompts/get`; `arguments` is `{}` when absent or null."""

    name: str
    arguments: dict[str, str]
    continuation: Continuation


class ResourceRead(msgspec.Struct, frozen=True):
    """The parameters of `resources/read`; that `uri` is one is for whoever looks it up."""

    uri: str
    continuation: Continuation


class CompletionRequest(msgspec.Struct, frozen=True):
    """The parameters of `completion/complete`.

    Attributes:
        kind: what is being completed an argument of.
        target: the name of the prompt, or the uri or uri template of the resource.
        argument: the name of the argument.
        value: what the user typed so far.
        context: the arguments that are settled already.
    """

    kind: Literal["prompt", "resource"]
    target: str
    argument: str
    value: str
    context: dict[str, str]


def read_tool_call(params: Mapping[str, Any]) -> ToolCall:
    """Read the parameters of `tools/call`.

    Raises:
        InvalidParams: `name`, `arguments` or `inputResponses` has the wrong type; the message names it.
    """
    return ToolCall(read_string(params, "name"), read_object(params, "arguments"), read_continuation(params))


def read_prompt_get(params: Mapping[str, Any]) -> PromptGet:
    """Read the parameters of `prompts/get`.

    Raises:
        InvalidParams: `name`, `arguments`, one of them or `inputResponses` has the wrong type; the message names it.
    """
    return PromptGet(read_string(params, "name"), read_strings(params, "arguments"), read_continuation(params))


def read_resource_read(params: Mapping[str, Any]) -> ResourceRead:
    """Read the parameters of `resources/read`.

    Raises:
        InvalidParams: `uri` or `inputResponses` has the wrong type; the message names it.
    """
    return ResourceRead(read_string(params, "uri"), read_continuation(params))


def read_completion(params: Mapping[str, Any]) -> CompletionRequest:
    """Read the parameters of `completion/complete`.

    Raises:
        InvalidParams: a field is missing, has the wrong type, or `ref` is of no known type; the message names it.
    """
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
    """Read `inputResponses` and `requestState`, the same on every method that may ask; null is as absent.

    Raises:
        InvalidParams: `inputResponses` is not an object.
    """
    return Continuation(read_object(params, "inputResponses"), params.get("requestState"))


def read_cursor(params: Mapping[str, Any]) -> str | None:
    """Read the `cursor` of a list request; None asks for the first page.

    Raises:
        InvalidParams: it is not a string.
    """
    cursor = params.get("cursor")
    if type(cursor) is str:
        return cursor
    if "cursor" in params:
        raise InvalidParams("params.cursor must be a string")
    return None


def read_progress_token(meta: Mapping[str, Any]) -> str | int | None:
    """Read what progress must be marked with; None where the client wants none (MCP "Progress").

    Raises:
        InvalidParams: it is neither a string nor an integer.
    """
    token = meta.get(META_PROGRESS_TOKEN)
    if type(token) is str or type(token) is int:
        return token
    if META_PROGRESS_TOKEN in meta:
        raise InvalidParams(f'params._meta["{META_PROGRESS_TOKEN}"] must be a string or an integer')
    return None
