"""A FastAPI endpoint that reads the body and returns one fixed JSON-RPC result."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from bench.cases import RAW_BODY
from bench.peers.serving import serve

app = FastAPI()


@app.post("/mcp")
async def answer(request: Request) -> Response:
    """Read the whole request, answer the fixed response."""
    await request.body()
    return Response(RAW_BODY, media_type="application/json")


if __name__ == "__main__":
    serve(app, lifespan="off")
