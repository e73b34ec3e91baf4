"""For whom a request to an upstream is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.protocol.caller import Requester
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.ports import UpstreamCaller


def caller_of(
    requester: Requester, definition: Definition, capabilities: Mapping[str, Any] | None = None
) -> UpstreamCaller:
    """Return what an upstream may learn of a request: of its headers, only those that are forwarded.

    Without `capabilities`, those that the client declared are declared.

    Raises:
        InvalidRequest: a header to forward is repeated, or has characters that a header must not have.
    """
    found = {name: requester.headers.single(name.encode("latin-1")) for name in definition.forward_headers}
    return UpstreamCaller(
        principal=requester.principal,
        exchange=requester.exchange,
        headers={name: value for name, value in found.items() if value is not None},
        capabilities=requester.capabilities if capabilities is None else capabilities,
    )
