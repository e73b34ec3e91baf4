"""One leg of a call on the released wire: open → run → seal → encode."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.audit import AuditLog
from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.carrier import CannotContinue, SealedCarrier
from gateway.engine.driver import run_leg
from gateway.engine.host import Host, Notices
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, Failed, InputRequired, LegTimedOut, Outcome
from gateway.errors import AskError, InternalError, InvalidParams, RpcError
from gateway.ports import Caller, RandomBytes
from gateway.protocol.capabilities import supports
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.released import notifications
from gateway.protocol.released.requests import Continuation, ReleasedRequest
from gateway.protocol.released.results import ResultWriter, read_answers
from gateway.protocol.strict_json import encode
from gateway.protocol.versions import Wire
from gateway.sealing.binding import request_state_binding
from gateway.sealing.digest import arguments_digest
from gateway.telemetry import Telemetry

log = logging.getLogger(__name__)

REFERENCE_BYTES = 6
"""Length of the reference id that joins what a client sees of a crash with the log."""

Post = Callable[[bytes], None]
"""Sends one notification ahead of the answer. May be called from any thread."""


@dataclass(frozen=True, slots=True)
class Call:
    """One leg as a client asks for it.

    Attributes:
        request: the request that carries it.
        caller: who sent it.
        served: the tool, prompt or resource.
        target: its name, or the URI, as the client gave it.
        arguments: as parsed.
        continuation: the state and the answers that the client brings.
        post: where notifications about the request go, or None if the client takes none.
    """

    request: ReleasedRequest
    caller: Caller
    served: Served
    target: str
    arguments: dict[str, Any]
    continuation: Continuation
    post: Post | None


class CallRunner:
    """Runs legs of ephemeral calls; holds nothing between two of them.

    Args:
        carrier: opens and seals the state of calls.
        host: runs legs.
        telemetry: counts legs.
        results: writes results.
        audience: the name all replicas of this deployment share; bound into every state.
        random_bytes: a source of strong randomness.
        audit: notes each leg.
        strict_asks: whether a function that declares its questions may ask only those.
    """

    def __init__(
        self,
        *,
        carrier: SealedCarrier,
        host: Host,
        telemetry: Telemetry,
        results: ResultWriter,
        audience: str,
        random_bytes: RandomBytes,
        audit: AuditLog,
        strict_asks: bool = False,
    ) -> None:
        self._carrier = carrier
        self._host = host
        self._telemetry = telemetry
        self._results = results
        self._audience = audience
        self._random_bytes = random_bytes
        self._audit = audit
        self._strict_asks = strict_asks

    async def run(self, call: Call) -> bytes:
        """Run one leg and return the response that tells its outcome.

        Raises:
            RpcError: the leg ends in a JSON-RPC error.
        """
        began = time.perf_counter()
        outcome = "failed"
        journal: Journal | None = None
        self._telemetry.leg_started()
        try:
            binding = _Binding(self._audience, call)
            journal = self._journal(call, binding)
            body, outcome = await self._leg(call, binding, journal)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - began
            self._telemetry.leg_finished(call.request.method, _label(call), outcome, Wire.RELEASED, seconds)
            if journal is not None:
                self._audit.leg(
                    call.caller.principal,
                    call.request.method,
                    call.target,
                    flow=journal.flow_id,
                    leg=journal.legs,
                    outcome=outcome,
                    seconds=seconds,
                )
        return body

    def _journal(self, call: Call, binding: _Binding) -> Journal:
        """Return the journal that the client brings, or that of a new flow."""
        state = call.continuation.request_state
        return self._carrier.begin() if state is None else self._carrier.open(state, binding.associated_data())

    async def _leg(self, call: Call, binding: _Binding, journal: Journal) -> tuple[bytes, str]:
        served = call.served
        leg = Leg(
            journal,
            read_answers(call.continuation.input_responses),
            self._host,
            supports=lambda path: supports(call.request.capabilities, path),
            version=served.version,
            migrations=served.migrations,
            declared=served.asks if self._strict_asks else None,
            notices=_notices(call),
        )
        outcome: Outcome
        try:
            function = served.bind(call.arguments, call.caller.principal)
        except Exception as error:  # noqa: BLE001 - an argument's type may bring a validator of the author's
            outcome = Failed(error)
        else:
            outcome = await run_leg(function, leg)
        return self._tell(call, outcome, leg, binding)

    def _tell(self, call: Call, outcome: Outcome, leg: Leg, binding: _Binding) -> tuple[bytes, str]:
        """Return the response that tells the outcome, and the outcome's name."""
        request_id = call.request.id
        try:
            if isinstance(outcome, InputRequired):
                state = self._carrier.seal(leg.journal, binding.associated_data(), call.served.state_ttl_seconds)
                result = self._results.input_required(outcome.questions, state)
                return result_response(request_id, result), "input_required"
            if isinstance(outcome, Completed):
                return result_response(request_id, self._completed(call, outcome.value)), "completed"
            error = outcome.error
        except Exception as failure:  # noqa: BLE001 - what a function returns or asks may break whoever reads it
            error = failure
        text = self._failure(call, error, leg)
        failed = {"content": [{"type": "text", "text": text}], "isError": True}
        return result_response(request_id, self._results.complete(failed)), "failed"

    def _completed(self, call: Call, value: Any) -> dict[str, Any]:
        fields = call.served.result(value, call.target)
        if not isinstance(call.served, Resource):
            return self._results.complete(fields)
        # A read that depended on answers must not be kept (MCP "Caching", Cache Key).
        is_retry = bool(call.continuation.input_responses) or call.continuation.request_state is not None
        ttl_ms = 0 if is_retry else call.served.ttl_ms
        return self._results.cacheable(fields, ttl_ms=ttl_ms, scope="private" if is_retry else call.served.cache)

    def _failure(self, call: Call, error: Exception, leg: Leg) -> str:
        """Return what a client is told of a failed tool, without anything internal in it.

        Raises:
            RpcError: the failure is told as a JSON-RPC error; that of a prompt or resource always is.
        """
        if isinstance(error, RpcError) and _can_be_told(error):
            raise error
        name = call.served.name
        if isinstance(error, InvalidArguments):
            message = f"Invalid arguments for {name}: {error}"
            if isinstance(call.served, Tool):
                return message
            raise InvalidParams(message)
        told = isinstance(error, (AskError, CannotContinue))
        message = str(error) if told else self._crash(name, error, leg)
        if isinstance(call.served, Tool):
            return message
        raise InternalError(message)

    def _crash(self, name: str, error: Exception, leg: Leg) -> str:
        reference = self._random_bytes(REFERENCE_BYTES).hex()
        fields = {"tool": name, "flow": leg.journal.flow_id, "reference": reference}
        if isinstance(error, LegTimedOut):
            log.warning("tool outlived its time", extra={**fields, "limit_seconds": error.seconds})
            return f"{name} did not finish within {error.seconds:g} seconds (reference {reference})"
        log.error("tool failed", extra=fields, exc_info=error)
        return f"{name} failed (reference {reference})"


class _Binding:
    """What the state of one call is bound to; worked out only if a state is opened or sealed."""

    def __init__(self, audience: str, call: Call) -> None:
        self._audience = audience
        self._call = call
        self._bytes: bytes | None = None

    def associated_data(self) -> bytes:
        """Return the bytes that the state is sealed with."""
        if self._bytes is None:
            call = self._call
            digest = arguments_digest(call.arguments)
            self._bytes = request_state_binding(
                self._audience, call.caller.principal, call.request.method, call.target, digest
            )
        return self._bytes


class _RequestNotices:
    """Sends what a leg tells of itself on the answer to its request, as far as the client asked for it."""

    def __init__(self, request: ReleasedRequest, post: Post) -> None:
        self._request = request
        self._post = post

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        token = self._request.progress_token
        if token is not None:
            self._post(notifications.progress(token, done, total, message))

    def log(self, level: str, data: Any, logger: str | None) -> None:
        if notifications.is_logged(level, self._request.log_level):
            self._post(notifications.log_message(level, data, logger))


def _notices(call: Call) -> Notices | None:
    asked = call.request.progress_token is not None or call.request.log_level is not None
    return _RequestNotices(call.request, call.post) if asked and call.post is not None else None


def _can_be_told(error: RpcError) -> bool:
    """Tell whether an error, perhaps the author's own, has a form in JSON; without one it is a crash like any other."""
    try:
        encode([error.message, error.data])
    except (TypeError, ValueError, RecursionError):
        return False
    return type(error.code) is int


def _label(call: Call) -> str:
    """Return the name for metrics: of a template, the template."""
    return call.served.uri if isinstance(call.served, Resource) else call.served.name
