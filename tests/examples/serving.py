"""The examples of the documents, served and called as their readers would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.testclient import TestClient

import gateway
from gateway.auth.tokens import mint
from loadtest.cluster import new_key
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, Answer, headers_of, tool_call

SECRET: Final = "a secret that only these tests know, 32 bytes"
SETTINGS: Final[Mapping[str, Any]] = {"audience": "examples", "jwt_secret": SECRET, "auth": "jwt"}
META: Final = {META_VERSION: VERSION, META_CAPABILITIES: {"elicitation": {"form": {}, "url": {}}}}


def settings(**more: Any) -> dict[str, Any]:
    """Return the settings of a replica."""
    return {**SETTINGS, "seal_keys": new_key(), "audit_log": "off", **more}


@contextlib.contextmanager
def serving(module: str, **more: Any) -> Iterator[TestClient]:
    """Serve the tools of a module from an application, and open its lifespans."""
    app = FastAPI()
    gateway.mount(app, "/tools", tools=module, **settings(**more))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def call(client: TestClient, user: str, tool: str, arguments: Mapping[str, Any], **params: Any) -> Answer:
    """Call a tool as a user."""
    message = tool_call(tool, arguments, _meta=META, **params)
    headers = {**headers_of(message), "authorization": f"Bearer {mint(SECRET, user, 'examples')}"}
    response = client.post("/tools/mcp", content=msgspec.json.encode(message), headers=headers)
    return Answer(response.status_code, response.headers, response.content)
