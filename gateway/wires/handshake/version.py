"""One version of the handshake wires: what its requests are answered with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from gateway.calls.runner import Ran
from gateway.errors import MethodNotFound, ResourceNotFound, RpcError
from gateway.protocol.handshake.requests import check_set_level
from gateway.protocol.jsonrpc import result_response
from gateway.wires.handshake.tasks import TaskMethod
from gateway.wires.methods import Incoming, Leg, Methods
from gateway.wires.replies import Answered, Reply

Handler: TypeAlias = Callable[[Incoming], Awaitable[dict[str, Any]]]

UNKNOWN_RESOURCE = -32002
"""The code for a resource that does not exist, on these wires (2025-11-25 "Resources", Error Handling)."""


class Calls(Protocol):
    """What runs the functions of authors, and asks clients."""

    async def call(self, incoming: Incoming, request_name: str, /) -> Reply:
        """Answer `tools/call`.

        Args:
            incoming: the request.
            request_name: what its client may cancel it by, "" for nothing.
        """
        ...

    async def run(self, incoming: Incoming, leg: Leg, /) -> Ran:
        """Run a prompt or a resource: one leg of it, or all that there are."""
        ...


class Dialect:
    """Answers the requests of one version.

    Args:
        methods: those that every wire has.
        calls: answers calls.
        task_methods: those of tasks, by their names.
    """

    def __init__(self, methods: Methods, calls: Calls, task_methods: Mapping[str, TaskMethod]) -> None:
        self.methods = methods
        self._calls = calls
        self._handlers: dict[str, Handler] = {
            "ping": _acknowledge,
            "tools/list": self._lister("tools"),
            "prompts/list": self._lister("prompts"),
            "resources/list": self._lister("resources"),
            "resources/templates/list": self._lister("resourceTemplates"),
            "completion/complete": methods.complete,
            "logging/setLevel": _set_level,
            "resources/subscribe": _acknowledge,
            "resources/unsubscribe": _acknowledge,
            **{name: self._task_handler(method) for name, method in task_methods.items()},
        }

    async def answer(self, incoming: Incoming, request_name: str) -> Reply:
        """Answer a request.

        Args:
            incoming: the request.
            request_name: what its client may cancel it by, "" for nothing.

        Raises:
            RpcError: it ends in an error.
            InsufficientScope: the caller's token does not grant what it takes.
        """
        request, methods = incoming.request, self.methods
        match request.method:
            case "tools/call":
                return await self._calls.call(incoming, request_name)
            case "prompts/get":
                ran = await self._calls.run(incoming, methods.get_prompt)
                return Answered(result_response(request.id, ran.result))
            case "resources/read":
                try:
                    ran = await self._calls.run(incoming, methods.read_resource)
                except ResourceNotFound as error:
                    raise RpcError(UNKNOWN_RESOURCE, error.message, error.data) from None
                return Answered(result_response(request.id, ran.result))
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {request.method}")
        return Answered(result_response(request.id, await handler(incoming)))

    def _lister(self, name: str) -> Handler:
        async def list_entries(incoming: Incoming) -> dict[str, Any]:
            return self.methods.page(name, incoming)

        return list_entries

    def _task_handler(self, method: TaskMethod) -> Handler:
        async def handle(incoming: Incoming) -> dict[str, Any]:
            return await method(incoming, self.methods.registry)

        return handle


async def _acknowledge(_incoming: Incoming) -> dict[str, Any]:
    return {}


async def _set_level(incoming: Incoming) -> dict[str, Any]:
    check_set_level(incoming.request.params)
    return {}
