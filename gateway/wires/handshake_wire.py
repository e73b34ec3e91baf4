"""The handshake wires: `initialize` once, then requests, notifications and responses, to any replica."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from gateway.calls.authority import Authority
from gateway.errors import GatewayError, HttpRefusal, NotDelivered, TaskStoreDown
from gateway.protocol import headers as header
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import from_flags
from gateway.protocol.handshake.requests import (
    CANCELLED,
    SESSIONLESS_CAPABILITIES,
    read_cancelled,
    read_opening,
    read_request,
)
from gateway.protocol.jsonrpc import Message, Notification, Request, Response
from gateway.protocol.requests import check_routing
from gateway.protocol.versions import DRAFT, INITIALIZE, Wire, negotiate
from gateway.sealing.request_id import CallAddress
from gateway.sealing.session import Session
from gateway.tokens.request_ids import RequestIds
from gateway.tokens.session_ids import Sessions, request_digest, unknown_session
from gateway.wires.broadcasts import CANCELLED_REQUEST, Broadcasts
from gateway.wires.catalogue import Catalogue
from gateway.wires.draft.tasks import DraftTasks
from gateway.wires.handshake.cancellation import Cancelled, RunningRequests
from gateway.wires.handshake.version import HandshakeVersion
from gateway.wires.legacy.answer_delivery import Deliveries
from gateway.wires.methods import Incoming
from gateway.wires.ports import Client
from gateway.wires.replies import Accepted, Listening, Reply

LATE_SECONDS: Final = 3.0
"""After this time a cancelled request creates no task: the store has done its work by then, or never will."""

MAX_LATE: Final = 200
"""How many cancelled requests may wait to be checked again after that time."""


@dataclass(frozen=True, slots=True)
class HandshakeWire:
    """Answers messages of the handshake wires.

    `versions` answers requests by the version of the session. `addresses` finds the call or task of a response.
    `broadcasts` notifies other replicas of cancelled requests, and receives their hints.
    """

    versions: Mapping[str, HandshakeVersion]
    _: KW_ONLY
    sessions: Sessions
    addresses: RequestIds
    deliveries: Deliveries
    broadcasts: Broadcasts
    tasks: DraftTasks | None = None
    _running: RunningRequests = field(default_factory=RunningRequests, init=False)
    _late: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.broadcasts.forward_to(CANCELLED_REQUEST, self._running.cancel)

    @property
    def catalogues(self) -> dict[str, Catalogue]:
        """The catalogues that are served now, by version."""
        return {name: version.methods.catalogue for name, version in self.versions.items()}

    def replace(self, catalogues: Mapping[str, Catalogue]) -> None:
        """Serve other catalogues, by version, from the next request on."""
        for version, catalogue in catalogues.items():
            self.versions[version].methods.catalogue = catalogue

    async def answer(
        self, message: Message, wire: Wire, headers: header.Headers, caller: Caller, client: Client, *, body: bytes
    ) -> Reply:
        """Answer one message.

        The wire is the one that the message chooses, see `choose_wire`.

        Raises:
            RpcError: the message is refused.
            InsufficientScope: the caller's token does not grant the required scopes.
            HttpRefusal: the message needs a session, and has none that is valid.
        """
        check_routing(message, headers)
        if isinstance(message, Request) and message.method == INITIALIZE:
            version = negotiate(message.params.get("protocolVersion"))
            return await self.versions[version].answer(Incoming(read_opening(message), headers, caller, client))
        session = self._session(wire, headers, caller)
        nonce = b"" if session is None else session.nonce
        if isinstance(message, Response):
            client.leave()  # another replica may be slow
            await self._take_answer(message, body, Authority.of(caller, nonce))
            return Accepted()
        body = b""  # it may be large, and the call may take long
        if isinstance(message, Notification):
            await self._take_notification(message, session, caller)
            return Accepted()
        await client.enter()
        capabilities = SESSIONLESS_CAPABILITIES if session is None else from_flags(session.flags)
        request = read_request(message, capabilities)
        if session is None:
            return await self.versions[DRAFT].answer(Incoming(request, headers, caller, client))
        name = request_digest(session, message.id)
        incoming = Incoming(request, headers, caller, client)
        incoming.session, incoming.cancel_name = nonce, name
        return await self._run(session, incoming, name)

    async def _run(self, session: Session, incoming: Incoming, name: str) -> Reply:
        """Answer a request under a name by which it can be cancelled."""
        try:
            with self._running.running(name):
                reply = await self.versions[session.version].answer(incoming)
        except Cancelled:
            reply = Accepted()
        if isinstance(reply, Listening):
            return Listening(self._running.stream(name, reply.messages), reply.request_id, reply.wire)
        return reply

    def _session(self, wire: Wire, headers: header.Headers, caller: Caller) -> Session | None:
        """Return the session of a message, or None for a message of the draft wire without one.

        The `HttpRefusal` is 404 if the session cannot be opened, 400 if there is none, or it has another version.
        """
        session_id = headers.get(header.SESSION_ID)
        if session_id is None:
            if wire is Wire.DRAFT:
                return None
            raise HttpRefusal(
                400,
                "Mcp-Session-Id is missing: start a session with initialize,"
                " or send MCP-Protocol-Version: 2026-07-28 and what that version requires",
            )
        session = self.sessions.open(session_id, caller)
        if session.version not in self.versions:  # another release, which supports it, is being rolled out or back
            raise unknown_session()
        version = headers.get(header.PROTOCOL_VERSION)
        if version is not None and version != session.version:
            raise HttpRefusal(400, f"MCP-Protocol-Version differs from {session.version}, the version of the session")
        return session

    async def _take_answer(self, response: Response, body: bytes, authority: Authority) -> None:
        """Deliver a client's response to the call or task that waits for it. A late response is ignored.

        Raises:
            InsufficientScope: the call or task does not accept an answer with this token, or in this session.
            NotDelivered: the call or task cannot be reached from here.
        """
        address = self.addresses.open(response.id, authority)
        if isinstance(address, CallAddress):
            await self.deliveries.deliver(address, body, authority)
        elif address is not None:
            if self.tasks is None:
                self.addresses.undelivered("it is for a task, and this replica has no GATEWAY_REDIS_URL; set it")
                raise NotDelivered
            await self.tasks.take_answer(response, address, authority)

    async def _take_notification(self, notification: Notification, session: Session | None, caller: Caller) -> None:
        """Cancel a request if the notification says so. This needs a session, which identifies the request."""
        if notification.method != CANCELLED or session is None:
            return
        request_id = read_cancelled(notification.params)
        if request_id is None:
            return
        name = request_digest(session, request_id)
        tasks = self.tasks if session.version == DRAFT else None  # only draft requests name the task they create
        if tasks is not None:
            with suppress(TaskStoreDown):  # there may still be a call to cancel
                await tasks.find_request(name, caller)  # raises if this caller may not cancel the task or its stream
        if not self._running.cancel(name):
            self.broadcasts.send(CANCELLED_REQUEST, name, caller.principal)
        if tasks is None or await tasks.cancel_request(name, caller):
            return
        if len(self._late) < MAX_LATE:  # the request may be creating a task at this moment, here or elsewhere
            late = asyncio.create_task(_cancel_late(tasks, name, caller))
            self._late.add(late)
            late.add_done_callback(self._late.discard)


async def _cancel_late(tasks: DraftTasks, request: str, caller: Caller) -> None:
    await asyncio.sleep(LATE_SECONDS)
    with suppress(GatewayError):  # nobody waits for it
        await tasks.cancel_request(request, caller)
