"""Everything beside `/mcp`, on FastAPI: for now the two health checks."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response


def create_site(ready: Callable[[], bool]) -> FastAPI:
    """Return the FastAPI application.

    Args:
        ready: tells whether this replica takes new work.
    """
    site = FastAPI(title="Sealed Gateway", openapi_url=None, docs_url=None, redoc_url=None)

    @site.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @site.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        if ready():
            return {"status": "ready"}
        response.status_code = 503
        return {"status": "leaving"}

    return site
