"""The interfaces between the parts of this package and the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from gateway.protocol.caller import Exchange
from gateway.sealing.principal import Principal


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
