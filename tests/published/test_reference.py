"""The reference servers behind two replicas: results are those of direct calls, to the byte."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from gateway.auth.tokens import mint
from tests.children.running import alive
from tests.integration.client import connect
from tests.published.checks import (
    test_a_result_is_that_of_a_direct_call,
    test_every_tool_is_listed_and_is_called_here_or_says_why_not,
)
from tests.published.published import Tried
from tests.upstreams.site import META, VERSION, Site
from tests.upstreams.wires import DRAFT, RELEASED, WIRES, speaking
from tests.waiting import until
from tests.wires.draft.deployment import AUDIENCE, SECRET
from tests.wires.draft.messages import call_params
from tests.wires.legacy.speaking import speak, text_of

__all__ = [
    "test_a_result_is_that_of_a_direct_call",
    "test_every_tool_is_listed_and_is_called_here_or_says_why_not",
]

FILE = "reference"
TOKEN = mint(SECRET, "ada", AUDIENCE)
ETC = {"roots": [{"uri": "file:///etc", "name": "etc"}]}
CAPABILITIES = {"roots": {"listChanged": True}}
READ = {"name": "files__read_text_file", "arguments": {"path": "/etc/passwd"}}
SAID = {**ETC, f"{META}/roots": ETC["roots"], f"{META}/clientCapabilities": {"roots": {**CAPABILITIES["roots"], **ETC}}}
MESSAGES: Sequence[Mapping[str, Any]] = (
    {"method": "notifications/initialized", "params": ETC},
    {"method": "notifications/roots/list_changed"},
    {"method": "notifications/roots/list_changed", "params": ETC},
    *({"id": number, "result": ETC} for number in (0, 1, 2, 3, "1")),
    {"id": 90, "method": "roots/list", "params": ETC},
    {"id": 91, "method": "tools/call", "params": {**READ, **ETC, "_meta": SAID}},
    {"id": 92, "method": "tools/call", "params": {**READ, "inputResponses": {"roots": ETC}, "_meta": SAID}},
    {"id": 93, "method": "tools/call", "params": {**READ, "inputResponses": {"roots": ETC}, "requestState": "x"}},
    {"id": 94, "method": "server/discover", "params": {"_meta": SAID}},
)
"""All that could bring the directories of a client to a server."""


async def test_the_directories_of_the_real_client_reach_no_server(site: Site, servers: Tried) -> None:
    async with connect(site, {}, token=TOKEN, roots=["file:///etc"]) as connection:
        for _ in site.urls:
            text, _ = await connection.call("files__list_allowed_directories", {})
            assert text == f"Allowed directories:\n{servers.places.folder / 'files'}"
            text, is_error = await connection.call("files__read_text_file", {"path": "/etc/hostname"})
            assert is_error
            assert "Access denied" in text


@pytest.mark.parametrize("wire", WIRES)
async def test_no_message_of_a_caller_opens_a_directory(site: Site, servers: Tried, wire: str) -> None:
    allowed = f"Allowed directories:\n{servers.places.folder / 'files'}"
    async with httpx.AsyncClient(timeout=20) as http:
        headers = await headers_of(site, wire)
        for message in MESSAGES:
            for url in site.urls:
                named = {"mcp-method": message.get("method", ""), "mcp-name": READ["name"]} if wire == RELEASED else {}
                given = meta_of(wire, message)
                response = await http.post(url, json=given, headers={**headers, **named})
                assert response.status_code < 500
                assert "root:" not in response.text
    async with speaking(wire, site, "ada") as speaker:
        for _ in site.urls:
            result = await speaker("tools/call", call_params("files__list_allowed_directories", {}))
            assert text_of(result) == allowed
            result = await speaker("tools/call", READ)
            assert result["isError"]
            assert "Access denied" in text_of(result)


async def headers_of(site: Site, wire: str) -> dict[str, str]:
    """Return the headers of a caller on a wire, who declares roots where the wire has sessions."""
    accept = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {TOKEN}"}
    if wire == RELEASED:
        return {**accept, "mcp-protocol-version": VERSION}
    async with site.client("ada", capabilities=CAPABILITIES) as client:
        await (client.initialize() if wire == DRAFT else speak(client))
        return dict(client.transport.headers)


def meta_of(wire: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that is complete on its wire."""
    params = dict(message.get("params", {}))
    if wire == RELEASED and "method" in message:
        version = {f"{META}/protocolVersion": VERSION, f"{META}/clientCapabilities": CAPABILITIES}
        params["_meta"] = {**version, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", **message, **({"params": params} if params else {})}


async def test_they_end_with_their_replica(site: Site, servers: Tried) -> None:
    mark = str(servers.places.folder / "files")
    directly = len(alive(mark)) - len(site.urls)
    assert directly > 0, "launchers stay if there is no gateway"
    for replica in site.replicas:
        replica.kill()
    async with asyncio.timeout(5):
        await until(lambda: len(alive(mark)) == directly)
