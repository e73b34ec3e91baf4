"""One request from its bytes to its reply: parse → open → run → seal → encode.

Who calls is established before this, on the headers alone, so that nobody without a valid token makes a
replica read or decode a body.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.content import tool_result
from gateway.authoring.registry import Registry
from gateway.authoring.tools import Tool
from gateway.carrier import CannotContinue, SealedCarrier
from gateway.engine.host import Host
from gateway.engine.leg import Leg, run_leg
from gateway.engine.outcomes import Completed, Failed, InputRequired, LegTimedOut, Outcome
from gateway.errors import AskError, GatewayError, InvalidParams, InvalidRequest, MethodNotFound, RpcError
from gateway.ports import Caller, RandomBytes
from gateway.protocol.capabilities import supports
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Notification, RequestId, Response, parse_message, request_id_of, result_response
from gateway.protocol.released.requests import ReleasedRequest, ToolCall, read_cursor, read_request, read_tool_call
from gateway.protocol.released.results import ResultWriter, read_answers
from gateway.protocol.strict_json import decode
from gateway.protocol.versions import SUPPORTED_VERSIONS, Wire, choose_wire
from gateway.sealing.binding import Principal, request_state_binding
from gateway.sealing.digest import arguments_digest
from gateway.telemetry import Telemetry

log = logging.getLogger(__name__)

CATALOGUE_TTL_MS = 60_000
"""How long clients may keep lists and the discovery result."""

REFERENCE_BYTES = 6
"""Length of the reference id that joins what a client sees of a crash with the log."""


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


Reply: TypeAlias = Answered | Accepted | Refused


class Dispatcher:
    """Turns requests into replies; holds nothing between two of them.

    Args:
        registry: what is served.
        carrier: opens and seals the state of calls.
        host: runs legs.
        telemetry: counts legs.
        audience: the name all replicas of this deployment share; bound into every state.
        server_info: name and version, told in every result.
        random_bytes: a source of strong randomness.
        strict_asks: whether a tool that declares its questions may ask only those.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        carrier: SealedCarrier,
        host: Host,
        telemetry: Telemetry,
        audience: str,
        server_info: Mapping[str, Any],
        random_bytes: RandomBytes,
        strict_asks: bool = False,
    ) -> None:
        self._registry = registry
        self._carrier = carrier
        self._host = host
        self._telemetry = telemetry
        self._audience = audience
        self._random_bytes = random_bytes
        self._strict_asks = strict_asks
        self._results = ResultWriter(server_info)
        self._discovery = self._catalogue(
            {"supportedVersions": list(SUPPORTED_VERSIONS), "capabilities": {"tools": {}}}
        )
        self._tools_list = self._catalogue({"tools": [tool.catalogue_entry() for tool in registry.tools.values()]})
        self._methods: Mapping[str, Callable[[ReleasedRequest, Caller], Awaitable[bytes]]] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
        }

    def _catalogue(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return self._results.cacheable(fields, ttl_ms=CATALOGUE_TTL_MS, scope="public")

    async def handle(self, headers: Headers, body: bytes, caller: Caller) -> Reply:
        """Answer one request. Whatever the client sent, the reply says so; nothing is raised for it."""
        try:
            value = decode(body)
        except RpcError as error:
            return Refused(error)
        try:
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
            return Answered(await method(request, caller))
        except RpcError as error:
            return Refused(error, request_id_of(value))

    async def _discover(self, request: ReleasedRequest, _caller: Caller) -> bytes:
        return result_response(request.id, self._discovery)

    async def _list_tools(self, request: ReleasedRequest, _caller: Caller) -> bytes:
        if read_cursor(request.params) is not None:
            raise InvalidParams("Unknown cursor")
        return result_response(request.id, self._tools_list)

    async def _call_tool(self, request: ReleasedRequest, caller: Caller) -> bytes:
        call = read_tool_call(request.params)
        tool = self._registry.tools.get(call.name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {call.name}")
        began = time.perf_counter()
        label = "failed"
        self._telemetry.leg_started()
        try:
            binding = _Binding(self._audience, caller.principal, request.method, call)
            outcome, leg = await self._run(tool, call, request, caller, binding)
            body, label = self._tell(request.id, tool, outcome, leg, binding)
        finally:
            seconds = time.perf_counter() - began
            self._telemetry.leg_finished(request.method, tool.name, label, Wire.RELEASED, seconds)
        return body

    async def _run(
        self, tool: Tool, call: ToolCall, request: ReleasedRequest, caller: Caller, binding: _Binding
    ) -> tuple[Outcome, Leg]:
        state = call.continuation.request_state
        journal = self._carrier.begin() if state is None else self._carrier.open(state, binding.associated_data)
        leg = Leg(
            journal,
            read_answers(call.continuation.input_responses),
            self._host,
            supports=lambda path: supports(request.capabilities, path),
            version=tool.version,
            migrations=tool.migrations,
            declared=tool.asks if self._strict_asks else None,
        )
        try:
            function = tool.bind(call.arguments, caller.principal)
        except Exception as error:  # noqa: BLE001 - an argument's type may bring a validator of the author's
            return Failed(error), leg
        return await run_leg(function, leg), leg

    def _tell(
        self, request_id: RequestId, tool: Tool, outcome: Outcome, leg: Leg, binding: _Binding
    ) -> tuple[bytes, str]:
        """Return the response that tells the outcome, and the outcome's name."""
        try:
            if isinstance(outcome, InputRequired):
                state = self._carrier.seal(leg.journal, binding.associated_data, tool.state_ttl_seconds)
                return result_response(
                    request_id, self._results.input_required(outcome.questions, state)
                ), "input_required"
            if isinstance(outcome, Completed):
                return result_response(request_id, self._results.complete(tool_result(outcome.value))), "completed"
            error = outcome.error
        except Exception as failure:  # noqa: BLE001 - what a tool returns or asks may break whoever reads it
            error = failure
        return result_response(request_id, self._results.complete(self._failure(tool, error, leg))), "failed"

    def _failure(self, tool: Tool, error: Exception, leg: Leg) -> dict[str, Any]:
        """Return the tool result that tells a failure, without anything internal in it.

        Raises:
            RpcError: the failure is a JSON-RPC error, not a result.
        """
        if isinstance(error, RpcError):
            raise error
        if isinstance(error, InvalidArguments):
            return _error_result(f"Invalid arguments for {tool.name}: {error}")
        if isinstance(error, (AskError, CannotContinue)):
            return _error_result(str(error))
        reference = self._random_bytes(REFERENCE_BYTES).hex()
        fields = {"tool": tool.name, "flow": leg.journal.flow_id, "reference": reference}
        if isinstance(error, LegTimedOut):
            log.warning("tool outlived its time", extra={**fields, "limit_seconds": error.seconds})
            return _error_result(f"{tool.name} did not finish within {error.seconds:g} seconds (reference {reference})")
        log.error("tool failed", extra=fields, exc_info=error)
        return _error_result(f"{tool.name} failed (reference {reference})")


class _Binding:
    """What the state of one call is bound to; worked out only if a state is opened or sealed."""

    def __init__(self, audience: str, principal: Principal | None, method: str, call: ToolCall) -> None:
        self._audience = audience
        self._principal = principal
        self._method = method
        self._call = call

    @cached_property
    def associated_data(self) -> bytes:
        digest = arguments_digest(self._call.arguments)
        return request_state_binding(self._audience, self._principal, self._method, self._call.name, digest)


def _error_result(message: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}
