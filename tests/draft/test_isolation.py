"""What belongs to one caller, one call or one list is good for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.draft import first_form
from tests.draft.client import DraftClient
from tests.draft.conftest import ClientOf
from tests.draft.messages import accept
from tests.draft.transport import RpcError
from tests.draft.written import brought, call, text_of

PAGE = 100
FORM = {"form": accept(name="ada")}
NO_SESSION = (404, -32600, "The session is unknown or has expired; begin another with initialize", None)
NO_STATE = (200, -32602, "Invalid or expired requestState", {"reason": "invalid_request_state"})
NO_CURSOR = (200, -32602, "Unknown cursor", None)


async def refusal_of(client: DraftClient, method: str, params: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """Send a request that is refused, and return all that its client can see of the reason."""
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    error = refused.value
    return error.status, error.code, error.message, error.data


async def cursor_of(client: DraftClient, count: int) -> str:
    """Create as many tasks, and return the cursor after the first page of them."""
    await asyncio.gather(*(client.create_task("weather", {"city": "Paris"}) for _ in range(count)))
    return str((await client.list_tasks())["nextCursor"])


def altered(token: str) -> str:
    """Return a token that is none any more."""
    middle = len(token) // 2
    return token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]


async def test_a_state_a_session_a_cursor_and_a_return_address_do_not_stand_for_each_other(
    user: DraftClient, client_of: ClientOf, name: str
) -> None:
    """All four are real, of one caller at one deployment, and each is good in its own place in the end."""
    wanted = call("ask", call=name, kinds=["form"])
    in_session = client_of(name)
    await in_session.initialize()
    async with first_form.call(user, "ask", name, **wanted["arguments"]) as task:
        tokens = {
            "state": (await user.request("tools/call", wanted))["requestState"],
            "session": in_session.session_id or "",
            "address": (await task.hear("elicitation/create"))["id"],
            "cursor": await cursor_of(user, PAGE),
        }
        assert len(set(tokens.values())) == len(tokens)

        def but(place: str) -> Iterator[str]:
            """Return what does not belong in a place."""
            return (altered(token) if kind == place else token for kind, token in tokens.items())

        for token in but("session"):
            in_session.transport.headers["Mcp-Session-Id"] = token
            assert await refusal_of(in_session, "ping") == NO_SESSION
        for token in but("state"):
            assert await refusal_of(user, "tools/call", wanted | brought(FORM, token)) == NO_STATE
        for token in but("cursor"):
            assert await refusal_of(user, "tasks/list", {"cursor": token}) == NO_CURSOR
        for token in but("address"):
            await user.respond(token, {"result": FORM["form"]})
        assert (await user.get_task(name))["status"] == "input_required"

        in_session.transport.headers["Mcp-Session-Id"] = tokens["session"]
        assert await in_session.request("ping") == {}
        answered = await user.request("tools/call", wanted | brought(FORM, tokens["state"]))
        assert text_of(answered) == "form: ada"
        assert (await user.list_tasks(tokens["cursor"]))["tasks"]
        await user.respond(tokens["address"], {"result": FORM["form"]})
        assert text_of((await task.response())["result"]) == "form: ada"
