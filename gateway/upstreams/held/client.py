"""The client of an upstream in sessions that may ask its user: it answers as a stateless upstream would.

Its questions become an `InputRequiredResult` whose `requestState` is the place of the call. So relays need not know how
an upstream is spoken to.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, Unpack

import msgspec

from gateway.engine.capabilities import supports
from gateway.engine.questions import Answer
from gateway.ensured import ensured
from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.strict_json import encode
from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.requests import RELAYED
from gateway.protocol.upstream.responses import INPUT_REQUIRED
from gateway.tokens.request_ids import ReplicaAddress
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.credentials import CredentialHeaders
from gateway.upstreams.failures import NO_HOLDER, HeldFailure, Reason, UpstreamFailure
from gateway.upstreams.guarded import UpstreamClient
from gateway.upstreams.held.actions import Ended, HeldEvent, HeldLimits, NextRound, Stopped, StopReason
from gateway.upstreams.held.calls import HeldCall, HeldTarget, HeldUpstream, KeptResult, Send, Waiter
from gateway.upstreams.held.holder import Holder, Outgoing
from gateway.upstreams.held.holders import WAIT_SECONDS
from gateway.upstreams.held.messages import ListenMessage, RequestMessage, listen_message, request_body
from gateway.upstreams.held.place import HeldPlace, MalformedPlace
from gateway.upstreams.ports import (
    NOBODY,
    Changes,
    HeldRound,
    OnNotice,
    Questions,
    RequestOptions,
    UpstreamCaller,
)
from gateway.upstreams.readings import Keep

DIGEST_BYTES: Final = 16
_OF_NEXT_ROUNDS: Final = ("requestState", "inputResponses")

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder(order="sorted").encode


class HoldingClient:
    """Sends requests to one upstream in sessions, and has its calls held while their users answer."""

    era: Final = "session"

    def __init__(
        self,
        definition: Definition,
        client: UpstreamClient,
        holder: Holder,
        telemetry: UpstreamMetrics,
        credentials: CredentialHeaders,
    ) -> None:
        self._definition = definition
        self._client = client
        self._holder = holder
        self._credentials = credentials
        self._has_reported = False
        limits = HeldLimits(definition.timeout_seconds, definition.held_seconds)
        self._upstream = HeldUpstream(definition.name, limits, telemetry)
        holder.upstreams[definition.name, definition.identity] = self

    @property
    def probe_method(self) -> str:
        """The method of a request by which the gateway finds out whether the upstream answers."""
        return self._client.probe_method

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AsyncIterator[Changes]:
        """Open a stream of changes, in the process that has the connection."""
        name, address = self._definition.name, None
        if self._holder.holders is not None:
            order, ends_at = self._order("", requester, b""), asyncio.get_running_loop().time() + WAIT_SECONDS
            try:
                address = await self._holder.holders.find(order, ends_at)
            except Overloaded:
                raise UpstreamFailure(name, Reason.BUSY, sent=False, detail=NO_HOLDER) from None
        if address is None:
            stream = self._client.listen(wanted, requester=requester)
        else:
            stream = self._holder.listen(address, listen_message(name, self._definition.identity, wanted))
        async with stream as changes:
            yield changes

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result, or a `HeldRound` if the upstream asks; see `SessionClient.request`.

        Where there are holders, the one with the connection sends it.

        Raises:
            HeldFailure: the call is not held any more, or may not be.
            Overloaded: no holder takes it.
        """
        call_id = self._holder.calls.new_id()
        if options.get("continued") is not None:
            return await self._continued(method, params, options)
        if self._holder.holders is None:
            self._report_own_connections()
            return await self._begun(call_id, method, params, options)
        try:
            return await self._elsewhere(call_id, method, params, options)
        except UpstreamFailure as failure:
            if failure.reason is not Reason.UNAUTHORIZED or not await self._has_renewed(options["requester"]):
                raise
        return await self._elsewhere(self._holder.calls.new_id(), method, params, options)

    async def _elsewhere(
        self, call_id: bytes, method: str, params: Mapping[str, Any], options: RequestOptions
    ) -> dict[str, Any]:
        order = self._order(method, options["requester"], call_id)
        here = functools.partial(self._begun, call_id, method, params, options)
        prepare = functools.partial(self._prepared, call_id, method, params, options)
        return await self._holder.begin(order, prepare, here)

    async def _has_renewed(self, requester: UpstreamCaller) -> bool:
        """Replace the token of a caller that the upstream has refused, which only this process can; see `renew`."""
        if requester.exchange is None or requester.may_lack_token:
            return False
        return await self._credentials.renew(requester, await self._credentials.headers(requester))

    async def serve(self, message: RequestMessage, on_notice: OnNotice) -> dict[str, Any]:
        """Send a request of another process, and return its result; see `request`."""
        options = message.options()
        options["on_notice"] = on_notice
        if options.get("continued") is not None:
            return await self._continued(message.method, message.params, options, remote=message)
        return await self._begun(message.call, message.method, message.params, options, remote=message)

    def serve_changes(self, message: ListenMessage) -> AbstractAsyncContextManager[Changes]:
        """Open a stream of changes for another process."""
        return self._client.listen(message.wanted, requester=NOBODY)

    async def _begun(
        self,
        call_id: bytes,
        method: str,
        params: Mapping[str, Any],
        options: RequestOptions,
        *,
        remote: RequestMessage | None = None,
    ) -> dict[str, Any]:
        """Begin a call in this process. A request that comes again from another process joins it."""
        may_ask = self._may_ask(method, params, options["requester"])
        if not may_ask and (remote is None or method not in ASKING_METHODS):
            return await self._client.request(method, params, **options)
        target, calls = self._target(method, params, options["requester"]), self._holder.calls
        call = calls.find(call_id, target) or calls.begin(call_id, target, self._limited_by(remote))
        waiter = _waiter(0, _digest_of_request(method, params), options, is_remote=remote is not None)
        return self._result(call, await call.result(waiter, self._sending(method, params, options, may_ask=may_ask)))

    async def _continued(
        self,
        method: str,
        params: Mapping[str, Any],
        options: RequestOptions,
        *,
        remote: RequestMessage | None = None,
    ) -> dict[str, Any]:
        """Bring the answers to the call that is held, and wait for what comes next."""
        address, continued = self._holder.address, options.get("continued")
        try:
            place = HeldPlace.from_text("" if continued is None else continued.place)
        except MalformedPlace:
            raise self._lost() from None
        if address is None or place.boot != address.boot:
            if remote is not None:
                raise self._lost(place.call)
            outgoing = self._outgoing(place.call, method, params, options)
            return await self._holder.send(ReplicaAddress(place.url, place.boot), outgoing)
        call = self._holder.calls.find(place.call, self._target(method, params, options["requester"]))
        if call is None:
            raise self._lost(place.call)
        if continued is not None and continued.cancels:
            call.cancel()
            return {}
        digest = (
            _digest_of_answers(continued.answers) if continued and place.round else _digest_of_request(method, params)
        )
        waiter = _waiter(place.round, digest, options, is_remote=remote is not None)
        return self._result(call, await call.result(waiter, self._sending(method, params, options)))

    def _order(self, method: str, requester: UpstreamCaller, call_id: bytes) -> list[str]:
        """Return the holders that may have the connection of a request: more than one only if no call shares it.

        Requests with the same key share a connection: see `SessionClient`. All calls of an object go to the same one.
        """
        definition, holders = self._definition, ensured(self._holder.holders, "callers check it")
        scope, whose = definition.session_scope, requester.key
        if scope == "shared" or (scope == "call" and definition.transport == "python"):
            whose = ()
        elif scope == "call" and method in ASKING_METHODS:
            whose = call_id
        order = holders.order(_encode([definition.name, definition.identity, whose]))
        return order if scope == "call" else order[:1]

    async def _prepared(
        self, call_id: bytes, method: str, params: Mapping[str, Any], options: RequestOptions
    ) -> Outgoing:
        """Return a new request with the token of its caller for the upstream, which only this process can get."""
        requester = options["requester"]
        if not requester.may_lack_token:
            requester = msgspec.structs.replace(requester, token=await self._credentials.token_to_keep(requester))
        return self._outgoing(call_id, method, params, {**options, "requester": requester})

    def _outgoing(self, call_id: bytes, method: str, params: Mapping[str, Any], options: RequestOptions) -> Outgoing:
        name, identity, alone = self._definition.name, self._definition.identity, self._holder.unattended_seconds
        body = request_body(name, identity, (method, params), call_id, options, unattended_seconds=alone)
        return Outgoing(name, body, call_id, options, self._upstream.telemetry)

    def _report_own_connections(self) -> None:
        if self._holder.is_one_of_many and not self._has_reported:
            self._has_reported = True
            log.info("each replica has its own connections to an upstream", extra={"upstream": self._definition.name})

    def _limited_by(self, remote: RequestMessage | None) -> HeldUpstream:
        """Return the upstream, with the limits of a call that another process begins."""
        if remote is None or remote.unattended_seconds is None:
            return self._upstream
        limits = msgspec.structs.replace(self._upstream.limits, unattended_seconds=remote.unattended_seconds)
        return replace(self._upstream, limits=limits)

    def _may_ask(self, method: str, params: Mapping[str, Any], requester: UpstreamCaller) -> bool:
        """Return whether the upstream may ask on a request: its caller can be asked, and the operator allows it."""
        if not self._holder.can_hold or method not in ASKING_METHODS:
            return False
        if not any(supports(requester.capabilities, path) for path in RELAYED):
            return False
        return self._definition.ask.of(params["name"] if method == "tools/call" else "") != "refuse"

    def _target(self, method: str, params: Mapping[str, Any], requester: UpstreamCaller) -> HeldTarget:
        name = params["uri"] if method == "resources/read" else params["name"]
        return HeldTarget(self._definition.identity, method, name, requester.principal)

    def _sending(
        self, method: str, params: Mapping[str, Any], options: RequestOptions, *, may_ask: bool = True
    ) -> Send:
        without: RequestOptions = {**options, "continued": None}
        # An object that holders have may also be called without a session.
        is_object = self._definition.transport == "python" and self._holder.holders is not None
        first = params if is_object else {name: params[name] for name in params if name not in _OF_NEXT_ROUNDS}

        def send(questions: Questions, on_notice: OnNotice, keep: Keep) -> Coroutine[Any, Any, dict[str, Any]]:
            asking: RequestOptions = {**without, "on_notice": on_notice, "keep": keep}
            if may_ask:
                asking["questions"] = questions
            if is_object or not may_ask:
                questions.has_begun = True  # nothing else may say so
            return self._client.request(method, first, **asking)

        return send

    def _result(self, call: HeldCall, event: HeldEvent) -> dict[str, Any]:
        """Return the event of a call as a result, or raise what it ended with."""
        if isinstance(event, Ended):
            if isinstance(event.outcome, BaseException):
                raise event.outcome
            result: KeptResult = event.outcome
            return result.take()
        if isinstance(event, Stopped):
            raise self._stopped(call, event)
        return self._asked(call, event)

    def _lost(self, call_id: bytes = b"") -> HeldFailure:
        """Return that a call is not held here, counted."""
        self._upstream.telemetry.failed(self._definition.name, Reason.HELD_LOST)
        return HeldFailure(self._definition.name, Reason.HELD_LOST, call_id=call_id)

    def _asked(self, call: HeldCall, event: NextRound) -> HeldRound:
        address = ensured(self._holder.address, "no call begins without it")
        place = HeldPlace(address.url, address.boot, call.call_id, event.round)
        return HeldRound(resultType=INPUT_REQUIRED, inputRequests=event.questions, requestState=place.to_text())

    def _stopped(self, call: HeldCall, event: Stopped) -> UpstreamFailure:
        name, reason = self._definition.name, _STOPPED[event.reason]
        self._upstream.telemetry.failed(name, reason)
        if reason is Reason.TIMED_OUT:
            return UpstreamFailure(name, reason, sent=call.has_begun, detail="it did not answer in time")
        return HeldFailure(name, reason, call_id=call.call_id, seconds=event.seconds)


_STOPPED: Final[Mapping[StopReason, Reason]] = {
    "abandoned": Reason.HELD_LOST,
    "asked_too_much": Reason.UNASKED,
    "cancelled": Reason.HELD_LOST,
    "expired": Reason.HELD_EXPIRED,
    "timed_out": Reason.TIMED_OUT,
}


def _waiter(round_number: int, digest: bytes, options: RequestOptions, *, is_remote: bool) -> Waiter:
    continued = options.get("continued")
    return Waiter(
        round_number,
        digest,
        {} if continued is None else continued.answers,
        options["requester"].capabilities,
        options.get("on_notice"),
        options.get("keep"),
        is_remote=is_remote,
    )


def _digest_of_request(method: str, params: Mapping[str, Any]) -> bytes:
    """Return the digest of a first request. It has the same members in the same order if it is sent again."""
    return hashlib.sha256(encode([method, params])).digest()[:DIGEST_BYTES]


def _digest_of_answers(answers: Mapping[str, Answer]) -> bytes:
    """Return the digest of answers, which clients may write in any order."""
    text = json.dumps(answers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]
