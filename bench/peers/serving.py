"""Serves all peers by uvicorn at its fastest, on the port that is the first argument."""

from __future__ import annotations

import sys
from typing import Any, Literal

import uvicorn


def serve(app: Any, *, lifespan: Literal["auto", "off"] = "auto") -> None:
    """Serve an ASGI application on 127.0.0.1 until a signal ends it."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
    )
