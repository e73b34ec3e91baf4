"""The interfaces between the parts of this package and the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from gateway.protocol.caller import Exchange
from gateway.sealing.principal import Principal
from gateway.upstreams.failures import Reason


@dataclass(frozen=True, slots=True)
class UpstreamCaller:
    """For whom a request to an upstream is made. Its text contains no token and no header.

    Attributes:
        principal: the caller, or None if it is anonymous or the gateway asks for itself.
        headers: the headers of the caller's request, by lower-case name; only those of `forward_headers` are sent.
        token: a token for the upstream that a task has kept, or None.
    """

    principal: Principal | None = None
    exchange: Exchange | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)


NOBODY = UpstreamCaller()
"""The gateway itself, for requests that no caller makes."""


OnNotice: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Takes the method and the checked parameters of a progress notification or log message."""


Changes: TypeAlias = AsyncIterator[tuple[str, dict[str, Any]]]
"""The methods and parameters of notifications of changes, as they arrive."""


class Requests(Protocol):
    """Sends requests to one upstream; see `gateway.upstreams.stateless.StatelessClient`."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        requester: UpstreamCaller,
        param_headers: Sequence[tuple[str, str]] = (),
        on_notice: OnNotice | None = None,
        wants_progress: bool = False,
        log_level: str | None = None,
        repeatable: bool = False,
        seconds: float,
        max_bytes: int,
    ) -> dict[str, Any]:
        """Send a request and return its result."""
        ...


class RequestTrace(Protocol):
    """The span of one request to an upstream."""

    @property
    def traceparent(self) -> str:
        """The span, in the form of W3C Trace Context."""
        ...

    def end(self, outcome: str) -> None:
        """End the span; `outcome` is that of `UpstreamTelemetry.request_ended`."""
        ...


class UpstreamTracing(Protocol):
    """Makes spans of requests to upstreams; see `gateway.observability.tracing.Traces`."""

    def upstream_request(self, upstream: str, method: str) -> RequestTrace | None:
        """Begin the span of a request; None if it belongs to no call."""
        ...


class UpstreamTelemetry(Protocol):
    """Counts what happens with upstreams. Labels come from the configuration and from lists, never from callers."""

    def request_ended(self, upstream: str, method: str, outcome: str, seconds: float) -> None:
        """Count a request to an upstream.

        `outcome` is `completed`, `input_required`, `error`, `cancelled` or a `Reason` value.
        """
        ...

    def failed(self, upstream: str, reason: Reason) -> None:
        """Count a failure."""
        ...

    def dropped(self, upstream: str, what: str) -> None:
        """Count something that an upstream sent and nobody gets, such as `log`, `progress`, `tool` or `question`."""
        ...

    def listed(self, upstream: str, *, succeeded: bool) -> None:
        """Count a refresh of an upstream's lists."""
        ...

    def serves(self, upstream: str, entries: int) -> None:
        """Set how many tools, prompts, resources and templates of an upstream are served."""
        ...

    def breaker(self, upstream: str, *, is_open: bool) -> None:
        """Set whether requests to an upstream are refused after repeated failures."""
        ...

    def in_flight(self, upstream: str, requests: int) -> None:
        """Set how many requests an upstream works on."""
        ...
