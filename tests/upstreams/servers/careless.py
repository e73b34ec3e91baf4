"""An MCP server with small mistakes in each answer: results as given, by a tool's name, and lists that never end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served
from tests.upstreams.servers.recording import VERSION

INVALID = {"name": "invalid", "inputSchema": {"type": "object", "properties": {"x": {"type": "strng"}}}}


class Careless(Served):
    """Answers calls with these results, as JSON under the media type of event streams."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.results = results
        self.server = PlainServer(self._handle)

    async def _handle(self, exchange: Exchange) -> None:
        asked = msgspec.json.decode(exchange.body)
        answer = {"jsonrpc": "2.0", "id": str(asked["id"]), "result": self._result(asked), "error": None}
        exchange.reply(200, msgspec.json.encode(answer), [("content-type", "text/event-stream")])

    def _result(self, asked: Mapping[str, Any]) -> Any:
        if asked["method"] == "server/discover":
            return {"supportedVersions": [VERSION], "capabilities": {"tools": {}}, "resultType": None}
        if asked["method"] == "tools/list":
            tools = [{"name": name, "annotations": [], "inputSchema": {"type": "object"}} for name in self.results]
            return {"tools": [*tools, INVALID], "nextCursor": "again"}
        return self.results[asked["params"]["name"]]
