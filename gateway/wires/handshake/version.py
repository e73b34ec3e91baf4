"""One version of the handshake wires, which answers its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.calls.runner import Ran
from gateway.errors import OLD_RESOURCE_NOT_FOUND, MethodNotFound, ResourceNotFound, RpcError
from gateway.protocol.handshake.initialize import initialize_result, read_initialize
from gateway.protocol.handshake.requests import check_set_level
from gateway.protocol.headers import SESSION_ID
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.versions import INITIALIZE
from gateway.tokens.session_ids import Sessions
from gateway.wires.handlers import checked_handlers
from gateway.wires.methods import Handler, Incoming, Methods, RunLeg
from gateway.wires.replies import Answered, Reply


class Calls(Protocol):
    """Runs the functions of authors, and asks clients."""

    async def call(self, incoming: Incoming, /) -> Reply:
        """Answer `tools/call`."""
        ...

    async def run(self, incoming: Incoming, leg: RunLeg, /) -> Ran:
        """Run one leg of a prompt or a resource, or all legs, as the wire requires."""
        ...


class HandshakeVersion:
    """Answers the requests of one version. Without task handlers, there are no tasks."""

    def __init__(
        self,
        version: str,
        methods: Methods,
        calls: Calls,
        task_handlers: Mapping[str, Handler] | None,
        *,
        sessions: Sessions,
        has_identity: bool,
    ) -> None:
        self.methods = methods
        self._calls = calls
        self._sessions = sessions
        handlers: dict[str, Handler] = {
            **methods.everywhere,
            INITIALIZE: self._initialize,
            "ping": _acknowledge,
            "tools/call": calls.call,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "logging/setLevel": _set_level,
            "resources/subscribe": _acknowledge,
            "resources/unsubscribe": _acknowledge,
            **(task_handlers or {}),
        }
        self._handlers = checked_handlers(
            version, handlers, has_tasks=task_handlers is not None, has_identity=has_identity
        )

    async def answer(self, incoming: Incoming) -> Reply:
        """Answer a request.

        If the caller's token does not grant the required scopes, this raises `InsufficientScope`; other errors are
        `RpcError`.
        """
        handler = self._handlers.get(incoming.request.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {incoming.request.method}")
        return await handler(incoming)

    async def _initialize(self, incoming: Incoming) -> Reply:
        request = incoming.request
        wanted = read_initialize(request.params)
        session_id = self._sessions.begin(wanted, incoming.caller)
        catalogue = self.methods.catalogue
        result = initialize_result(wanted.version, catalogue.capabilities, catalogue.identity)
        return Answered(result_response(request.id, result), [(SESSION_ID, session_id.encode("ascii"))])

    async def _get_prompt(self, incoming: Incoming) -> Reply:
        return incoming.answered((await self._calls.run(incoming, self.methods.get_prompt)).result)

    async def _read_resource(self, incoming: Incoming) -> Reply:
        try:
            ran = await self._calls.run(incoming, self.methods.read_resource)
        except ResourceNotFound as error:
            raise RpcError(OLD_RESOURCE_NOT_FOUND, error.message, error.data) from None
        return incoming.answered(ran.result)


async def _acknowledge(incoming: Incoming) -> Reply:
    return incoming.answered({})


async def _set_level(incoming: Incoming) -> Reply:
    check_set_level(incoming.request.params)
    return incoming.answered({})
