"""What a FastAPI endpoint costs that reads the body and answers one fixed JSON-RPC result."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request, Response

from bench.cases import RAW_BODY

app = FastAPI()


@app.post("/mcp")
async def answer(request: Request) -> Response:
    """Read the whole request, answer the fixed response."""
    await request.body()
    return Response(RAW_BODY, media_type="application/json")


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
