"""One request from its bytes to its reply.

Who calls is established before this, on the headers alone, so that nobody without a valid token makes a
replica read or decode a body.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.audit import AuditLog
from gateway.authoring.prompts import Prompt
from gateway.authoring.registry import Registry
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.calls import Call, CallRunner, Post
from gateway.catalogue import Catalogue
from gateway.engine.host import Host
from gateway.errors import (
    GatewayError,
    InsufficientScope,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    RpcError,
)
from gateway.listening import Listener
from gateway.ports import Caller
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Notification, RequestId, Response, parse_message, request_id_of, result_response
from gateway.protocol.param_headers import check_param_headers
from gateway.protocol.released.requests import NAMED_METHODS, read_request
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.requests import (
    CompletionRequest,
    Continuation,
    McpRequest,
    read_completion,
    read_cursor,
    read_prompt_get,
    read_resource_read,
    read_tool_call,
)
from gateway.protocol.strict_json import MAX_DEPTH, decode
from gateway.protocol.versions import choose_wire
from gateway.subscriptions import ChangeHub
from gateway.task_methods import TaskMethods

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answered:
    """The request has a JSON-RPC response, `body`."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """A notification was taken; there is nothing to answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request ends in an error. `request_id` is None where no id could be read."""

    error: GatewayError
    request_id: RequestId | None = None


@dataclass(frozen=True, slots=True)
class Listening:
    """The request is answered by a stream that stays open: JSON-RPC messages, the response last."""

    messages: AsyncIterator[bytes]
    request_id: RequestId


Reply: TypeAlias = Answered | Accepted | Refused | Listening

TaskMethod: TypeAlias = Callable[[McpRequest, Caller, Registry], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request with all that came with it.

    Attributes:
        request: the request itself.
        headers: of the HTTP request that carried it.
        caller: who sent it.
        post: sends a notification ahead of the answer, or None if the client takes none.
    """

    request: McpRequest
    headers: Headers
    caller: Caller
    post: Post | None


class Dispatcher:
    """Turns requests into replies; holds nothing between two of them.

    Args:
        catalogue: what is served; `replace` takes a newer one.
        calls: runs legs.
        host: runs completions.
        results: writes results.
        changes: what `subscriptions/listen` streams hear of.
        audit: notes refusals.
        max_json_depth: how deep a body may nest.
        tasks: answers what is asked about tasks, or None where there are none.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        calls: CallRunner,
        host: Host,
        results: ResultWriter,
        changes: ChangeHub,
        audit: AuditLog,
        max_json_depth: int = MAX_DEPTH,
        tasks: TaskMethods | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._calls = calls
        self._host = host
        self._results = results
        self._changes = changes
        self._audit = audit
        self._max_json_depth = max_json_depth
        self._listener = Listener(results, changes, tasks)
        self._methods: dict[str, Callable[[Incoming], Awaitable[Reply]]] = {
            "server/discover": self._discover,
            "tools/list": self._lister("tools"),
            "tools/call": self._call_tool,
            "prompts/list": self._lister("prompts"),
            "prompts/get": self._get_prompt,
            "resources/list": self._lister("resources"),
            "resources/templates/list": self._lister("resourceTemplates"),
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }
        if tasks is not None:
            self._methods["tasks/get"] = self._task_method(tasks.get)
            self._methods["tasks/update"] = self._task_method(tasks.update)
            self._methods["tasks/cancel"] = self._task_method(tasks.cancel)

    @property
    def registry(self) -> Registry:
        """What is served now."""
        return self._catalogue.registry

    def replace(self, catalogue: Catalogue) -> None:
        """Serve a newer catalogue from the next request on, and announce the lists that differ."""
        changed = self._catalogue.changed_lists(catalogue)
        self._catalogue = catalogue
        for name in changed:
            self._changes.announce(name)

    async def handle(self, headers: Headers, body: bytes, caller: Caller, post: Post | None) -> Reply:
        """Answer one request. Whatever the client sent, the reply says so; nothing is raised for it."""
        value: Any = None
        try:
            value = decode(body, self._max_json_depth)
            message = parse_message(value)
            if isinstance(message, Response):
                raise InvalidRequest("This protocol version takes no responses; answers travel in inputResponses")
            choose_wire(message, headers.get(b"mcp-protocol-version"))
            if isinstance(message, Notification):
                return Accepted()
            request = read_request(message, headers)
            method = self._methods.get(request.method)
            if method is None:
                raise MethodNotFound(f"Method not found: {request.method}")
            return await method(Incoming(request, headers, caller, post))
        except (RpcError, InsufficientScope) as error:
            method_name, target = _told(value)
            self._audit.refused(error, caller.principal, method=method_name, target=target)
            return Refused(error, request_id_of(value))

    async def _discover(self, incoming: Incoming) -> Reply:
        return Answered(result_response(incoming.request.id, self._catalogue.discovery))

    def _lister(self, name: str) -> Callable[[Incoming], Awaitable[Reply]]:
        async def list_entries(incoming: Incoming) -> Reply:
            page = self._catalogue.page(name, read_cursor(incoming.request.params), incoming.caller)
            return Answered(result_response(incoming.request.id, page))

        return list_entries

    async def _call_tool(self, incoming: Incoming) -> Reply:
        wanted = read_tool_call(incoming.request.params)
        tool = self._catalogue.registry.tools.get(wanted.name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {wanted.name}")
        check_param_headers(tool.param_headers, wanted.arguments, incoming.headers)
        return await self._call(incoming, tool, wanted.name, wanted.arguments, wanted.continuation)

    async def _get_prompt(self, incoming: Incoming) -> Reply:
        wanted = read_prompt_get(incoming.request.params)
        prompt = self._catalogue.registry.prompts.get(wanted.name)
        if prompt is None:
            raise InvalidParams(f"Unknown prompt: {wanted.name}")
        return await self._call(incoming, prompt, wanted.name, dict(wanted.arguments), wanted.continuation)

    async def _read_resource(self, incoming: Incoming) -> Reply:
        wanted = read_resource_read(incoming.request.params)
        found = self._catalogue.registry.find_resource(wanted.uri)
        if found is None:
            raise InvalidParams("Resource not found", {"uri": wanted.uri})
        resource, variables = found
        return await self._call(incoming, resource, wanted.uri, dict(variables), wanted.continuation)

    async def _call(
        self,
        incoming: Incoming,
        served: Served,
        target: str,
        arguments: dict[str, Any],
        continuation: Continuation,
    ) -> Reply:
        _check_scopes(served, incoming.caller)
        call = Call(incoming.request, incoming.caller, served, target, arguments, continuation, incoming.post)
        return Answered(await self._calls.run(call))

    async def _complete(self, incoming: Incoming) -> Reply:
        wanted = read_completion(incoming.request.params)
        target = self._completed_target(wanted)
        _check_scopes(target, incoming.caller)
        completer = self._catalogue.registry.completer(target, wanted.argument)
        completion: dict[str, Any] = {"values": [], "total": 0, "hasMore": False}
        if completer is not None:
            try:
                completion = await completer.suggest(wanted.value, wanted.context, self._host)
            except Exception as error:
                log.exception("completion failed", extra={"target": wanted.target, "argument": wanted.argument})
                raise InternalError("The completion failed") from error
        return Answered(result_response(incoming.request.id, self._results.complete({"completion": completion})))

    def _completed_target(self, wanted: CompletionRequest) -> Prompt | Resource:
        registry = self._catalogue.registry
        target: Prompt | Resource | None
        if wanted.kind == "prompt":
            target = registry.prompts.get(wanted.target)
        else:
            target = registry.templates.get(wanted.target) or registry.resources.get(wanted.target)
        if target is None:
            raise InvalidParams(f"Unknown {wanted.kind}: {wanted.target}")
        return target

    async def _listen(self, incoming: Incoming) -> Reply:
        messages = await self._listener.listen(incoming.request, incoming.caller, self._catalogue.registry)
        return Listening(messages, incoming.request.id)

    def _task_method(self, answer: TaskMethod) -> Callable[[Incoming], Awaitable[Reply]]:
        async def handle(incoming: Incoming) -> Reply:
            result = await answer(incoming.request, incoming.caller, self._catalogue.registry)
            return Answered(result_response(incoming.request.id, result))

        return handle


def _told(value: Any) -> tuple[str, str]:
    """Return what a request says it wants: its method, and the name or URI if it has one. For the audit log."""
    members = value if isinstance(value, dict) else {}
    method = members.get("method")
    params = members.get("params")
    target = params.get(NAMED_METHODS.get(method, "")) if isinstance(method, str) and isinstance(params, dict) else None
    return method if isinstance(method, str) else "", target if isinstance(target, str) else ""


def _check_scopes(served: Served, caller: Caller) -> None:
    """Let only callers through whose token grants what it takes.

    Raises:
        InsufficientScope: it does not.
    """
    if served.scopes and not caller.grants(served.scopes):
        raise InsufficientScope(served.scopes)
