"""Another application with a gateway below a path."""

from __future__ import annotations

from fastapi import FastAPI

import gateway
from loadtest.cluster import new_key

app = FastAPI()
gateway.mount(
    app, "/tools", tools="gateway.demo.work_items", seal_keys=new_key(), audience="tests", auth="none", playground="on"
)
