"""An MCP server with small mistakes in each answer: results and entries of lists as given, and lists that never end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served
from tests.upstreams.servers.recording import VERSION

INVALID = {"name": "invalid", "inputSchema": {"type": "object", "properties": {"x": {"type": "strng"}}}}
SAYING = {"content": [{"type": "text", "text": "done"}]}
"""The answer to a call that none is given for, also of a tool that promises structured content."""
CAPABILITIES: Mapping[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}


class Careless(Served):
    """Sends JSON under the media type of event streams.

    Args:
        results: the answers to calls, by the names of tools.
        others: those to other methods, by method, and then by name or URI.
        entries: further entries of the lists, by method.
    """

    def __init__(
        self,
        results: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]] | None = None,
        entries: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.results: Mapping[str, Mapping[str, Any]] = {"tools/call": results, **(others or {})}
        tools = [{"name": name, "annotations": [], "inputSchema": {"type": "object"}} for name in results]
        prompts = [{"name": name, "arguments": None} for name in self._named("prompts/get")]
        resources = [{"uri": uri, "size": "4"} for uri in self._named("resources/read")]
        named: Mapping[str, list[Any]] = {
            "tools/list": [*tools, INVALID],
            "prompts/list": prompts,
            "resources/list": resources,
        }
        given: Mapping[str, Sequence[Any]] = entries or {}
        self.entries = {method: [*named.get(method, ()), *given.get(method, ())] for method in LISTS}
        self.server = PlainServer(self._handle)

    def _named(self, method: str) -> list[str]:
        return [*self.results.get(method, {})]

    async def _handle(self, exchange: Exchange) -> None:
        asked = msgspec.json.decode(exchange.body)
        answer = {"jsonrpc": "2.0", "id": str(asked["id"]), "result": self._result(asked), "error": None}
        exchange.reply(200, msgspec.json.encode(answer), [("content-type", "text/event-stream")])

    def _result(self, asked: Mapping[str, Any]) -> Any:
        method, params = asked["method"], asked["params"]
        if method == "server/discover":
            return {"supportedVersions": [VERSION], "capabilities": CAPABILITIES, "resultType": None}
        if method in LISTS:
            return {LISTS[method]: self.entries[method], "nextCursor": "again"}
        if "inputResponses" in params:
            return {}
        return self.results[method].get(params.get("name") or params.get("uri") or params["ref"]["name"], SAYING)


LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The member of each list."""
