"""The wires with a handshake: `initialize` once, then requests, notifications and responses, to any replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from gateway.authoring.registry import Registry
from gateway.draft_calls import DraftCalls
from gateway.errors import HttpRefusal, MethodNotFound, ResourceNotFound, RpcError
from gateway.handshake_tasks import HandshakeTasks
from gateway.methods import Incoming, Methods
from gateway.ports import Caller, Client
from gateway.protocol import headers as header
from gateway.protocol.capabilities import from_flags
from gateway.protocol.handshake.initialize import initialize_result, read_initialize
from gateway.protocol.handshake.requests import (
    SESSIONLESS_CAPABILITIES,
    check_set_level,
    read_cancelled,
    read_request,
)
from gateway.protocol.jsonrpc import Message, Notification, Request, Response, result_response
from gateway.protocol.versions import Wire
from gateway.replies import Accepted, Answered, Reply
from gateway.return_addresses import ReturnAddresses
from gateway.running import Cancelled, RunningRequests
from gateway.sealing.return_address import TaskAddress
from gateway.sealing.session import Session
from gateway.sessions import Sessions, request_digest

Handler: TypeAlias = Callable[[Incoming], Awaitable[dict[str, Any]]]
TaskMethod: TypeAlias = Callable[[Incoming, Registry], Awaitable[dict[str, Any]]]

UNKNOWN_RESOURCE = -32002
"""The code for a resource that does not exist, on these wires (2025-11-25 "Resources", Error Handling)."""


class HandshakeWire:
    """Answers messages of the handshake wires.

    Args:
        methods: those that every wire has.
        calls: answers `tools/call`.
        sessions: opens sessions.
        addresses: tells where responses belong.
        server_info: the `Implementation` object of this server.
        tasks: answers what is asked about tasks, or None where there are none.
    """

    def __init__(
        self,
        methods: Methods,
        calls: DraftCalls,
        *,
        sessions: Sessions,
        addresses: ReturnAddresses,
        server_info: Mapping[str, Any],
        tasks: HandshakeTasks | None = None,
    ) -> None:
        self.methods = methods
        self._calls = calls
        self._sessions = sessions
        self._addresses = addresses
        self._server_info = server_info
        self._tasks = tasks
        self._running = RunningRequests()
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
        }
        if tasks is not None:
            self._handlers["tasks/get"] = self._task_method(tasks.get)
            self._handlers["tasks/result"] = self._task_method(tasks.result)
            self._handlers["tasks/list"] = self._task_method(tasks.page)
            self._handlers["tasks/cancel"] = self._task_method(tasks.cancel)
            self._handlers["tasks/delete"] = self._task_method(tasks.delete)
            self._handlers["tasks/input_response"] = self._task_method(tasks.input_response)

    async def answer(
        self, message: Message, wire: Wire, headers: header.Headers, caller: Caller, client: Client
    ) -> Reply:
        """Answer one message.

        Args:
            message: as parsed.
            wire: what the message says of itself, see `choose_wire`.
            headers: of the HTTP request that carried it.
            caller: who sent it.
            client: the other end of its connection.

        Raises:
            RpcError: it is refused.
            InsufficientScope: the caller's token does not grant what it takes.
            HttpRefusal: there is no session that it belongs to.
        """
        if isinstance(message, Request) and message.method == "initialize":
            return self._initialize(message, caller)
        session = self._session(wire, headers, caller)
        if isinstance(message, Response):
            await self._take_answer(message, caller)
            return Accepted()
        if isinstance(message, Notification):
            await self._take_notification(message, session, caller)
            return Accepted()
        await client.enter()
        capabilities = SESSIONLESS_CAPABILITIES if session is None else from_flags(session.flags)
        incoming = Incoming(read_request(message, capabilities), headers, caller, client)
        if session is None:
            return await self._answer(incoming, "")
        name = request_digest(session, message.id)
        try:
            with self._running.running(name):
                return await self._answer(incoming, name)
        except Cancelled:
            return Accepted()

    def _initialize(self, request: Request, caller: Caller) -> Reply:
        wanted = read_initialize(request.params)
        session_id = self._sessions.begin(wanted, caller)
        result = initialize_result(wanted.version, self.methods.catalogue.capabilities, self._server_info)
        return Answered(result_response(request.id, result), [(header.SESSION_ID, session_id.encode("ascii"))])

    def _session(self, wire: Wire, headers: header.Headers, caller: Caller) -> Session | None:
        """Return the session of a message, None for one of the draft wire that has none.

        Raises:
            HttpRefusal: 404, it does not open; 400, there is none, or it is one of another version.
        """
        session_id = headers.get(header.SESSION_ID)
        if session_id is None:
            if wire is Wire.DRAFT:
                return None
            raise HttpRefusal(
                400,
                "Mcp-Session-Id is missing: begin a session with initialize,"
                " or send MCP-Protocol-Version: 2026-07-28 and what it asks for",
            )
        session = self._sessions.open(session_id, caller)
        version = headers.get(header.PROTOCOL_VERSION)
        if version is not None and version != session.version:
            raise HttpRefusal(400, f"MCP-Protocol-Version differs from {session.version}, the version of the session")
        return session

    async def _take_answer(self, response: Response, caller: Caller) -> None:
        """Hand on a client's response; one that belongs nowhere any more means nothing."""
        address = self._addresses.open(response.id, caller)
        if isinstance(address, TaskAddress) and self._tasks is not None:
            await self._tasks.take_answer(response, address, caller, self.methods.registry)

    async def _take_notification(self, notification: Notification, session: Session | None, caller: Caller) -> None:
        """Cancel what is cancelled. That works from a session: without one, nobody knows whose request it was."""
        if notification.method != "notifications/cancelled" or session is None:
            return
        request_id = read_cancelled(notification.params)
        if request_id is None:
            return
        name = request_digest(session, request_id)
        if self._tasks is not None:
            await self._tasks.cancel_request(name, caller)
        self._running.cancel(name)

    async def _answer(self, incoming: Incoming, name: str) -> Reply:
        """Answer a request.

        Args:
            incoming: the request.
            name: what its client may cancel it by, "" for nothing.
        """
        request = incoming.request
        match request.method:
            case "tools/call":
                return await self._calls.call(incoming, name)
            case "prompts/get":
                return Answered(result_response(request.id, (await self.methods.get_prompt(incoming)).result))
            case "resources/read":
                try:
                    return Answered(result_response(request.id, (await self.methods.read_resource(incoming)).result))
                except ResourceNotFound as error:
                    raise RpcError(UNKNOWN_RESOURCE, error.message, error.data) from None
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {request.method}")
        return Answered(result_response(request.id, await handler(incoming)))

    def _lister(self, name: str) -> Handler:
        async def list_entries(incoming: Incoming) -> dict[str, Any]:
            return self.methods.page(name, incoming)

        return list_entries

    def _task_method(self, answer: TaskMethod) -> Handler:
        async def handle(incoming: Incoming) -> dict[str, Any]:
            return await answer(incoming, self.methods.registry)

        return handle


async def _acknowledge(_incoming: Incoming) -> dict[str, Any]:
    return {}


async def _set_level(incoming: Incoming) -> dict[str, Any]:
    check_set_level(incoming.request.params)
    return {}
