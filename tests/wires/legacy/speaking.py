"""The 2025-11-25 wire, spoken with the client of the draft wire, which knows requests on streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest

from loadtest.cluster import Replica
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import accept, call_params
from tests.wires.draft.transport import Message, RpcError
from tests.wires.draft.under_way import UnderWay, under_way

LEGACY: Final = "2025-11-25"
BEFORE_TASKS: Final = "2025-06-18"
ADA: Final[Mapping[str, Any]] = {"name": accept(name="ada")}
"""The answer to every form of the tools."""


async def speak(client: DraftClient, version: str = LEGACY) -> DraftClient:
    """Begin a session of a version, and speak it from then on."""
    client.transport.headers["MCP-Protocol-Version"] = version
    await client.initialize(version)
    return client


def text_of(result: Mapping[str, Any]) -> str:
    (block,) = result["content"]
    return str(block["text"])


def calling(client: DraftClient, tool: str, **arguments: Any) -> AbstractAsyncContextManager[UnderWay]:
    """Call a tool, and read the answer while the context is open."""
    return under_way(client, "tools/call", call_params(tool, arguments))


async def asked(request: UnderWay, number: int = 1) -> Message:
    """Wait for the n-th request of the server's on an answer, and return it."""
    seen: list[Message] = []

    def is_wanted(message: Message) -> bool:
        if "method" in message and "id" in message and message not in seen:
            seen.append(message)
        return len(seen) >= number and message == seen[number - 1]

    return await request.until(is_wanted)


async def result_of(request: UnderWay) -> dict[str, Any]:
    """Wait for the end of an answer, and return the result."""
    result: dict[str, Any] = (await request.response())["result"]
    return result


@contextlib.contextmanager
def undelivered() -> Iterator[None]:
    """Expect that an answer is refused, because it cannot reach its call."""
    with pytest.raises(RpcError) as caught:
        yield
    assert caught.value.code == -31006
    assert "start it again" in str(caught.value)


def rejected(replica: Replica, reason: str) -> float:
    """Return how many responses a replica has rejected for a reason."""
    return replica.metric("gateway_response_rejections_total", reason=reason)
