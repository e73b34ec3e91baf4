"""The client of an upstream in sessions that may ask its user: it answers as a stateless upstream would.

Its questions become an `InputRequiredResult` whose `requestState` is the place of the call. So relays need not know how
an upstream is spoken to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Unpack

import msgspec

from gateway.engine.capabilities import supports
from gateway.ensured import ensured
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.requests import RELAYED
from gateway.protocol.upstream.responses import INPUT_REQUIRED
from gateway.tokens.request_ids import ReplicaAddress
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamFailure
from gateway.upstreams.guarded import UpstreamClient
from gateway.upstreams.held.actions import Ended, HeldEvent, HeldLimits, NextRound, Stopped, StopReason
from gateway.upstreams.held.calls import HeldCall, HeldTarget, HeldUpstream, Send, Waiter
from gateway.upstreams.held.holder import Holder
from gateway.upstreams.held.messages import RequestMessage
from gateway.upstreams.held.place import HeldPlace, MalformedPlace
from gateway.upstreams.ports import (
    Changes,
    Continued,
    HeldRound,
    OnNotice,
    Questions,
    RequestOptions,
    UpstreamCaller,
)
from gateway.upstreams.readings import Keep

DIGEST_BYTES: Final = 16

_encode = msgspec.json.Encoder(order="sorted").encode


class HoldingClient:
    """Sends requests to one upstream in sessions, and has its calls held while their users answer."""

    era: Final = "session"

    def __init__(
        self, definition: Definition, client: UpstreamClient, holder: Holder, telemetry: UpstreamMetrics
    ) -> None:
        self._definition = definition
        self._client = client
        self._holder = holder
        limits = HeldLimits(definition.timeout_seconds, definition.held_seconds)
        self._upstream = HeldUpstream(definition.name, limits, telemetry)
        holder.upstreams[definition.name, definition.identity] = self

    @property
    def probe_method(self) -> str:
        """The method of a request by which the gateway finds out whether the upstream answers."""
        return self._client.probe_method

    def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AbstractAsyncContextManager[Changes]:
        """Open a stream of changes."""
        return self._client.listen(wanted, requester=requester)

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result, or a `HeldRound` if the upstream asks; see `SessionClient.request`.

        Raises:
            HeldFailure: the call is not held any more, or may not be.
        """
        return await self._request(self._holder.calls.new_id(), method, params, options)

    async def serve(self, message: RequestMessage, on_notice: OnNotice) -> dict[str, Any]:
        """Send a request of another process, and return its result; see `request`."""
        options = message.options()
        options["on_notice"] = on_notice
        return await self._request(message.call, message.method, message.params, options, is_remote=True)

    async def _request(
        self,
        call_id: bytes,
        method: str,
        params: Mapping[str, Any],
        options: RequestOptions,
        *,
        is_remote: bool = False,
    ) -> dict[str, Any]:
        continued = options.get("continued")
        if continued is not None:
            return await self._continued(method, params, continued, options, is_remote=is_remote)
        if not self._may_ask(method, params, options["requester"]):
            return await self._client.request(method, params, **options)
        target, calls = self._target(method, params, options["requester"]), self._holder.calls
        call = calls.find(call_id, target) or calls.begin(call_id, target, self._upstream)
        waiter = _waiter(0, _digest([method, params]), options, is_remote=is_remote)
        return self._result(call, await call.result(waiter, self._sending(method, params, options)))

    async def _continued(
        self, method: str, params: Mapping[str, Any], continued: Continued, options: RequestOptions, *, is_remote: bool
    ) -> dict[str, Any]:
        """Bring the answers to the call that is held, and wait for what comes next."""
        name, address = self._definition.name, self._holder.address
        try:
            place = HeldPlace.from_text(continued.place)
        except MalformedPlace:
            raise self._lost() from None
        if address is None or place.boot != address.boot:
            if is_remote:
                raise self._lost(place.call)
            there, upstream = ReplicaAddress(place.url, place.boot), (name, self._definition.identity)
            return await self._holder.send(there, upstream, (method, params), place.call, options)
        call = self._holder.calls.find(place.call, self._target(method, params, options["requester"]))
        if call is None:
            raise self._lost(place.call)
        if continued.cancels:
            call.cancel()
            return {}
        waiter = _waiter(place.round, _digest(continued.answers), options, is_remote=is_remote)
        return self._result(call, await call.result(waiter, self._sending(method, params, options)))

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

    def _sending(self, method: str, params: Mapping[str, Any], options: RequestOptions) -> Send:
        without: RequestOptions = {**options, "continued": None}
        first = {name: value for name, value in params.items() if name not in ("requestState", "inputResponses")}

        def send(questions: Questions, on_notice: OnNotice, keep: Keep) -> Coroutine[Any, Any, dict[str, Any]]:
            asking: RequestOptions = {**without, "questions": questions, "on_notice": on_notice, "keep": keep}
            return self._client.request(method, first, **asking)

        return send

    def _result(self, call: HeldCall, event: HeldEvent) -> dict[str, Any]:
        """Return the event of a call as a result, or raise what it ended with."""
        if isinstance(event, Ended):
            if isinstance(event.outcome, BaseException):
                raise event.outcome
            result: dict[str, Any] = event.outcome
            return result
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


def _digest(value: object) -> bytes:
    return hashlib.sha256(_encode(value)).digest()[:DIGEST_BYTES]
