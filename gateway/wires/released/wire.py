"""The 2026-07-28 wire, where each request is complete in itself."""

from __future__ import annotations

from gateway.authoring.tools import Tool
from gateway.calls.task_creation import TaskOrder
from gateway.engine.capabilities import supports
from gateway.errors import InvalidRequest, MethodNotFound, MissingCapability
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import TASKS
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Message, Request, Response
from gateway.protocol.param_headers import check_param_headers
from gateway.protocol.released.requests import read_request
from gateway.protocol.requests import McpRequest, check_routing, read_tool_call
from gateway.protocol.versions import META_SERVER_INFO, RELEASED, SUPPORTED_VERSIONS
from gateway.wires.handlers import checked_handlers
from gateway.wires.methods import Handler, Incoming, Methods
from gateway.wires.ports import Client
from gateway.wires.released.subscriptions import Subscriptions
from gateway.wires.released.tasks import ReleasedTasks
from gateway.wires.replies import Accepted, Reply

_ORDER = TaskOrder("released")


class ReleasedWire:
    """Answers requests of the 2026-07-28 wire."""

    def __init__(
        self, methods: Methods, subscriptions: Subscriptions, tasks: ReleasedTasks | None = None, *, has_identity: bool
    ) -> None:
        self.methods = methods
        self._tasks = tasks
        handlers: dict[str, Handler] = {
            **methods.everywhere,
            "server/discover": self._discover,
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "subscriptions/listen": subscriptions.listen,
            **({} if tasks is None else tasks.handlers),
        }
        self._handlers = checked_handlers(RELEASED, handlers, has_tasks=tasks is not None, has_identity=has_identity)

    async def answer(self, message: Message, headers: Headers, caller: Caller, client: Client) -> Reply:
        """Answer one message. Without the required scopes, raise `InsufficientScope`; other refusals are `RpcError`."""
        if not isinstance(message, Request):  # the first test, as most are
            if isinstance(message, Response):
                raise InvalidRequest("This protocol version does not accept responses; send answers in inputResponses")
            check_routing(message, headers)
            return Accepted()
        request = read_request(message, headers)
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {request.method}")
        return await handler(Incoming(request, headers, caller, client))

    async def _discover(self, incoming: Incoming) -> Reply:
        catalogue = self.methods.catalogue
        identity = catalogue.identity
        told = {"supportedVersions": SUPPORTED_VERSIONS, "capabilities": catalogue.capabilities, **identity.guidance}
        result = self.methods.words.cacheable(told, ttl_ms=catalogue.ttl_ms, scope="public")
        return incoming.answered({**result, "_meta": {META_SERVER_INFO: identity.whole}})

    async def _call_tool(self, incoming: Incoming) -> Reply:
        request = incoming.request
        wanted = read_tool_call(request.params)
        tool = self.methods.tool(wanted, incoming.caller) or await self.methods.unlisted_tool(wanted, incoming)
        if tool.param_headers:
            check_param_headers(tool.param_headers, wanted.arguments, incoming.headers)
        ran = await self.methods.call_tool(incoming, tool, wanted, _order(tool, request))
        if ran.task is not None and tool.after_seconds is not None and self._tasks is not None:
            result = await self._tasks.result_within(incoming, ran.task, tool.after_seconds)
            if result is not None:
                return incoming.answered(result)
        return incoming.answered(ran.result)

    async def _get_prompt(self, incoming: Incoming) -> Reply:
        return incoming.answered((await self.methods.get_prompt(incoming)).result)

    async def _read_resource(self, incoming: Incoming) -> Reply:
        return incoming.answered((await self.methods.read_resource(incoming)).result)


def _order(tool: Tool, request: McpRequest) -> TaskOrder | None:
    """Return the task that a call may become, or None if the client did not declare the extension.

    If the tool runs only as a task, that raises `MissingCapability`.
    """
    if supports(request.capabilities, TASKS):
        return _ORDER
    if tool.task == "required":
        raise MissingCapability(TASKS)
    return None
