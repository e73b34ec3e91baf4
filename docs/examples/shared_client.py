"""One HTTP client for all calls of a process.

Run it with ``STATUS_URL=https://www.githubstatus.com gateway dev --tools shared_client.py``. It needs httpx.

A client per call would open a new connection, with a new TLS handshake, each time. `@lifespan` opens one client when
the process starts, and closes it when the process ends. Its limits hold for all calls together.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx

from gateway import Context, lifespan, tool

STATUS_PATH = "/api/v2/status.json"


@lifespan
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Open the client. Time limits and limits on connections keep a slow service from holding up the process."""
    limits = httpx.Limits(max_connections=20, max_keepalive_connections=10)
    timeout = httpx.Timeout(10, connect=3)
    async with httpx.AsyncClient(base_url=os.environ["STATUS_URL"], limits=limits, timeout=timeout) as client:
        yield client


async def read_status() -> str:
    """Return what the service says about itself."""
    response = await http.value.get(STATUS_PATH)
    response.raise_for_status()
    return str(response.json()["status"]["description"])


@tool
async def service_status(ctx: Context) -> str:
    """Return whether the service works."""
    try:
        return await ctx.step("status", read_status)
    except httpx.HTTPError as error:
        # A model reads this. An exception that the tool does not catch is reported only as a reference to the log.
        return f"The status is not available: {type(error).__name__}"
