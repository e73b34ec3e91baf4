"""Call another service as the user who calls the tool.

Run it with ``ORDERS_URL=https://orders.example.com gateway serve --tools on_behalf_of.py``. It needs httpx, and the
settings ``GATEWAY_TOKEN_EXCHANGE_URL``, ``…_CLIENT_ID`` and ``…_CLIENT_SECRET``.

The user's token is for this gateway, so the other service must not accept it. The identity provider exchanges it for
one that is for the other service, names the same user, and has only the scopes that the request needs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx
from pydantic import BaseModel

from gateway import Context, TokenExchangeError, lifespan, tool


class Cancel(BaseModel):
    """The form that the user fills in."""

    really: bool


@lifespan
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Open one client for all users. It must not hold the token of any of them, so each request has its own."""
    async with httpx.AsyncClient(base_url=os.environ["ORDERS_URL"], timeout=10) as client:
        yield client


async def request(ctx: Context, method: str, path: str, scope: str) -> str:
    """Send a request as the user. The token stays in this function: nothing may store it."""
    token = await ctx.exchange_token("orders", scopes=[scope])
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
    response = await http.value.request(method, path, headers=headers)
    response.raise_for_status()
    return response.text


@tool
async def cancel_order(ctx: Context, number: int) -> str:
    """Cancel one of the user's orders."""
    try:
        # Each request is a step, so the answer to the question below does not repeat it.
        order = await ctx.step("read", request, ctx, "GET", f"/orders/{number}", "orders:read")
        sure = await ctx.elicit("sure", f"Cancel this order: {order}?", Cancel)
        if not sure.really:
            return "Nothing was cancelled."
        return await ctx.step("cancel", request, ctx, "DELETE", f"/orders/{number}", "orders:write")
    except TokenExchangeError as error:
        if not error.code:
            return "No token for the order service could be obtained."
        return f"You may not use the order service ({error.code})."
    except httpx.HTTPStatusError as error:
        return f"The order service refused: {error.response.status_code}."
