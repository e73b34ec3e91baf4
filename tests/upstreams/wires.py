"""One way to call tools on each of the three wires."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tests.upstreams.site import Site
from tests.wires.draft.messages import Answers, call_params
from tests.wires.legacy.speaking import LEGACY, speak, text_of

RELEASED, DRAFT = "2026-07-28", "draft"
WIRES = (RELEASED, LEGACY, DRAFT)


class Speaker(Protocol):
    """Calls tools, prompts and resources to their end, each request at the next replica."""

    async def __call__(
        self, method: str, params: Mapping[str, Any], answers: Answers | None = None
    ) -> dict[str, Any]: ...


@asynccontextmanager
async def speaking(wire: str, site: Site, principal: str, **options: Any) -> AsyncIterator[Speaker]:
    if wire == RELEASED:
        async with site.user(principal, **options) as user:

            async def released(
                method: str, params: Mapping[str, Any], answers: Answers | None = None
            ) -> dict[str, Any]:
                return (await user.complete(method, params, answers)).result

            yield released
        return
    async with site.client(principal, **options) as client:
        if wire == LEGACY:
            await speak(client)
        else:
            await client.initialize()  # without a session, a client is taken to be unable to visit addresses

        async def older(method: str, params: Mapping[str, Any], answers: Answers | None = None) -> dict[str, Any]:
            return (await client.complete(method, params, answers=answers)).result

        yield older


async def said(speaker: Speaker, tool: str, answers: Answers, **arguments: Any) -> Any:
    """Call a tool that says in JSON which answers reached it, and return them."""
    return json.loads(text_of(await speaker("tools/call", call_params(tool, arguments), answers)))
