"""The 2026-07-28 wire: each request complete in itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from gateway.authoring.registry import Registry
from gateway.authoring.tools import Tool
from gateway.calls.task_creation import TaskOrder
from gateway.engine.capabilities import supports
from gateway.errors import InvalidRequest, MethodNotFound, MissingCapability
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import TASKS
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Message, Notification, Response, result_response
from gateway.protocol.param_headers import check_param_headers
from gateway.protocol.released.requests import read_request
from gateway.protocol.requests import McpRequest, read_tool_call
from gateway.protocol.versions import SUPPORTED_VERSIONS
from gateway.wires.catalogue import TTL_MS
from gateway.wires.methods import Incoming, Methods
from gateway.wires.ports import Client
from gateway.wires.released.subscriptions import Listener
from gateway.wires.released.tasks import TaskMethods
from gateway.wires.replies import Accepted, Answered, Listening, Reply

TaskMethod: TypeAlias = Callable[[McpRequest, Caller, Registry], Awaitable[dict[str, Any]]]
Handler: TypeAlias = Callable[[Incoming], Awaitable[Reply]]

_ORDER = TaskOrder("released")


class ReleasedWire:
    """Answers requests of the 2026-07-28 wire.

    Args:
        methods: those that every wire has.
        listener: answers `subscriptions/listen`.
        tasks: answers what is asked about tasks, or None where there are none.
    """

    def __init__(self, methods: Methods, listener: Listener, tasks: TaskMethods | None = None) -> None:
        self.methods = methods
        self._listener = listener
        self._handlers: dict[str, Handler] = {
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
            self._handlers["tasks/get"] = self._task_method(tasks.get)
            self._handlers["tasks/update"] = self._task_method(tasks.update)
            self._handlers["tasks/cancel"] = self._task_method(tasks.cancel)

    async def answer(self, message: Message, headers: Headers, caller: Caller, client: Client) -> Reply:
        """Answer one message.

        Raises:
            RpcError: it is refused.
            InsufficientScope: the caller's token does not grant what it takes.
        """
        if isinstance(message, Response):
            raise InvalidRequest("This protocol version takes no responses; answers travel in inputResponses")
        if isinstance(message, Notification):
            return Accepted()
        request = read_request(message, headers)
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {request.method}")
        return await handler(Incoming(request, headers, caller, client))

    async def _discover(self, incoming: Incoming) -> Reply:
        told = {"supportedVersions": SUPPORTED_VERSIONS, "capabilities": self.methods.catalogue.capabilities}
        result = self.methods.words.cacheable(told, ttl_ms=TTL_MS, scope="public")
        return Answered(result_response(incoming.request.id, result))

    def _lister(self, name: str) -> Handler:
        async def list_entries(incoming: Incoming) -> Reply:
            return Answered(result_response(incoming.request.id, self.methods.page(name, incoming)))

        return list_entries

    async def _call_tool(self, incoming: Incoming) -> Reply:
        request = incoming.request
        wanted = read_tool_call(request.params)
        tool = self.methods.tool(wanted, incoming.caller)
        if tool.param_headers:
            check_param_headers(tool.param_headers, wanted.arguments, incoming.headers)
        ran = await self.methods.call_tool(incoming, tool, wanted, _order(tool, request))
        return Answered(result_response(request.id, ran.result))

    async def _get_prompt(self, incoming: Incoming) -> Reply:
        return Answered(result_response(incoming.request.id, (await self.methods.get_prompt(incoming)).result))

    async def _read_resource(self, incoming: Incoming) -> Reply:
        return Answered(result_response(incoming.request.id, (await self.methods.read_resource(incoming)).result))

    async def _complete(self, incoming: Incoming) -> Reply:
        return Answered(result_response(incoming.request.id, await self.methods.complete(incoming)))

    async def _listen(self, incoming: Incoming) -> Reply:
        messages = await self._listener.listen(incoming.request, incoming.caller, self.methods.registry)
        return Listening(messages, incoming.request.id)

    def _task_method(self, answer: TaskMethod) -> Handler:
        async def handle(incoming: Incoming) -> Reply:
            result = await answer(incoming.request, incoming.caller, self.methods.registry)
            return Answered(result_response(incoming.request.id, result))

        return handle


def _order(tool: Tool, request: McpRequest) -> TaskOrder | None:
    """Return the task that the call may become: any, if the client declared the extension.

    Raises:
        MissingCapability: it must become one, and the client did not.
    """
    if supports(request.capabilities, TASKS):
        return _ORDER
    if tool.task == "required":
        raise MissingCapability(TASKS)
    return None
